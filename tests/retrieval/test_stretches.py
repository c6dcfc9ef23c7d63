"""Stretches: a chunk is worth what stands around it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.documents import Candidate, Chunk, Document, Query, Span
from ctxkit.errors import ConfigError
from ctxkit.protocols import Stage
from ctxkit.retrieval import Stretches

SIZE = 40
QUERY = Query("What did they say about the budget?")


def line(scores: list[float], *, name: str = "a", left_out: frozenset[int] = frozenset()) -> list[Candidate]:
    """A document of chunks of ten tokens and forty characters each."""
    document = Document.from_text("x" * SIZE * len(scores), source=name)
    return [
        Candidate(Chunk.of(document, Span(SIZE * at, SIZE * (at + 1)), 10), {"final": score, "dense": score})
        for at, score in enumerate(scores)
        if at not in left_out
    ]


def places(candidates: list[Candidate]) -> list[int]:
    return [candidate.chunk.span.start // SIZE for candidate in candidates]


def test_it_is_a_stage() -> None:
    assert isinstance(Stretches(), Stage)


def test_a_good_stretch_beats_a_lone_better_chunk() -> None:
    found = Stretches(reach=30)(QUERY, line([0.0, 1.0, 0.0, 0.0, 0.0, 0.7, 0.6, 0.7, 0.0, 0.0, 0.0]))
    assert places(found)[:3] == [6, 5, 7]
    assert found[0].scores["dense"] == 0.6


def test_text_that_was_not_found_counts_as_nothing() -> None:
    scores = [0.5, 0.0, 0.0, 0.5, 0.5]
    whole = Stretches(reach=25)(QUERY, line(scores))
    gaps = Stretches(reach=25)(QUERY, line(scores, left_out=frozenset({1, 2})))
    value = {place: candidate.score for place, candidate in zip(places(whole), whole, strict=True)}
    for place, candidate in zip(places(gaps), gaps, strict=True):
        assert candidate.score == pytest.approx(value[place], abs=0.1)
    assert places(gaps) == [3, 4, 0]


def test_documents_do_not_touch() -> None:
    one, other = line([0.9, 0.9], name="a"), line([0.1, 0.1], name="b")
    found = Stretches()(QUERY, [*one, *other])
    assert [candidate.score for candidate in found] == pytest.approx([0.9, 0.9, 0.1, 0.1])


def test_the_ends_of_a_document_are_worth_less_than_its_middle_and_a_lone_chunk_what_it_was() -> None:
    scores = [
        each.score for each in sorted(Stretches(reach=30)(QUERY, line([0.8] * 9)), key=lambda each: each.chunk.span)
    ]
    assert scores[4] == pytest.approx(0.8)
    assert scores[:5] == sorted(scores[:5])
    assert 0.4 < scores[0] < 0.6
    assert scores[4:] == pytest.approx(scores[4::-1])
    assert [each.score for each in Stretches(reach=30)(QUERY, line([0.8]))] == pytest.approx([0.8])


@given(st.lists(st.floats(0.0, 1.0), max_size=20), st.integers(0, 100))
def test_candidates_stay_and_no_score_is_above_the_greatest(scores: list[float], reach: int) -> None:
    candidates = line(scores)
    found = Stretches(reach=reach)(QUERY, candidates)
    assert {candidate.chunk.id for candidate in found} == {candidate.chunk.id for candidate in candidates}
    assert all(0.0 <= candidate.score <= max(scores) + 1e-8 for candidate in found)
    assert not reach or [each.score for each in found] == sorted((each.score for each in found), reverse=True)
    assert Stretches(reach=reach)(QUERY, candidates[::-1]) == found or not reach


@pytest.mark.parametrize("reach", [-1, 1.5, True, 10**400], ids=["negative", "float", "bool", "huge"])
def test_a_wrong_reach_is_refused(reach: int) -> None:
    with pytest.raises(ConfigError):
        Stretches(reach=reach)
