"""Assignment: the documented function, shares, and nobody moves."""

from __future__ import annotations

import hashlib
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxkit.rollout.assignment import arm_at, ranges, uniform
from tests.strategies import stored_texts

VECTORS = [
    ("default", "s1", "alice", 0.8477635456748723),
    ("default", "s1", "bob", 0.7447441047040647),
    ("acme", "s1", "alice", 0.4047677881404539),
    ("猫", "", "é", 0.4460406921129003),
]
"""What another language must give; the last has characters of three and two bytes, and an empty seed."""


few = settings(max_examples=max(25, settings().max_examples // 5))


@pytest.mark.parametrize(("tenant", "seed", "unit", "expected"), VECTORS)
def test_the_vectors_that_another_language_is_checked_with(tenant: str, seed: str, unit: str, expected: float) -> None:
    assert uniform(tenant, seed, unit) == expected
    parts = [text.encode("utf-8") for text in (tenant, seed, unit)]
    written = b"".join(str(len(part)).encode() + b":" + part + b"," for part in parts)
    bits = bin(int(hashlib.sha256(written).hexdigest()[:16], 16))[2:].zfill(64)[:53]
    assert Fraction(int(bits, 2), 2**53) == Fraction(expected)


@few
@given(stored_texts, stored_texts, stored_texts)
def test_any_texts_give_a_number_below_one(tenant: str, seed: str, unit: str) -> None:
    assert 0 <= uniform(tenant, seed, unit) < 1


def test_no_text_runs_over_into_the_next() -> None:
    found = [uniform("a", "bc", "d"), uniform("ab", "c", "d"), uniform("a", "b", "cd"), uniform("a1:b", "c", "d")]
    assert len(set(found)) == 4


weightings = st.lists(st.integers(1, 100), min_size=2, max_size=6).map(
    lambda found: {f"arm{index}": value / sum(found) for index, value in enumerate(found)}
)
coverages = st.floats(0.0001, 1)


@few
@given(weightings, st.lists(coverages, min_size=2, max_size=5), st.floats(0, 1, exclude_max=True))
def test_a_higher_coverage_moves_nobody(weights: dict[str, float], steps: list[float], position: float) -> None:
    before = None
    for coverage in sorted(steps):
        after = arm_at(position, weights, coverage)
        assert before in (None, after)
        before = after


@few
@given(weightings, coverages)
def test_ranges_never_meet_and_begin_where_the_weights_say(weights: dict[str, float], coverage: float) -> None:
    edges = list(ranges(weights, coverage).values())
    for (start, end), (following, _) in zip(edges, [*edges[1:], (2.0, 2.0)], strict=True):
        assert start < end <= following
    assert [start for start, _ in edges] == [start for start, _ in ranges(weights, 1.0).values()]


def test_shares_of_a_hundred_thousand_units() -> None:
    weights = {"control": 0.6, "brief": 0.3, "long": 0.1}
    positions = [uniform("default", "seed", f"session-{number}") for number in range(100_000)]
    counts = Counter(arm_at(position, weights, 1.0) for position in positions)
    assert all(abs(counts[arm] / 100_000 - weight) < 0.005 for arm, weight in weights.items())
    assert counts[None] == 0
    # Coverage takes the same share of each arm, and whoever is in stays.
    low, middle, high = (
        [arm_at(position, weights, coverage) for position in positions] for coverage in (0.01, 0.05, 0.5)
    )
    assert abs(sum(arm is not None for arm in middle) / 100_000 - 0.05) < 0.005
    assert all(a is None or a == b for a, b in zip(low, middle, strict=True))
    assert all(a is None or a == b for a, b in zip(middle, high, strict=True))
    assert any(arm is None for arm in low) and any(arm is not None for arm in low)


@pytest.mark.parametrize(("one", "other"), [(("a", "s1"), ("a", "s2")), (("a", "s"), ("b", "s"))])
def test_two_seeds_or_two_tenants_assign_independently(one: tuple[str, str], other: tuple[str, str]) -> None:
    table = np.zeros((4, 4))
    for number in range(10_000):
        table[int(4 * uniform(*one, f"u{number}")), int(4 * uniform(*other, f"u{number}"))] += 1
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / table.sum()
    assert ((table - expected) ** 2 / expected).sum() < 27.88, "the 0.999 quantile of chi-square, 9 degrees of freedom"
