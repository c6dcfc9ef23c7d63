"""Which arm a unit gets: a pure function of the tenant, the experiment's seed and the unit, in any language.

1. Write the three texts as netstrings in UTF-8 (`5:alice,`: length in bytes, colon, bytes, comma), one after another.
   Lengths make the encoding unambiguous: no tenant and seed can be mistaken for another tenant and seed.
2. Take the first eight bytes of their SHA-256 as an unsigned big-endian integer, shift it right by 11: 53 bits.
3. Divide by 2^53: a number in [0, 1), exact in IEEE double precision.
4. Walk the arms in their order. An arm's range starts at the sum of the weights before it and is `coverage * weight`
   long. The unit gets the arm whose range holds its number; outside of all of them it is not in the experiment.

Starts do not depend on the coverage, so a higher coverage only lengthens ranges: nobody who is in moves (the shape is
GrowthBook's). Test vectors are in tests/rollout/test_assignment.py and docs/concepts/experiments.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

__all__ = ["arm_at", "ranges", "uniform"]


def uniform(tenant: str, seed: str, unit: str) -> float:
    """A number in [0, 1) with 53 bits, uniform over units and independent between seeds.

    Example:
        >>> uniform("default", "s1", "alice")
        0.8477635456748723
    """
    digest = hashlib.sha256()
    for part in (tenant, seed, unit):
        data = part.encode()
        digest.update(b"%d:%s," % (len(data), data))
    return (int.from_bytes(digest.digest()[:8], "big") >> 11) / 2**53


def ranges(weights: Mapping[str, float], coverage: float) -> dict[str, tuple[float, float]]:
    """The half-open range of each arm.

    Example:
        >>> ranges({"control": 0.5, "brief": 0.5}, 0.1)
        {'control': (0.0, 0.05), 'brief': (0.5, 0.55)}
    """
    found, start = {}, 0.0
    for arm, weight in weights.items():
        found[arm] = (start, start + coverage * weight)
        start += weight
    return found


def arm_at(position: float, weights: Mapping[str, float], coverage: float) -> str | None:
    """The arm whose range holds `position`, or None outside of the experiment."""
    for arm, (start, end) in ranges(weights, coverage).items():
        if start <= position < end:
            return arm
    return None
