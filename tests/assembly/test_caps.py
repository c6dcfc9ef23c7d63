"""The limits of sections hold for what a prompt holds, whatever compression left of its candidates."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.assembly.context import Pool
from ctxkit.documents import Candidate, Span
from ctxkit.messages import Message
from ctxkit.models import OpenAIChatCounter
from ctxkit.prompts import Budget, Prompt, Section
from tests.assembly.building import BOOK, COUNTER, build, candidate, contexts, dialogue
from tests.assembly.counters import counter_of


def compressed(count: int) -> list[Candidate]:
    """Chunks of which a compressor kept the middle: each has a gap mark before and behind its text."""
    return [
        candidate(BOOK, at, at + 240, 0.5, [Span(at + 100, at + 140)])
        for at in range(0, 300 * count, 300)
        if at + 240 <= len(BOOK.text)
    ]


def tokens(prompt: Prompt, section: str) -> int:
    return sum(segment.token_count for segment in prompt.segments if segment.section == section)


class TestGapMarks:
    @pytest.mark.parametrize("local", [False, True], ids=["openai", "local"])
    def test_the_cap_of_the_context_holds_for_chunks_compressed_in_the_middle(self, local: bool) -> None:
        budget = Budget(4_000, sections={"context": Section(max=600)})
        prompt = build(candidates=compressed(40), budget=budget, counter=counter_of(local))
        assert 500 < tokens(prompt, "context") <= 600
        assert "\n[…] " in prompt.messages[-1]["content"]

    def test_a_candidate_weighs_what_its_block_holds(self) -> None:
        kept = [
            None,
            [Span(100, 140)],
            [Span(0, 40), Span(200, 240)],
            [Span(0, 40)],
            [Span(200, 240)],
            [Span(5, 9), Span(20, 60), Span(100, 239)],
        ]
        for spans in kept:
            pool = Pool([candidate(BOOK, 0, 240, 0.5, spans)], COUNTER.count)
            (block,) = pool.blocks([0])
            assert pool.weigh(0, {}) == sum(map(COUNTER.count, (block.before, block.text, block.after)))


kept_spans = st.lists(st.tuples(st.integers(0, 239), st.integers(1, 80)), max_size=4).map(
    lambda found: [Span(start, min(240, start + length)) for start, length in found]
)


@given(
    st.lists(st.tuples(st.integers(0, 45), st.one_of(st.none(), kept_spans)), max_size=30),
    st.integers(0, 30),
    st.one_of(st.none(), st.integers(0, 900)),
    st.one_of(st.none(), st.floats(0, 1)),
    st.one_of(st.none(), st.integers(0, 900)),
    st.integers(-1, 1),
    st.booleans(),
)
def test_caps_hold(
    places: Sequence[tuple[int, list[Span] | None]],
    turns: int,
    context: int | None,
    share: float | None,
    history: int | None,
    priority: int,
    local: bool,
) -> None:
    found = [
        candidate(
            BOOK,
            at * 250,
            at * 250 + 240,
            0.1 + at / 100,
            None if spans is None else [span.shift(at * 250) for span in spans],
        )
        for at, spans in places
    ]
    sections = {
        "context": Section(max=context, share=share, priority=priority),
        "history": Section(max=history, share=None if share is None else 1 - share),
    }
    budget = Budget(2_500, sections=sections)
    prompt = build(candidates=found, history=dialogue(turns), budget=budget, counter=counter_of(local))
    (mandatory,) = (record.tokens_out for record in prompt.trace.records if record.stage == "mandatory")
    for name, section in sections.items():
        assert tokens(prompt, name) <= section.cap(2_500 - mandatory)
    assert prompt.token_count <= 2_500


class Joints(OpenAIChatCounter):
    """Counts a fence that holds the end of one document and the beginning of the next as more than its halves."""

    def count(self, text: str) -> int:
        joint = text.count("<document-") and text.count("</document-")
        return super().count(text) + (6 if joint else 0)


class Wordy(OpenAIChatCounter):
    """Counts a message as less than the texts in it, as a chat template that leaves calls away does."""

    def count_message(self, message: Message) -> int:
        return super().count_message(message) * 4 // 5


class TestProof:
    """Where the plan was too small for a section, the whole would still fit: its cap is proved by itself."""

    def test_context_leaves_until_its_cap_holds(self) -> None:
        found = compressed(40)
        prompt = build(
            candidates=found, counter=Joints("gpt-4o"), budget=Budget(4_000, sections={"context": Section(max=600)})
        )
        assert 300 < tokens(prompt, "context") <= 600
        sent = len(contexts(prompt))
        reasons = [item.reason for item in prompt.dropped]
        assert len(reasons) == len(found) - sent
        assert any(reason.startswith("the context was ") and reason.endswith("over its cap") for reason in reasons)

    def test_history_shrinks_until_its_cap_holds(self) -> None:
        history = dialogue(40)
        budget = Budget(4_000, sections={"history": Section(max=300)})
        prompt = build(history=history, counter=Wordy("gpt-4o"), budget=budget)
        assert 150 < tokens(prompt, "history") <= 300
        kept = {turn.id for turn in prompt.turns if turn.id}
        assert {item.item for item in prompt.dropped} == {message.id for message in history} - kept
