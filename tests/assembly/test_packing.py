"""Packing: against the best there is on small cases, against the upper bound on large ones."""

from __future__ import annotations

import random
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from ctxkit.assembly.packing import pack

cases = st.integers(1, 9).flatmap(
    lambda count: st.tuples(
        st.lists(st.integers(1, 60), min_size=count, max_size=count),
        st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]), min_size=count, max_size=count),
        st.lists(st.sampled_from([0.25, 0.5, 1.0, 1.5, 4.0]), min_size=count, max_size=count),
    )
)


def _value(values: list[float], items: object) -> float:
    return sum(values[item] for item in items)  # type: ignore[attr-defined]


@given(cases, st.integers(0, 200))
def test_small_cases_are_packed_as_well_as_possible(
    case: tuple[list[int], list[float], list[float]], room: int
) -> None:
    costs, values, errors = case
    hints = [max(1, round(cost * error)) for cost, error in zip(costs, errors, strict=True)]
    packed = pack(values, hints, room, weigh=lambda item, taken: costs[item])
    assert packed.used == sum(costs[item] for item in packed.taken) <= room
    every = [
        items
        for size in range(len(costs) + 1)
        for items in combinations(range(len(costs)), size)
        if sum(costs[item] for item in items) <= room
    ]
    best = max(_value(values, items) for items in every)
    assert abs(_value(values, packed.taken) - best) < 1e-9


def _large(seed: int, count: int = 1_000) -> tuple[list[int], list[float], int]:
    chance = random.Random(seed)
    costs = [chance.randint(20, 400) for _ in range(count)]
    return costs, [chance.random() for _ in costs], sum(costs) // chance.randint(2, 6)


@given(st.integers(0, 10_000))
def test_large_cases_are_within_a_hair_of_the_upper_bound(seed: int) -> None:
    """Dantzig's bound fills the room with the densest items, the last one in part: nothing can be worth more."""
    costs, values, room = _large(seed, 200)
    packed = pack(values, costs, room, weigh=lambda item, taken: costs[item])
    bound, left = 0.0, room
    for item in sorted(range(len(costs)), key=lambda item: -values[item] / costs[item]):
        bound += values[item] * min(1, left / costs[item])
        left -= min(left, costs[item])
    assert packed.used <= room
    assert _value(values, packed.taken) >= 0.995 * bound


def test_one_that_does_not_fit_does_not_end_the_packing() -> None:
    costs = [90, 50, 30, 20]
    packed = pack([1.0, 0.9, 0.2, 0.1], costs, 100, weigh=lambda item, taken: costs[item])
    assert set(packed.taken) == {1, 2, 3}
    assert packed.known == {0: 90}


def test_one_large_item_can_be_worth_more_than_all_the_dense_ones() -> None:
    costs = [*[1] * 40, 100]
    values = [*[0.01] * 40, 1.0]
    packed = pack(values, costs, 100, weigh=lambda item, taken: costs[item])
    assert set(packed.taken) == {40}


def test_good_hints_save_the_weighing_of_what_stays_out() -> None:
    costs, values, _ = _large(1)
    weighed = []

    def weigh(item: int, taken: dict[int, int]) -> int:
        weighed.append(item)
        return costs[item]

    packed = pack(values, costs, sum(costs) // 4, weigh=weigh)
    assert len(weighed) == len(set(weighed)) <= len(packed.taken) + 60


def test_wrong_hints_are_found_out() -> None:
    """An item whose hint says one token is weighed first, and waits for its turn when it turns out to be large."""
    costs = [1_000, 10, 10, 10]
    packed = pack([1.0, 0.9, 0.9, 0.9], [1, 10, 10, 10], 1_010, weigh=lambda item, taken: costs[item])
    assert set(packed.taken) == {1, 2, 3}
    packed = pack([1.0, 0.9, 0.9, 0.9], [1, 10, 10, 10], 1_030, weigh=lambda item, taken: costs[item])
    assert set(packed.taken) == {0, 1, 2, 3}


def test_what_adds_nothing_is_told_apart_from_what_does_not_fit() -> None:
    def weigh(item: int, taken: dict[int, int]) -> int | None:
        return None if item == 1 and 0 in taken else 10

    packed = pack([1.0, 0.9, 0.1], [10, 10, 10], 20, weigh=weigh, entangled=frozenset({0, 1}))
    assert packed.taken == {0: 10, 2: 10}
    assert packed.nothing == [1]


def test_no_room_and_no_items() -> None:
    assert pack([], [], 100, weigh=lambda item, taken: 1).taken == {}
    assert pack([1.0], [1], 0, weigh=lambda item, taken: 1).taken == {}
    assert pack([1.0], [1], -5, weigh=lambda item, taken: 1).taken == {}
