"""Budgets and prompts: validation, caps, and what explain() shows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.documents import Source, Span
from ctxkit.errors import ConfigError
from ctxkit.messages import Message, Part
from ctxkit.prompts import Budget, CompletionOptions, Prompt, Section, Segment
from ctxkit.trace import Trace


class TestBudget:
    def test_available(self) -> None:
        assert Budget(8_000, reserve_output=512).available == 7_488
        assert Budget(10).available == 10

    @pytest.mark.parametrize(("window", "reserve"), [(0, 0), (-5, 0), (10, 10), (10, 11), (10, -1)])
    def test_impossible_budgets(self, window: int, reserve: int) -> None:
        with pytest.raises(ConfigError) as caught:
            Budget(window, reserve_output=reserve)
        assert caught.value.remedy

    def test_sections_have_defaults(self) -> None:
        budget = Budget(100, sections={"history": Section(max=20)})
        assert budget.section("history").max == 20
        assert budget.section("context") == Section()


class TestSection:
    @pytest.mark.parametrize("wrong", [{"min": -1}, {"min": 5, "max": 4}, {"max": -1}, {"share": -0.1}, {"share": 1.5}])
    def test_impossible_limits(self, wrong: dict[str, float]) -> None:
        with pytest.raises(ConfigError):
            Section(**wrong)  # type: ignore[arg-type]

    @given(
        st.one_of(st.none(), st.integers(0, 500)),
        st.one_of(st.none(), st.floats(0, 1)),
        st.integers(-10, 1000),
    )
    def test_the_cap_is_the_tightest_limit(self, most: int | None, share: float | None, room: int) -> None:
        cap = Section(max=most, share=share).cap(room)
        assert 0 <= cap <= max(0, room)
        if most is not None:
            assert cap <= most
        if share is not None and room > 0:
            assert cap <= room * share
        if most is None and share is None:
            assert cap == max(0, room)


class TestOptions:
    @pytest.mark.parametrize(
        "wrong", [{"max_tokens": 0}, {"temperature": -1}, {"top_p": 0}, {"top_p": 1.1}, {"timeout": 0}]
    )
    def test_impossible_options(self, wrong: dict[str, float]) -> None:
        with pytest.raises(ConfigError) as caught:
            CompletionOptions(**wrong)  # type: ignore[arg-type]
        assert caught.value.remedy


def small_prompt() -> Prompt:
    source = Source("d1", "guide.md", Span(10, 30))
    system = Segment("system", "system", "Be brief.", 3, "trusted", message=0, template="answer@2")
    context = Segment("context", "user", "the text", 2, "untrusted", message=1, sources=(source, source))
    past = Segment("history", "user", "earlier", 1, "history", message=1, message_id="m1")
    trace = Trace()
    with trace.stage("packing", items_in=3) as record:
        record.items_out = 2
        record.drop("context", "guide.md:30-90", 40, "the section's cap is reached")
    return Prompt(
        turns=(
            Message("system", (Part(text="Be brief."),)),
            Message("user", (Part(text="the text"), Part(text="earlier"))),
        ),
        segments=(system, context, past),
        token_count=14,
        budget=Budget(100, reserve_output=20),
        stable_prefix_tokens=5,
        fingerprint="ab" * 32,
        hashes={},
        counter="o200k_base",
        exact=False,
        trace=trace,
    )


class TestPrompt:
    def test_messages_are_dicts_whose_content_is_the_segments_joined(self) -> None:
        prompt = small_prompt()
        for index, message in enumerate(prompt.messages):
            joined = "".join(segment.text for segment in prompt.segments if segment.message == index)
            assert message["content"] == joined
        assert [message["role"] for message in prompt.messages] == ["system", "user"]

    def test_sources_do_not_repeat(self) -> None:
        assert small_prompt().sources == (Source("d1", "guide.md", Span(10, 30)),)

    def test_explain_shows_every_segment_the_sum_and_what_was_dropped(self) -> None:
        prompt = small_prompt()
        shown = prompt.explain()
        for piece in (
            "template answer@2",
            "guide.md:10-30 (+1)",
            "message m1",
            "14 of 80 tokens",
            "100 window - 20 for the answer",
            "an estimate that does not undercount",
            "stable prefix 5",
            "guide.md:30-90: the section's cap is reached",
            "packing: 3 -> 2",
        ):
            assert piece in shown, piece
        table = shown.split("\n\n")[0].splitlines()[2:]
        assert len(table) == len(prompt.segments) + 1

    def test_the_trace_does_not_decide_equality(self) -> None:
        assert small_prompt() == small_prompt()
