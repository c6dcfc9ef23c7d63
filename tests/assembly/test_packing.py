"""Packing: the best first, what does not fit passed over; checked against the same in its plainest form."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from ctxkit.assembly.packing import pack

cases = st.integers(1, 30).flatmap(
    lambda count: st.tuples(
        st.lists(st.integers(1, 60), min_size=count, max_size=count),
        st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]), min_size=count, max_size=count),
        st.lists(st.sampled_from([0.25, 0.5, 1.0, 1.5, 4.0]), min_size=count, max_size=count),
    )
)


def _plain(values: list[float], costs: list[int], room: int) -> set[int]:
    taken: set[int] = set()
    for item in sorted(range(len(values)), key=lambda item: -values[item]):
        if costs[item] <= room:
            taken.add(item)
            room -= costs[item]
    return taken


@given(cases, st.integers(0, 400))
def test_the_best_first_and_then_what_fits(case: tuple[list[int], list[float], list[float]], room: int) -> None:
    costs, values, _ = case
    packed = pack(values, costs, room, weigh=lambda item, taken: costs[item])
    assert set(packed.taken) == _plain(values, costs, room)
    assert packed.used == sum(costs[item] for item in packed.taken) <= room


@given(cases, st.integers(0, 400))
def test_wrong_hints_never_cost_more_than_the_room_nor_one_of_the_best(
    case: tuple[list[int], list[float], list[float]], room: int
) -> None:
    costs, values, errors = case
    hints = [max(1, round(cost * error)) for cost, error in zip(costs, errors, strict=True)]
    packed = pack(values, hints, room, weigh=lambda item, taken: costs[item])
    assert packed.used == sum(costs[item] for item in packed.taken) <= room
    best = sorted(range(len(values)), key=lambda item: -values[item])[:8]
    assert set(packed.taken) & set(best) == _plain(values, costs, room) & set(best)
    assert not set(packed.taken) & set(packed.known)


def test_one_that_does_not_fit_does_not_end_the_packing() -> None:
    costs = [110, 50, 30, 20]
    packed = pack([1.0, 0.9, 0.2, 0.1], costs, 100, weigh=lambda item, taken: costs[item])
    assert list(packed.taken) == [1, 2, 3]
    assert packed.known == {0: 110}


def test_one_that_is_better_is_taken_before_many_that_are_shorter() -> None:
    costs = [*[1] * 40, 100]
    values = [*[0.92] * 40, 0.93]
    packed = pack(values, costs, 100, weigh=lambda item, taken: costs[item])
    assert set(packed.taken) == {40}


def test_good_hints_save_the_weighing_of_what_stays_out() -> None:
    chance = random.Random(1)
    costs = [chance.randint(20, 400) for _ in range(1_000)]
    values = [chance.random() for _ in costs]
    weighed = []

    def weigh(item: int, taken: dict[int, int]) -> int:
        weighed.append(item)
        return costs[item]

    packed = pack(values, costs, sum(costs) // 4, weigh=weigh)
    assert len(weighed) == len(set(weighed)) <= len(packed.taken) + 8


def test_what_adds_nothing_is_told_apart_from_what_does_not_fit() -> None:
    def weigh(item: int, taken: dict[int, int]) -> int | None:
        return None if item == 1 and 0 in taken else 10

    packed = pack([1.0, 0.9, 0.1], [10, 10, 10], 20, weigh=weigh, entangled=frozenset({0, 1}))
    assert packed.taken == {0: 10, 2: 10}
    assert packed.nothing == [1]


def test_what_others_hold_a_part_of_is_tried_again() -> None:
    """Item 0 does not fit; what item 1 leaves of it does. Item 2 is then all there."""

    def weigh(item: int, taken: dict[int, int]) -> int | None:
        return {0: 10 if 1 in taken else 120, 1: 80, 2: None if 0 in taken else 30}[item]

    packed = pack([1.0, 0.9, 0.8], [120, 80, 30], 100, weigh=weigh, entangled=frozenset({0, 1, 2}))
    assert packed.taken == {1: 80, 0: 10}
    assert packed.nothing == [2]
    assert packed.known == {}


def test_no_room_and_no_items() -> None:
    assert pack([], [], 100, weigh=lambda item, taken: 1).taken == {}
    assert pack([1.0], [1], 0, weigh=lambda item, taken: 1).taken == {}
    assert pack([1.0], [1], -5, weigh=lambda item, taken: 1).taken == {}
