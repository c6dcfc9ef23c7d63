"""Law 3, every token has a source, through compression; and law 6: the same in gives the same out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.compression import Cascade, Deduplicate, SentenceCompressor
from ctxkit.compression.guards import protected_spans
from ctxkit.documents import GAP, Candidate, Query, total_length
from ctxkit.evaluation.benchmarks._compression_sets import SETS, load
from ctxkit.testing import HashEmbedder
from ctxkit.testing.stages import make_candidates
from ctxkit.text import is_grapheme_boundary, sentence_spans
from ctxkit.tokens import get_counter
from tests.strategies import texts

COUNTER = get_counter()


def tokens(candidates: Sequence[Candidate]) -> int:
    return sum(COUNTER.count(candidate.text) for candidate in candidates)


questions = st.one_of(texts, st.sampled_from(["signing key", "密钥", "word chunk", "A sentence", ""]))


@given(
    st.lists(st.tuples(texts, st.floats(0, 1)), max_size=6),
    questions,
    st.integers(1, 150),
    st.booleans(),
    st.booleans(),
)
def test_kept_spans_are_whole_words_of_the_chunk_within_the_target(
    items: list[tuple[str, float]], question: str, target: int, drop: bool, by_meaning: bool
) -> None:
    given_ = make_candidates([text for text, _ in items], scores=[score for _, score in items])
    stage = SentenceCompressor(target=target, drop=drop, embedder=HashEmbedder(16) if by_meaning else None)
    result = stage(Query(question), given_)
    assert result == stage(Query(question), given_), "not the same twice"
    by_id = {candidate.chunk.id: candidate for candidate in given_}
    order = [candidate.chunk.id for candidate in given_]
    assert [order.index(one.chunk.id) for one in result] == sorted(order.index(one.chunk.id) for one in result)
    if result != given_:
        assert tokens(result) <= target
    elif given_:
        least = min((COUNTER.count(text[span.start : span.end]) for text, _ in items for span in sentence_spans(text)),
                    default=0)  # fmt: skip
        assert tokens(result) <= target or least + 6 > target or not any(text for text, _ in items)
    for one in result:
        before = by_id[one.chunk.id]
        assert one.chunk == before.chunk
        assert one.scores == before.scores
        if before.chunk.text:
            assert total_length(one.spans) > 0
        _check_alignment(one)


def _check_alignment(candidate: Candidate) -> None:
    """No kept span begins or ends inside a grapheme, nor inside a word of up to 40 characters."""
    chunk = candidate.chunk
    words = [hit.span() for hit in re.finditer(r"[A-Za-z0-9_]{2,40}", chunk.text)]
    for span in candidate.spans:
        for place in (span.start - chunk.span.start, span.end - chunk.span.start):
            assert is_grapheme_boundary(chunk.text, place)
            whole = not any(start < place < end for start, end in words)
            assert whole or re.search(r"\S{41}", chunk.text), chunk.text[max(0, place - 20) : place + 20]


def _check_every_character(candidate: Candidate) -> None:
    """The text is the kept spans of the document, in order, with a mark at each gap and nothing else."""
    chunk = candidate.chunk
    pieces = [span.slice(chunk.text, offset=chunk.span.start) for span in candidate.spans]
    position = 0
    for piece in pieces:
        at = candidate.text.find(piece, position)
        assert at >= 0
        assert candidate.text[position:at] in ("", GAP, GAP.lstrip())
        position = at + len(piece)
    assert candidate.text[position:] in ("", GAP.rstrip())


@given(st.lists(texts, max_size=5), questions, st.integers(1, 120), st.randoms(use_true_random=False))
def test_every_character_is_the_documents_whatever_order_they_came_in(
    items: list[str], question: str, target: int, random: Random
) -> None:
    given_ = make_candidates(items)
    shuffled = list(given_)
    random.shuffle(shuffled)
    for stage in (SentenceCompressor(target=target), Cascade(fine=SentenceCompressor(), target=target), Deduplicate()):
        result = stage(Query(question), given_)
        for one in result:
            _check_every_character(one)
        again = {one.chunk.id: one for one in stage(Query(question), shuffled)}
        assert again == {one.chunk.id: one for one in result}


@pytest.mark.data
@pytest.mark.parametrize("name", sorted(SETS))
def test_on_real_texts_every_character_has_a_source_and_no_guarded_stretch_is_torn(name: str, data: Path) -> None:
    for question in load(data, name, limit=1):
        target = question.tokens // 5
        result = SentenceCompressor(target=target)(Query(question.text), question.candidates)
        assert 0.9 * target <= tokens(result) <= target
        for one in result:
            _check_every_character(one)
            offset = one.chunk.span.start
            for guarded in protected_spans(one.chunk.text, question.text):
                span = guarded.shift(offset)
                torn = [kept for kept in one.spans if kept.overlaps(span) and not kept.contains(span)]
                ends = {place for sentence in sentence_spans(one.chunk.text) for place in sentence}
                assert not torn or any(guarded.start < end < guarded.end for end in ends), guarded
