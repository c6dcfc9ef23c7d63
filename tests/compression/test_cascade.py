"""Candidates, sentences, words: cheapest first, and no step runs that is not needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.compression import Cascade, SentenceCompressor
from ctxkit.documents import Candidate, Query, Span
from ctxkit.errors import ConfigError
from ctxkit.protocols import Stage
from ctxkit.testing import StageConformance
from ctxkit.testing.stages import make_candidates
from ctxkit.tokens import get_counter
from tests.strategies import texts

COUNTER = get_counter()
TEXTS = [f"Shelf {n} holds item {n * 7}. Nobody knows why. It rained on day {n}. The lamp is green." for n in range(40)]


def tokens(candidates: Sequence[Candidate]) -> int:
    return sum(COUNTER.count(one.text) for one in candidates)


@dataclass
class Halves:
    """Keeps the first half of each text, and remembers what it was asked for."""

    rooms: list[int | None] = field(default_factory=list)

    def __call__(self, query: Query, candidates: Sequence[Candidate]) -> list[Candidate]:
        self.rooms.append(query.room)
        return [one.keeping([Span(one.spans[0].start, one.spans[0].start + 10)]) for one in candidates]


class TestSentences(StageConformance):
    def make_stage(self) -> Stage:
        return Cascade(fine=SentenceCompressor())


def test_steps_run_in_order_each_with_its_own_target() -> None:
    given_ = make_candidates(TEXTS)
    fine, finest = Halves(), Halves()
    Cascade(fine=fine, finest=finest, target=20, coarse_to=8, fine_to=1.5)(Query("shelf 3"), given_)
    assert fine.rooms == [30]
    assert finest.rooms == [20]


def test_no_step_runs_that_is_not_needed() -> None:
    given_ = make_candidates(TEXTS[:2])
    fine, finest = Halves(), Halves()
    assert Cascade(fine=fine, finest=finest, target=10_000)(Query("x"), given_) == given_
    assert fine.rooms == finest.rooms == []
    assert Cascade(fine=fine)(Query("x"), given_) == given_, "no target at all"
    Cascade(fine=fine, finest=finest, target=tokens(given_) - 1)(Query("x"), given_)
    assert finest.rooms == [], "half was enough"


def test_the_coarse_step_drops_the_worst_candidates() -> None:
    given_ = make_candidates(TEXTS, scores=[1 - n / 100 for n in range(40)])
    result = Cascade(fine=lambda query, candidates: list(candidates), target=50, coarse_to=2)(Query("x"), given_)
    assert 0 < len(result) < 40
    assert [one.chunk for one in result] == [one.chunk for one in given_[: len(result)]]
    unscored = [Candidate(one.chunk) for one in given_]
    (best,) = Cascade(fine=lambda query, items: list(items), target=1, coarse_to=1, fine_to=1)(
        Query("item 273"), unscored
    )
    assert "item 273" in best.text


@given(st.lists(texts, max_size=5), st.integers(1, 80))
def test_the_target_holds_or_nothing_could_be_done(items: list[str], target: int) -> None:
    given_ = make_candidates(items)
    result = Cascade(fine=SentenceCompressor(), target=target)(Query("word sentence 句子"), given_)
    longest = [one for one in result if one.kept is None]
    assert tokens(result) <= target or len(longest) == len(result)
    assert bool(result) or not given_


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"fine": SentenceCompressor},
        {"fine": 3},
        {"fine": SentenceCompressor(), "target": 0},
        {"fine": SentenceCompressor(), "fine_to": 0.5},
        {"fine": SentenceCompressor(), "coarse_to": 1.0},
        {"fine": SentenceCompressor(), "overhead": -1},
        {"fine": SentenceCompressor(), "counter": "x"},
    ],
)
def test_wrong_parameters(parameters: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Cascade(**parameters)
