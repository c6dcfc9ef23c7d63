"""Exact and near copies: the best-scored stays, with the places of the others; facts that differ are no copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.compression import Deduplicate
from ctxkit.documents import Query
from ctxkit.errors import ConfigError
from ctxkit.testing.stages import make_candidates
from tests.strategies import texts
from tests.timing import doubling

QUERY = Query("anything")
LONG = (
    "The signing key of the vault is rotated on the first day of every month by the officer on duty, who writes the "
    "date into the book that lies beside the door and tells the others about it before noon of the same day."
)


def test_the_best_copy_stays_with_the_places_and_the_best_scores_of_the_others() -> None:
    first, second, third = make_candidates([LONG, "Bananas.", LONG.upper() + " "], scores=[0.4, 0.5, 0.9])
    result = Deduplicate()(QUERY, [first.scored(dense=0.8), second, third.scored(dense=0.1)])
    assert [one.chunk for one in result] == [second.chunk, third.chunk]
    assert result[1].copies == first.sources
    assert result[1].scores == {"final": 0.9, "dense": 0.8}
    assert result[0].copies == ()


def test_near_copies() -> None:
    near = LONG.replace("before noon", "before lunch")
    given_ = make_candidates([LONG, near])
    assert len(Deduplicate(threshold=0.8)(QUERY, given_)) == 1
    assert len(Deduplicate(threshold=1.0)(QUERY, given_)) == 2


@pytest.mark.parametrize(
    ("old", "new"),
    [("the first day", "the 3 day"), ("is rotated", "is not rotated"), ("every month", "every 30 month")],
)
def test_what_differs_in_a_number_or_a_negation_is_no_copy(old: str, new: str) -> None:
    assert len(Deduplicate(threshold=0.5)(QUERY, make_candidates([LONG, LONG.replace(old, new)]))) == 2


def test_chinese_near_copies() -> None:
    text = "签名密钥由值班人员在每个月的第一天更换一次，并把日期写进门边的本子里，然后在中午以前告诉其他的人。"
    assert len(Deduplicate(threshold=0.7)(QUERY, make_candidates([text, text.replace("中午", "晚上")]))) == 1


def test_what_the_history_has_said_goes() -> None:
    given_ = make_candidates([LONG, "Bananas grow in warm places."])
    assert [one.chunk for one in Deduplicate(history=[LONG])(QUERY, given_)] == [given_[1].chunk]
    stage = Deduplicate(history=lambda query: [LONG] if query.session == "alice" else [])
    assert len(stage(Query("x", session="alice"), given_)) == 1
    assert len(stage(Query("x", session="bob"), given_)) == 2


@given(st.lists(texts, max_size=6), st.randoms(use_true_random=False))
def test_the_choice_does_not_depend_on_the_order_and_nothing_is_left_to_drop(items: list[str], random: Any) -> None:
    given_ = make_candidates(items + items[:2], scores=[0.5] * (len(items) + len(items[:2])))
    result = Deduplicate()(QUERY, given_)
    shuffled = list(given_)
    random.shuffle(shuffled)
    again = Deduplicate()(QUERY, shuffled)
    assert {one.chunk.id: one for one in again} == {one.chunk.id: one for one in result}
    assert Deduplicate()(QUERY, result) == result
    places = {source for one in result for source in (*one.sources, *one.copies)}
    assert places == {source for one in given_ for source in one.sources}


def test_time_grows_with_the_input() -> None:
    def removing(size: int) -> Callable[[], object]:
        same = make_candidates([f"{LONG} {'abcdefgh'[number % 8]}" for number in range(size)])
        return lambda: Deduplicate(threshold=0.999)(QUERY, same)

    doubling(removing, 200)


@pytest.mark.parametrize(
    "parameters",
    [
        {"threshold": 0.0},
        {"threshold": 1.1},
        {"threshold": float("nan")},
        {"threshold": "x"},
        {"history": 3},
        {"history": [1]},
    ],
)
def test_wrong_parameters(parameters: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Deduplicate(**parameters)
