"""Joining neighbours: law 1 for joined chunks, and no text twice."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.documents import (
    Candidate,
    Chunk,
    Document,
    Entity,
    Span,
    intersect_spans,
    merge_spans,
    subtract_spans,
    total_length,
)
from ctxkit.errors import ConfigError
from ctxkit.retrieval import drop_copies, merge_neighbours
from ctxkit.tokens import get_counter
from tests.strategies import texts

_places = st.one_of(st.integers(0, 40), st.integers(0, 400))
_scores = st.integers(0, 5)
_cuts = st.lists(st.tuples(_places, _places, st.integers(1, 50), _scores, _scores), max_size=6)
_drawn = st.lists(st.tuples(texts.filter(bool), _cuts), min_size=1, max_size=3)


def _pool(drawn: list[tuple[str, list[tuple[int, int, int, int, int]]]]) -> tuple[dict[str, Document], list[Candidate]]:
    documents, found = {}, {}
    for number, (text, cuts) in enumerate(drawn):
        document = Document(id=f"d{number}", text=text)
        documents[document.id] = document
        for place, length, tokens, final, lexical in cuts:
            start = min(place, len(text) - 1)
            chunk = Chunk.of(document, Span(start, min(start + 1 + length, len(text))), tokens)
            found[chunk.id] = Candidate(chunk, {"final": final / 5, "lexical": lexical / 5})
    return documents, sorted(found.values(), key=lambda candidate: -candidate.score)


pools = _drawn.map(_pool)
"""Candidates cut anywhere out of one to three documents, copies and nests among them, best first."""


@given(pools, st.one_of(st.none(), st.integers(0, 80)))
def test_a_joined_chunk_is_still_a_piece_of_its_document(
    pool: tuple[dict[str, Document], list[Candidate]], limit: int | None
) -> None:
    documents, candidates = pool
    for candidate in merge_neighbours(candidates, max_tokens=limit):
        assert candidate.chunk.text == candidate.chunk.span.slice(documents[candidate.chunk.document_id].text)


@given(pools, st.one_of(st.none(), st.integers(0, 80)))
def test_every_character_once_and_none_more(
    pool: tuple[dict[str, Document], list[Candidate]], limit: int | None
) -> None:
    documents, candidates = pool
    joined = merge_neighbours(candidates, max_tokens=limit)
    for document in documents:
        before = [each.chunk.span for each in candidates if each.chunk.document_id == document]
        after = [each.chunk.span for each in joined if each.chunk.document_id == document]
        assert merge_spans(before) == merge_spans(after)
        assert sum(span.length for span in after) == sum(span.length for span in merge_spans(after))


@given(pools)
def test_without_a_limit_nothing_touches_and_joining_again_changes_nothing(
    pool: tuple[dict[str, Document], list[Candidate]],
) -> None:
    documents, candidates = pool
    joined = merge_neighbours(candidates)
    for document in documents:
        spans = sorted(each.chunk.span for each in joined if each.chunk.document_id == document)
        assert tuple(spans) == merge_spans(spans)
    assert merge_neighbours(joined) == joined


@given(pools, st.one_of(st.none(), st.integers(0, 80)), st.randoms())
def test_the_order_of_candidates_does_not_matter(
    pool: tuple[dict[str, Document], list[Candidate]], limit: int | None, random: object
) -> None:
    _, candidates = pool
    mixed = list(candidates)
    random.shuffle(mixed)
    assert merge_neighbours(mixed, max_tokens=limit) == merge_neighbours(candidates, max_tokens=limit)


@given(pools, st.one_of(st.none(), st.integers(0, 80)))
def test_the_best_score_of_every_signal_is_kept(
    pool: tuple[dict[str, Document], list[Candidate]], limit: int | None
) -> None:
    _, candidates = pool
    joined = merge_neighbours(candidates, max_tokens=limit)
    assert [each.score for each in joined] == sorted((each.score for each in joined), reverse=True)
    for whole in joined:
        parts = [
            each
            for each in candidates
            if each.chunk.document_id == whole.chunk.document_id and whole.chunk.span.contains(each.chunk.span)
        ]
        for signal in ("final", "lexical"):
            assert whole.scores[signal] == max(part.scores[signal] for part in parts)
        assert 1 <= whole.chunk.token_count <= sum(part.chunk.token_count for part in parts) + len(parts)


@given(pools, st.integers(0, 80))
def test_only_overlaps_go_over_the_limit(pool: tuple[dict[str, Document], list[Candidate]], limit: int) -> None:
    _, candidates = pool
    for whole in merge_neighbours(candidates, max_tokens=limit):
        if whole.chunk.token_count <= limit:
            continue
        inside = sorted(
            each.chunk.span
            for each in candidates
            if each.chunk.document_id == whole.chunk.document_id and whole.chunk.span.contains(each.chunk.span)
        )
        end = inside[0].end
        for span in inside[1:]:
            assert span.start < end
            end = max(end, span.end)


@given(pools, st.one_of(st.none(), st.integers(0, 80)))
def test_across_white_space_a_joined_chunk_is_still_a_piece_of_its_document(
    pool: tuple[dict[str, Document], list[Candidate]], limit: int | None
) -> None:
    documents, candidates = pool
    plain = merge_neighbours(candidates, max_tokens=limit)
    joined = merge_neighbours(candidates, max_tokens=limit, text_of=lambda id_: documents[id_].text)
    assert len(joined) <= len(plain)
    for candidate in joined:
        document = documents[candidate.chunk.document_id]
        assert candidate.chunk.text == candidate.chunk.span.slice(document.text)
        parts = [each.chunk.span for each in plain if each.chunk.document_id == document.id]
        added = subtract_spans([candidate.chunk.span], parts)
        assert all(span.slice(document.text).isspace() for span in added)
        assert total_length(intersect_spans([candidate.chunk.span], parts)) + total_length(added) == (
            candidate.chunk.span.length
        )


@given(pools)
def test_across_white_space_nothing_is_left_to_join(
    pool: tuple[dict[str, Document], list[Candidate]],
) -> None:
    documents, candidates = pool
    joined = merge_neighbours(candidates, text_of=lambda id_: documents[id_].text)
    for document in documents.values():
        spans = sorted(each.chunk.span for each in joined if each.chunk.document_id == document.id)
        for left, right in pairwise(spans):
            between = document.text[left.end : right.start]
            assert len(between) > 64 or (between and not between.isspace())


DOCUMENT = Document(id="d", text="Alpha beta gamma delta epsilon.")


def candidate(start: int, end: int, score: float, **scores: float) -> Candidate:
    return Candidate(Chunk.of(DOCUMENT, Span(start, end), 3), {"final": score, **scores})


def test_an_overlap_is_spliced() -> None:
    (whole,) = merge_neighbours([candidate(0, 16, 0.5), candidate(11, 22, 0.9)])
    assert whole.text == "Alpha beta gamma delta"
    assert whole.score == 0.9
    assert whole.chunk.id == "d:0-22"
    assert whole.chunk.token_count == 3 + 2


def test_a_counter_counts_the_joined_text() -> None:
    counter = get_counter()
    (whole,) = merge_neighbours([candidate(0, 16, 0.5), candidate(16, 31, 0.9)], counter=counter)
    assert whole.chunk.token_count == counter.count(DOCUMENT.text)


def test_touching_chunks_stay_apart_over_the_limit_and_gaps_always() -> None:
    assert len(merge_neighbours([candidate(0, 10, 0.5), candidate(10, 22, 0.9)], max_tokens=5)) == 2
    assert len(merge_neighbours([candidate(0, 10, 0.5), candidate(10, 22, 0.9)], max_tokens=6)) == 1
    assert len(merge_neighbours([candidate(0, 10, 0.5), candidate(11, 22, 0.9)])) == 2


def test_white_space_between_is_put_back() -> None:
    left, right = candidate(0, 10, 0.5), candidate(11, 22, 0.9)
    (whole,) = merge_neighbours([left, right], text_of=lambda _: DOCUMENT.text)
    assert whole.text == "Alpha beta gamma delta"


@pytest.mark.parametrize("text", ["", "Alpha beta-gamma delta epsilon.", "Alpha BETA gamma delta epsilon.", "short"])
def test_a_document_that_changed_meanwhile_is_not_believed(text: str) -> None:
    left, right = candidate(0, 10, 0.5), candidate(11, 22, 0.9)
    assert merge_neighbours([left, right], text_of=lambda _: text) == [right, left]


def test_a_wide_gap_is_no_neighbourhood() -> None:
    document = Document(id="w", text="a" + " " * 65 + "b")
    ends = [Candidate(Chunk.of(document, Span(0, 1), 1)), Candidate(Chunk.of(document, Span(66, 67), 1))]
    assert len(merge_neighbours(ends, text_of=lambda _: document.text)) == 2


def test_the_text_is_asked_for_only_where_it_is_needed() -> None:
    asked: list[str] = []
    merge_neighbours([candidate(0, 10, 0.5), candidate(10, 22, 0.9)], text_of=lambda id_: asked.append(id_) or "")
    assert asked == []


def test_what_nothing_joins_comes_back_itself() -> None:
    alone = candidate(0, 5, 0.5)
    assert merge_neighbours([alone])[0] is alone


def test_entities_headings_metadata_and_kept_spans_follow() -> None:
    entity, other = Entity("Alpha", "X", Span(0, 5)), Entity("gamma", "X", Span(11, 16))
    left = replace(candidate(0, 16, 0.5).chunk, entities=(entity, other), heading_path=("A", "B"), metadata={"n": 1})
    right = replace(candidate(11, 22, 0.9).chunk, entities=(other,), heading_path=("A", "C"), metadata={"n": 2})
    (whole,) = merge_neighbours(
        [Candidate(left, {"final": 0.5}, kept=(Span(0, 5),)), Candidate(right, {"final": 0.9, "dense": 0.1})]
    )
    assert whole.chunk.entities == (entity, other)
    assert whole.chunk.heading_path == ("A",)
    assert whole.chunk.metadata == {"n": 2}
    assert whole.kept == (Span(0, 5), Span(11, 22))
    assert whole.scores == {"final": 0.9, "dense": 0.1}


def test_copies_go_and_the_best_stays() -> None:
    copy = Candidate(Chunk.of(Document(id="e", text="Alpha\n beta"), Span(0, 11), 2), {"final": 0.3})
    kept = drop_copies([candidate(0, 10, 0.9), copy, candidate(11, 22, 0.2)])
    assert [each.chunk.document_id for each in kept] == ["d", "d"]
    assert [each.score for each in kept] == [0.9, 0.2]


def test_of_copies_in_one_document_the_first_stays_with_the_rank_of_the_best() -> None:
    document = Document(id="d", text="same. else. same.")
    spans = {Span(12, 17): 0.9, Span(6, 11): 0.85, Span(0, 5): 0.8}
    kept = drop_copies([Candidate(Chunk.of(document, span, 2), {"final": score}) for span, score in spans.items()])
    assert [(each.chunk.span.start, each.score) for each in kept] == [(0, 0.9), (6, 0.85)]


def test_a_wrong_limit_is_named() -> None:
    with pytest.raises(ConfigError, match="max_tokens"):
        merge_neighbours([], max_tokens=-1)
