"""Assembly takes candidates: each text once, and what fits of what is best."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ctxkit.documents import GAP, Document, Span
from ctxkit.prompts import Budget, Section
from tests.assembly.building import BOOK, NOTE, build, candidate, contexts


class TestOverlaps:
    def test_overlapping_chunks_become_one_block(self) -> None:
        prompt = build(candidates=[candidate(BOOK, 0, 300, 0.9), candidate(NOTE, 0, 99, 0.5),
                                   candidate(BOOK, 200, 500, 0.8)])  # fmt: skip
        assert contexts(prompt) == [("book", [Span(0, 500)]), ("note", [Span(0, 47)])]
        assert not prompt.dropped

    def test_neighbours_become_one_block_and_gaps_are_marked(self) -> None:
        parts = [candidate(BOOK, 0, 300, 0.9, [Span(10, 50), Span(100, 300)]), candidate(BOOK, 300, 400, 0.8)]
        prompt = build(candidates=parts)
        assert contexts(prompt) == [("book", [Span(10, 50), Span(100, 400)])]
        text = prompt.messages[-1]["content"]
        assert f"\n[…] {BOOK.text[10:50]}\n[…] {BOOK.text[100:400]}\n</document" in text

    @pytest.mark.parametrize("other", ["", " ", GAP])
    def test_the_gaps_of_pruned_words_cost_nothing_and_are_traced(self, other: str) -> None:
        one, two = [Span(10, 50), Span(100, 110)], [Span(300, 310), Span(320, 330)]
        first = replace(candidate(BOOK, 0, 300, 0.9, one), gap="")
        second = replace(candidate(BOOK, 300, 400, 0.8, two), gap=other)
        prompt = build(candidates=[first, second])
        (segment,) = [segment for segment in prompt.segments if segment.sources]
        assert segment.text == other.join(span.slice(BOOK.text) for span in [*one, *two])
        assert [text for _, text in segment.quotes] == [span.slice(BOOK.text) for span in [*one, *two]]
        assert [source.span for source in segment.locate(0, len(segment.text))] == [*one, *two]
        assert build(candidates=[replace(first, gap=GAP), second]).fingerprint != prompt.fingerprint

    def test_pruned_words_of_overlapping_chunks_do_not_meet(self) -> None:
        first = replace(candidate(BOOK, 0, 100, 0.9, [Span(10, 20)]), gap="")
        second = replace(candidate(BOOK, 5, 200, 0.8, [Span(15, 20), Span(25, 40)]), gap="")
        prompt = build(candidates=[first, second])
        (segment,) = [segment for segment in prompt.segments if segment.sources]
        assert segment.text == f"{BOOK.text[10:20]} {BOOK.text[25:40]}"

    def test_repeats_are_dropped_with_a_reason(self) -> None:
        prompt = build(
            candidates=[
                candidate(BOOK, 0, 300, 0.5),
                candidate(BOOK, 0, 300, 0.9),
                candidate(BOOK, 50, 200, 0.4),
                candidate(BOOK, 400, 500, 0.3, []),
            ]
        )
        assert contexts(prompt) == [("book", [Span(0, 300)])]
        assert [item.reason for item in prompt.dropped] == [
            "it repeats book.md:0-300",
            "compression left nothing of it",
            "its text is in the prompt already",
        ]
        assert [item.name for item in prompt.dropped] == ["book.md:0-300", "book.md:400-500", "book.md:50-200"]

    def test_two_versions_of_a_document_are_not_mixed(self) -> None:
        newer = Document("book", BOOK.text.upper(), source="book.md")
        prompt = build(candidates=[candidate(BOOK, 0, 300, 0.9), candidate(newer, 200, 500, 0.8)])
        texts = [segment.text for segment in prompt.segments if segment.sources]
        assert texts == [BOOK.text[:300], newer.text[200:500]]

    def test_many_overlapping_chunks_of_a_small_budget(self) -> None:
        found = [candidate(BOOK, at, at + 400, 1 - at / 10_000) for at in range(0, 6_000, 100)]
        prompt = build(candidates=found, budget=Budget(800))
        assert prompt.token_count <= 800
        spans = [span for _, document_spans in contexts(prompt) for span in document_spans]
        assert sum(span.length for span in spans) == len({at for span in spans for at in range(*span)})


class TestWhatIsTaken:
    def test_the_best_is_kept_however_long_it_is(self) -> None:
        """A long chunk that is clearly the best, and many short weak ones that are worth more per token."""
        weak = [candidate(BOOK, at, at + 60, 0.8) for at in range(5_000, 8_000, 100)]
        best = candidate(BOOK, 0, 1_200, 0.93)
        prompt = build(candidates=[*weak, best], budget=Budget(10_000, sections={"context": Section(max=400)}))
        spans = [span for _, document_spans in contexts(prompt) for span in document_spans]
        assert best.chunk.span in spans
        assert len(spans) > 1, "what is left is for the others"

    def test_they_are_taken_in_the_order_of_their_scores(self) -> None:
        found = [candidate(BOOK, at, at + 400, score) for at, score in ((0, 0.1), (1_000, 0.9), (2_000, 0.3))]
        prompt = build(candidates=found, budget=Budget(10_000, sections={"context": Section(max=300)}))
        assert contexts(prompt) == [("book", [Span(1_000, 1_400)]), ("book", [Span(2_000, 2_400)])]

    def test_the_reason_says_whether_it_fits_alone(self) -> None:
        found = [candidate(BOOK, 0, 4_000, 0.9), candidate(BOOK, 5_000, 5_900, 0.8), candidate(BOOK, 7_000, 7_900, 0.7)]
        prompt = build(candidates=found, budget=Budget(10_000, sections={"context": Section(max=300)}))
        assert contexts(prompt) == [("book", [Span(5_000, 5_900)])]
        long, beside = prompt.dropped
        assert long.reason == f"its {long.token_count:,} tokens do not fit the room of 300 tokens"
        assert (
            beside.reason == f"its {beside.token_count:,} tokens do not fit the room of 300 tokens beside better ones"
        )

    def test_nothing_is_better_where_nothing_was_taken(self) -> None:
        found = [candidate(BOOK, at, at + 4_000, 0.9) for at in (0, 5_000)]
        prompt = build(candidates=found, budget=Budget(10_000, sections={"context": Section(max=100)}))
        assert not contexts(prompt)
        assert all(item.reason.endswith("tokens do not fit the room of 100 tokens") for item in prompt.dropped)
        shown = prompt.explain()
        assert "book.md:0-4000: its " in shown and "book.md:5000-9000: its " in shown
