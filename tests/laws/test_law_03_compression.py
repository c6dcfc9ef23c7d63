"""Law 3, every token has a source, through compression; and law 6: the same in gives the same out."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from ctxkit.compression import SentenceCompressor
from ctxkit.documents import Candidate, Query, total_length
from ctxkit.testing import HashEmbedder
from ctxkit.testing.stages import make_candidates
from ctxkit.text import sentence_spans
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
def test_kept_spans_are_whole_sentences_of_the_chunk_within_the_target(
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
    """Each kept span begins where a sentence begins and ends where one ends, blanks aside."""
    chunk = candidate.chunk
    sentences = [span.shift(chunk.span.start) for span in sentence_spans(chunk.text)]
    starts = {span.start for span in sentences} or {chunk.span.start}
    ends = {span.end for span in sentences} or {chunk.span.end}
    for span in candidate.spans:
        assert span.start in starts
        rest = chunk.text[span.end - chunk.span.start :]
        blanks = len(rest) - len(rest.lstrip(" \t\u3000"))
        assert any(span.end <= end <= span.end + blanks for end in ends)
