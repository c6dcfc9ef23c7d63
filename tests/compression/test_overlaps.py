"""What overlapping chunks of one document share is paid for once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.compression import SentenceCompressor
from ctxkit.compression.overlaps import claims_of
from ctxkit.documents import Candidate, Chunk, Document, Query, Span
from ctxkit.tokens import get_counter
from tests.strategies import texts
from tests.timing import doubling

COUNTER = get_counter()
TEXT = (
    "Reports are filed weekly. Mail goes out at noon. The office opens at nine each day. Lunch is served at noon. "
    "The signing key rotates every thirty days and is kept in the vault. The door code is never written down. "
    "Visitors sign the book in the hall. The lift is slow on Mondays.\n"
)
TABLE = "| name | port |\n|---|---|\n" + "".join(f"| host{n} | {5000 + n} |\n" for n in range(20))


def pieces(text: str, spans: Sequence[tuple[int, int]], scores: Sequence[float] = ()) -> list[Candidate]:
    document = Document("d", text)
    chunks = [Chunk.of(document, Span(*span), 1) for span in spans]
    return [
        Candidate(chunk, {"final": score}) for chunk, score in zip(chunks, scores or [0.5] * len(chunks), strict=True)
    ]


def sent(candidates: Sequence[Candidate]) -> list[Span]:
    return sorted(span for one in candidates for span in one.spans)


def disjoint(candidates: Sequence[Candidate]) -> bool:
    spans = sent(candidates)
    return all(left.end <= right.start for left, right in pairwise(spans))


def test_a_sentence_of_three_chunks_is_sent_once_by_the_best() -> None:
    ends = [(0, 210), (50, 250), (84, 270)]
    for scores in ([0.9, 0.1, 0.5], [0.1, 0.9, 0.5], [0.1, 0.5, 0.9]):
        given_ = pieces(TEXT, ends, scores)
        result = SentenceCompressor(target=24)(Query("how often does the signing key rotate?"), given_)
        assert disjoint(result)
        (holder,) = [one for one in result if "signing key rotates" in one.text]
        assert holder.score == 0.9
        assert "".join(one.text for one in result).count("signing key") == 1


def test_borders_that_differ_by_a_word() -> None:
    at = TEXT.index("The signing")
    given_ = pieces(TEXT, [(0, 200), (at, 250), (at + 4, 260)])
    for target in range(10, 60, 7):
        result = SentenceCompressor(target=target)(Query("signing key?"), given_)
        assert disjoint(result)
        assert "".join(one.text for one in result).count("signing key") == 1


def test_the_rows_of_two_chunks_of_a_table_have_one_header() -> None:
    half = TABLE.index("| host9 ")
    given_ = pieces(TABLE, [(0, half + 60), (0, len(TABLE))], [0.9, 0.1])
    result = SentenceCompressor(target=60)(Query("port of host3 and host17?"), given_)
    text = "".join(one.text for one in result)
    assert disjoint(result)
    assert text.count("| name |") == 1
    assert "host17 | 5017" in text
    assert "host3 | 5003" in text


def test_versions_of_a_document_share_nothing() -> None:
    old = pieces(TEXT, [(0, 200)])
    new = pieces(TEXT.replace("thirty", "ninety"), [(0, 200)])
    assert claims_of([*old, *new]) == [None, None]
    assert None not in claims_of(pieces(TEXT, [(0, 200), (190, 260)]))
    assert claims_of(pieces(TEXT, [(0, 200), (200, 260)])) == [None, None]


@given(
    st.one_of(texts, st.sampled_from([TEXT, TABLE, TEXT + TABLE, "# Keys\n" + TEXT * 2])),
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=6),
    st.integers(5, 120),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_no_character_is_paid_for_twice(
    text: str, places: list[tuple[float, float, float]], target: int, drop: bool, random: Random
) -> None:
    cuts = [sorted((int(first * len(text)), int(last * len(text)))) for first, last, _ in places]
    given_ = pieces(text, [(start, end) for start, end in cuts], [score for _, _, score in places])
    given_ = list({one.chunk.id: one for one in given_}.values())
    stage = SentenceCompressor(target=target, drop=drop)
    result = stage(Query("signing key or host3?"), given_)
    assert result == stage(Query("signing key or host3?"), given_)
    shuffled = random.sample(given_, len(given_))
    assert sorted(result, key=lambda one: one.chunk.id) == sorted(
        stage(Query("signing key or host3?"), shuffled), key=lambda one: one.chunk.id
    )
    if result != given_:
        assert disjoint(result)
        assert sum(COUNTER.count(one.text) for one in result) <= target


def test_time_grows_with_the_chunks_that_overlap() -> None:
    def compressing(size: int) -> Callable[[], object]:
        text = TEXT * size
        given_ = pieces(text, [(start, start + 300) for start in range(0, len(text) - 300, 100)])
        stage = SentenceCompressor(target=20 * size)
        return lambda: stage(Query("signing key?"), given_)

    doubling(compressing, 20)


def test_time_grows_with_the_versions_of_a_document() -> None:
    def finding(size: int) -> Callable[[], object]:
        given_ = [one for n in range(size) for one in pieces(f"Version {n} says so.", [(0, 12)])]
        return lambda: claims_of(given_)

    doubling(finding, 1_000)


@pytest.mark.parametrize("copies", [2, 30])
def test_the_same_chunk_many_times(copies: int) -> None:
    given_ = pieces(TEXT, [(0, 250)] * copies)
    result = SentenceCompressor(target=45)(Query("signing key?"), given_)
    assert disjoint(result)
