"""Choosing what goes into a room: the best first, and of the others what still fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

__all__ = ["Packed", "pack"]

_MISSES = 8
"""How many items must have been weighed before their hints are trusted to say that another one is far too big."""


Weigh = Callable[[int, dict[int, int]], int | None]


@dataclass(slots=True)
class Packed:
    """The items that were taken, with their costs, and the costs that were learnt of those left out.

    Args:
        taken: item to cost, in the order they were taken.
        known: item to cost, for the items that were weighed and do not fit.
        nothing: the items that would add nothing to those taken.
    """

    taken: dict[int, int] = field(default_factory=dict)
    known: dict[int, int] = field(default_factory=dict)
    nothing: list[int] = field(default_factory=list)

    @property
    def used(self) -> int:
        return sum(self.taken.values())


def pack(
    values: Sequence[float],
    hints: Sequence[int],
    room: int,
    *,
    weigh: Weigh,
    items: Sequence[int] | None = None,
    entangled: frozenset[int] = frozenset(),
) -> Packed:
    """Take the items in the order of their values; one that does not fit is passed over and the next is tried.

    So the best item that fits the room is always taken, whatever smaller ones there are. Value per token is not what
    counts: scores of good candidates lie near each other, so their lengths would decide; what that loses is measured
    in `docs/decisions/0008-what-a-candidate-is-worth.md`.

    Args:
        values: what each item is worth; of equal ones the first comes first.
        hints: about what each costs, 1 or more. A hint never decides what is taken; it only saves the weighing of an
            item where the hints of those weighed so far show that it is too big by far.
        room: the sum of costs never exceeds it.
        weigh: the exact cost of an item beside those taken, or None where it adds nothing to them.
        items: the indexes of the items there are; all by default.
        entangled: the items whose cost depends on others that were taken; those that do not fit are tried once more
            at the end, when others may hold a part of them.

    Complexity: O(n log n) and at most one `weigh` of an item, two of an entangled one.

    Example:
        >>> costs = [60, 50, 50, 30]
        >>> sorted(pack([0.93, 0.92, 0.9, 0.1], costs, 100, weigh=lambda item, taken: costs[item]).taken)
        [0, 3]
    """
    packed = Packed()
    if room <= 0:
        return packed
    left, weighed, scale = room, 0, 1.0
    for item in sorted(range(len(values)) if items is None else items, key=lambda item: (-values[item], item)):
        if weighed >= _MISSES and hints[item] * scale > left:
            continue
        cost = weigh(item, packed.taken)
        if cost is not None:
            weighed += 1
            scale = min(scale, cost / hints[item])
        left -= _settle(packed, item, cost, left)
    for item in [item for item in packed.known if item in entangled]:
        del packed.known[item]
        left -= _settle(packed, item, weigh(item, packed.taken), left)
    return packed


def _settle(packed: Packed, item: int, cost: int | None, left: int) -> int:
    """Put an item where it belongs; returns what it takes of the room."""
    if cost is None:
        packed.nothing.append(item)
    elif cost > left:
        packed.known[item] = cost
    else:
        packed.taken[item] = cost
        return cost
    return 0
