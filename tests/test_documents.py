"""The nouns of the documents' side, and the span algebra against sets of characters."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.documents import (
    GAP,
    Candidate,
    Chunk,
    Document,
    Query,
    Source,
    Span,
    content_hash,
    document_id,
    intersect_spans,
    merge_spans,
    subtract_spans,
    total_length,
)
from ctxkit.errors import ConfigError
from tests.strategies import texts

offsets = st.integers(0, 60)
spans = st.builds(lambda a, b: Span(min(a, b), max(a, b)), offsets, offsets)
span_lists = st.lists(spans, max_size=12)


def characters(some: list[Span] | tuple[Span, ...]) -> set[int]:
    """The model that the algebra is compared with: the set of positions."""
    return {position for span in some for position in range(span.start, span.end)}


def runs(positions: set[int]) -> tuple[Span, ...]:
    """The maximal runs of a set of positions: the only normal form."""
    starts = sorted(position for position in positions if position - 1 not in positions)
    ends = sorted(position + 1 for position in positions if position + 1 not in positions)
    return tuple(map(Span, starts, ends))


class TestSpanAlgebra:
    @given(span_lists)
    def test_merge_is_the_union_in_normal_form(self, some: list[Span]) -> None:
        assert merge_spans(some) == runs(characters(some))

    @given(span_lists)
    def test_merge_is_idempotent_and_ignores_order(self, some: list[Span]) -> None:
        merged = merge_spans(some)
        assert merge_spans(merged) == merged
        assert merge_spans(reversed(some)) == merged
        assert merge_spans([*some, *some]) == merged

    @given(span_lists, st.integers(0, 8))
    def test_merge_with_a_gap_fills_holes_up_to_it(self, some: list[Span], gap: int) -> None:
        positions = characters(some)
        for before, after in zip(merge_spans(some), merge_spans(some)[1:], strict=False):
            if after.start - before.end <= gap:
                positions |= set(range(before.end, after.start))
        assert merge_spans(some, gap=gap) == runs(positions)

    @given(span_lists, span_lists)
    def test_intersect(self, left: list[Span], right: list[Span]) -> None:
        assert intersect_spans(left, right) == runs(characters(left) & characters(right))

    @given(span_lists, span_lists)
    def test_intersect_commutes(self, left: list[Span], right: list[Span]) -> None:
        assert intersect_spans(left, right) == intersect_spans(right, left)

    @given(span_lists, span_lists)
    def test_subtract(self, left: list[Span], right: list[Span]) -> None:
        assert subtract_spans(left, right) == runs(characters(left) - characters(right))

    @given(span_lists, span_lists)
    def test_what_is_in_both_and_what_is_left_make_the_whole(self, left: list[Span], right: list[Span]) -> None:
        both, rest = intersect_spans(left, right), subtract_spans(left, right)
        assert merge_spans([*both, *rest]) == merge_spans(left)
        assert intersect_spans(both, rest) == ()

    @given(span_lists)
    def test_total_length_counts_each_character_once(self, some: list[Span]) -> None:
        assert total_length(some) == len(characters(some))

    @given(span_lists)
    def test_with_nothing(self, some: list[Span]) -> None:
        assert intersect_spans(some, []) == ()
        assert subtract_spans(some, []) == merge_spans(some)
        assert subtract_spans([], some) == ()
        assert subtract_spans(some, some) == ()
        assert intersect_spans(some, some) == merge_spans(some)

    def test_generators_are_taken(self) -> None:
        assert merge_spans(Span(i, i + 1) for i in range(3)) == (Span(0, 3),)
        assert total_length(Span(i, i + 2) for i in range(3)) == 4

    def test_an_inverted_span_holds_nothing(self) -> None:
        assert merge_spans([Span(5, 2), Span(0, 1)]) == (Span(0, 1),)


class TestSpan:
    @given(spans, spans)
    def test_overlaps_is_sharing_a_character(self, a: Span, b: Span) -> None:
        if a.length and b.length:
            assert a.overlaps(b) == bool(characters([a]) & characters([b]))
            assert a.overlaps(b) == b.overlaps(a)

    @given(spans, spans)
    def test_contains(self, a: Span, b: Span) -> None:
        if b.length:
            assert a.contains(b) == (characters([b]) <= characters([a]))

    @given(texts, st.data())
    def test_slice_and_shift(self, text: str, data: st.DataObject) -> None:
        start = data.draw(st.integers(0, len(text)))
        span = Span(start, data.draw(st.integers(start, len(text))))
        assert span.slice(text) == text[span.start : span.end]
        assert len(span.slice(text)) == span.length
        offset = data.draw(st.integers(0, start))
        assert span.slice(text[offset:], offset=offset) == span.slice(text)
        assert span.shift(7).shift(-7) == span
        assert span.shift(7).slice("." * 7 + text) == span.slice(text)

    def test_touching_is_not_overlapping(self) -> None:
        assert not Span(0, 3).overlaps(Span(3, 5))


class TestDocument:
    def test_the_id_derives_from_the_source_and_survives_new_text(self) -> None:
        old = Document.from_text("old", source="notes.md")
        new = Document.from_text("new", source="notes.md")
        assert old.id == new.id == document_id("notes.md")
        assert old.content_hash != new.content_hash
        assert Document.from_text("old").id != Document.from_text("new").id

    @given(texts)
    def test_any_text_has_an_id_and_a_hash(self, text: str) -> None:
        document = Document.from_text(text)
        assert len(document.id) == 32
        assert document.content_hash == Document.from_text(text).content_hash
        assert document.text == text

    @given(texts, texts)
    def test_different_texts_have_different_hashes(self, a: str, b: str) -> None:
        same = Document(id="d", text=a).content_hash == Document(id="d", text=b).content_hash
        assert same == (a == b)

    @pytest.mark.parametrize(
        "changed",
        [
            {"title": "T"},
            {"source": "s"},
            {"metadata": {"k": 1}},
            {"created_at": datetime(2025, 1, 1, tzinfo=UTC)},
        ],
    )
    def test_everything_an_ingest_stores_is_hashed(self, changed: dict[str, object]) -> None:
        assert Document(id="d", text="t").content_hash != Document(id="d", text="t", **changed).content_hash  # type: ignore[arg-type]

    def test_the_order_of_metadata_does_not_matter(self) -> None:
        assert (
            Document(id="d", text="", metadata={"a": 1, "b": [2]}).content_hash
            == Document(id="d", text="", metadata={"b": [2], "a": 1}).content_hash
        )

    def test_a_time_without_a_zone_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="no time zone"):
            Document(id="d", text="", created_at=datetime(2025, 1, 1))
        with pytest.raises(ConfigError, match="no time zone"):
            Query("q", now=datetime(2025, 1, 1))

    def test_frozen_and_slotted(self) -> None:
        document = Document(id="d", text="t")
        with pytest.raises(FrozenInstanceError):
            document.text = "other"  # type: ignore[misc]
        assert not hasattr(document, "__dict__")


def test_content_hash_does_not_confuse_neighbours() -> None:
    assert content_hash(["a", "bc"]) != content_hash(["ab", "c"])
    assert content_hash({"a": 1}) != content_hash({"a": "1"})
    assert content_hash(["\u00e9"]) != content_hash(["e\u0301"])


class TestChunk:
    @given(texts, st.data())
    def test_of_cuts_the_document(self, text: str, data: st.DataObject) -> None:
        document = Document.from_text(text, source="s")
        start = data.draw(st.integers(0, len(text)))
        span = Span(start, data.draw(st.integers(start, len(text))))
        chunk = Chunk.of(document, span, 3, heading_path=("A", "B"))
        assert chunk.text == text[span.start : span.end]
        assert (chunk.document_id, chunk.span, chunk.token_count) == (document.id, span, 3)
        assert chunk.heading_path == ("A", "B")

    def test_equal_texts_at_two_places_have_two_ids(self) -> None:
        document = Document.from_text("aa")
        assert Chunk.of(document, Span(0, 1), 1).id != Chunk.of(document, Span(1, 2), 1).id

    @pytest.mark.parametrize("span", [Span(0, 2), Span(0, 4), Span(3, 3), Span(5, 2)])
    def test_a_span_of_another_length_is_refused(self, span: Span) -> None:
        with pytest.raises(ConfigError, match="has a span of") as caught:
            Chunk(id="c", document_id="d", span=span, text="abc", token_count=1)
        assert caught.value.subject == "c"
        assert caught.value.remedy

    def test_a_span_beyond_the_document_is_refused(self) -> None:
        with pytest.raises(ConfigError):
            Chunk.of(Document.from_text("abc"), Span(1, 9), 1)


def chunk_of(text: str, start: int = 100) -> Chunk:
    return Chunk("c", "d", Span(start, start + len(text)), text, 1, metadata={"source": "s.md"})


class TestCandidate:
    def test_whole_by_default(self) -> None:
        candidate = Candidate(chunk_of("hello"))
        assert candidate.text == "hello"
        assert candidate.spans == (Span(100, 105),)
        assert candidate.sources == (Source("d", "s.md", Span(100, 105)),)
        assert candidate.score == 0.0

    def test_gaps_are_marked_at_the_start_between_and_at_the_end(self) -> None:
        candidate = Candidate(chunk_of("abcdefgh"))
        assert candidate.keeping([Span(101, 103), Span(105, 107)]).text == "[…] bc\n[…] fg\n[…]"
        assert candidate.keeping([Span(100, 102)]).text == "ab\n[…]"
        assert candidate.keeping([Span(106, 108)]).text == "[…] gh"
        assert candidate.keeping([Span(0, 1000)]).text == "abcdefgh"

    def test_pruned_words_stand_side_by_side_or_with_a_space(self) -> None:
        candidate = Candidate(chunk_of("ab cd ef gh"))
        words = [Span(102, 105), Span(108, 111)]
        assert candidate.keeping(words, gap="").text == " cd gh"
        assert candidate.keeping(words, gap=" ").text == " cd  gh"
        assert candidate.keeping(words, gap="").keeping(words).text == "[…]  cd\n[…]  gh", "the mark is the default"
        with pytest.raises(ConfigError, match="gap"):
            candidate.keeping(words, gap="invented")

    @given(st.text("abc\n ", min_size=1, max_size=40), st.lists(st.tuples(offsets, offsets), max_size=6), offsets)
    def test_the_text_is_the_kept_pieces_and_gaps(self, text: str, pairs: list[tuple[int, int]], start: int) -> None:
        chunk = chunk_of(text, start)
        wanted = [Span(start + min(pair), start + max(pair)) for pair in pairs]
        candidate = Candidate(chunk).keeping(wanted)
        assert characters(candidate.spans) == characters(wanted) & characters([chunk.span])
        pieces = [span.slice(text, offset=start) for span in candidate.spans]
        body = GAP.join(pieces)
        if pieces and candidate.spans[0].start > chunk.span.start:
            body = GAP.lstrip() + body
        if pieces and candidate.spans[-1].end < chunk.span.end:
            body += GAP.rstrip()
        assert candidate.text == body
        assert tuple(source.span for source in candidate.sources) == candidate.spans

    @pytest.mark.parametrize(
        "kept",
        [
            (Span(102, 104), Span(100, 101)),
            (Span(100, 103), Span(102, 104)),
            (Span(100, 102), Span(102, 104)),
            (Span(100, 100),),
            (Span(99, 102),),
            (Span(104, 106),),
        ],
        ids=["unsorted", "overlapping", "touching", "empty", "before", "after"],
    )
    def test_kept_spans_must_be_in_normal_form_and_inside(self, kept: tuple[Span, ...]) -> None:
        with pytest.raises(ConfigError, match="kept spans"):
            Candidate(chunk_of("hello"), kept=kept)

    def test_scores_are_added_to_a_copy(self) -> None:
        first = Candidate(chunk_of("x"), {"dense": 0.5})
        second = first.scored(final=0.7, dense=0.6)
        assert first.scores == {"dense": 0.5}
        assert second.scores == {"dense": 0.6, "final": 0.7}
        assert second.score == 0.7
