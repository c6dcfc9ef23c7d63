"""Summaries: attributed, incremental, within the summariser's window, and in nothing's place that they do not hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ctxkit.errors import ConfigError, CtxkitError, HistoryError, ProviderError
from ctxkit.history import (
    ExtractiveSummariser,
    ModelSummariser,
    SlidingWindow,
    Summarised,
    Summary,
    apply_summary,
    check_history,
    roll,
)
from ctxkit.messages import Message, ToolCall
from ctxkit.prompts import Prompt
from ctxkit.protocols import Window
from ctxkit.testing import EchoModel, WindowConformance
from ctxkit.testing.windows import WordChatCounter, dialogue, history_problems
from ctxkit.trace import StageRecord
from tests.strategies import texts

COUNTER = WordChatCounter()
TALK = [
    Message("user", "I am Ann. I fly to Rome on May 3 with 2 children. Well, as I said.", id="a"),
    Message("assistant", "Noted. Which seats do you like? Let me see what there is.", id="b"),
    Message("user", "The cheap ones by the window, and no meal. That is all I can think of.", id="c"),
]


def short(text: str = "Ann flies to Rome.", **more: Any) -> ModelSummariser:
    return ModelSummariser(model=EchoModel(text, **more), max_tokens=20)


def test_a_summary_knows_its_messages() -> None:
    record = StageRecord("history")
    summary = roll(TALK, short(), record=record)
    assert summary is not None
    assert summary.message_ids == ("a", "b", "c")
    assert summary.text == "Ann flies to Rome."
    assert summary.by.startswith("echo-20-")
    assert summary.message.role == "user"
    assert summary.message.id == summary.id
    assert summary.id.startswith("summary:")
    assert record.notes["summarised"] == 3
    assert Summary.from_json(summary.to_json()) == summary


def test_a_message_is_read_once() -> None:
    seen: list[list[str]] = []

    class Watching(ExtractiveSummariser):
        def summarise(self, messages: Sequence[Message], previous: str) -> str:
            seen.append([message.id for message in messages])
            return super().summarise(messages, previous)

    summariser = Watching(max_tokens=30)
    first = roll(TALK[:2], summariser)
    second = roll(TALK, summariser, first)
    assert roll(TALK, summariser, second) is second
    assert seen == [["a", "b"], ["c"]]
    assert second is not None
    assert second.message_ids == ("a", "b", "c")
    assert "Rome" in second.text


@pytest.mark.parametrize(
    ("summariser", "reason"),
    [
        (short(""), "empty"),
        (short("  \n "), "empty"),
        (short(" ".join(["far"] * 500)), "ends by length"),
        (ModelSummariser(model=EchoModel("much too long " * 60), max_tokens=4000), "not used"),
        (short(error=ProviderError("HTTP 500", remedy="Try again.")), "HTTP 500"),
        (ModelSummariser(model=EchoModel("x", window=40), max_tokens=20), "too many"),
        (ModelSummariser(model=EchoModel("x", window=190), max_tokens=20, max_pieces=1), "pieces"),
    ],
)
def test_a_summary_that_fails_replaces_nothing(summariser: ModelSummariser, reason: str) -> None:
    earlier = roll(TALK[:1], short("Ann."))
    assert earlier is not None
    for previous in (None, earlier):
        record = StageRecord("history")
        assert roll(TALK, summariser, previous, record=record) is previous
        assert record.notes["summary"]
        if previous is None:
            assert reason in record.notes["summary"], record.notes
    assert apply_summary(TALK, None) == TALK


def test_a_summary_of_other_messages_replaces_nothing() -> None:
    summary = roll(TALK[:2], short())
    changed = [TALK[0], replace(TALK[1], content="Noted?"), TALK[2]]
    assert apply_summary(changed, summary) == changed
    assert apply_summary(TALK[:2], summary) == TALK[:2], "something must be left to answer"
    system = Message("system", "Be brief.")
    assert summary is not None
    assert apply_summary([system, *TALK], summary) == [system, summary.message, TALK[2]]
    record = StageRecord("history")
    again = roll(changed, short(), summary, record=record)
    assert again is not None
    assert again.message_ids == ("a", "b", "c")


def test_messages_without_ids_are_refused() -> None:
    with pytest.raises(HistoryError) as caught:
        roll([Message("user", "hello")], short())
    assert caught.value.remedy


@pytest.mark.parametrize("data", [{}, {"text": 1}, {"text": "", "message_ids": [1], "content": "", "by": ""}])
def test_what_is_no_summary(data: dict[str, Any]) -> None:
    with pytest.raises(HistoryError):
        Summary.from_json(data)


@settings(max_examples=100)
@given(st.lists(texts, min_size=1, max_size=8), st.integers(150, 400), st.integers(5, 30))
def test_the_summariser_never_gets_more_than_its_window(said: list[str], window: int, answer: int) -> None:
    prompts: list[Prompt] = []

    def answered(prompt: Prompt) -> str:
        prompts.append(prompt)
        return "so far"

    model = EchoModel(answered, window=window)
    summariser = ModelSummariser(model=model, max_tokens=answer)
    messages = [Message("user", text, id=str(number)) for number, text in enumerate(said)]
    try:
        summariser.summarise(messages, "earlier")
    except CtxkitError as error:
        event(type(error).__name__)
    for prompt in prompts:
        assert prompt.token_count == model.counter.count_prompt(prompt.turns) <= window - answer
        assert prompt.token_count <= prompt.budget.available
        assert [message.role for message in prompt.turns] == ["system", "user"]


def test_every_word_reaches_the_summariser() -> None:
    read: list[str] = []

    def answered(prompt: Prompt) -> str:
        read.append(prompt.turns[1].visible.partition("New lines:\n")[2])
        return "so far"

    long = " ".join(f"word{number}" for number in range(300))
    call = Message("assistant", tool_calls=(ToolCall("c", "book", '{"seat": "12A"}'),), id="t")
    messages = [*TALK, Message("user", long, id="d"), call]
    ModelSummariser(model=EchoModel(answered, window=300), max_tokens=20).summarise(messages, "")
    assert len(read) > 3
    everything = "".join(line.partition(": ")[2] for piece in read for line in piece.split("\n")).replace(" ", "")
    for number in range(300):
        assert f"word{number}" in everything
    assert "12A" in everything


@given(st.lists(texts, max_size=8), st.integers(1, 60))
def test_the_extractive_summary_is_within_its_limit_and_word_for_word(said: list[str], limit: int) -> None:
    summariser = ExtractiveSummariser(max_tokens=limit, counter=COUNTER)
    messages = [Message("user", text, id=str(number)) for number, text in enumerate(said)]
    summary = summariser.summarise(messages, "")
    assert COUNTER.count(summary) <= limit
    assert summariser.summarise(messages, "") == summary
    whole = " ".join(" ".join(text.split()) for text in said)
    for line in summary.split("\n"):
        assert line.partition(": ")[2] in whole


class TestExtractive(WindowConformance):
    def make_window(self) -> Window:
        return Summarised(summariser=ExtractiveSummariser(max_tokens=15, counter=COUNTER))


class TestByModel(WindowConformance):
    def make_window(self) -> Window:
        return Summarised(summariser=short("flights were found"), high_water=90)


class TestByFailingModel(WindowConformance):
    def make_window(self) -> Window:
        return Summarised(summariser=short(error=ProviderError("HTTP 500", remedy="Try again.")))


def test_a_summary_stands_where_its_messages_were_and_the_beginning_stays() -> None:
    whole = dialogue(40, seed=5)
    known: dict[str, Summary] = {}
    window = Summarised(summariser=ExtractiveSummariser(max_tokens=20, counter=COUNTER), known=known)
    changes, last = 0, []
    ends = [end for end in range(2, len(whole) + 1) if end == len(whole) or whole[end].role != "tool"]
    for end in ends:
        selected = window.select(whole[:end], 900, COUNTER)
        check_history(selected)
        assert COUNTER.count_prompt(selected) <= 900
        changes += selected[: len(last)] != last
        last = selected
        # Another process, with the summaries or without, sends the same.
        if end % 10 == 0:
            fresh = Summarised(summariser=ExtractiveSummariser(max_tokens=20, counter=COUNTER), known=dict(known))
            assert fresh.select(whole[:end], 900, COUNTER) == selected
            assert Summarised(summariser=window.summariser).select(whole[:end], 900, COUNTER) == selected
    assert 2 < changes < len(ends) / 6
    assert last[1].id.startswith("summary:")
    (summary,) = known.values()
    covered = set(summary.message_ids)
    assert covered
    assert not covered & {message.id for message in last}
    assert covered | {message.id for message in last} >= {message.id for message in whole}


def test_a_failure_is_told_and_tried_again_at_the_next_cut() -> None:
    model = EchoModel(error=ProviderError("HTTP 500", remedy="Try again."))
    window = Summarised(summariser=ModelSummariser(model=model, max_tokens=20), window=SlidingWindow())
    whole = dialogue(12, seed=1)
    for end in range(2, len(whole) + 1):
        assert history_problems(window.select(whole[:end], 200, COUNTER)) == []
    assert "HTTP 500" in window.notes["summary"]
    assert 1 <= len(model.prompts) < 20, "one attempt a cut, not one a turn"


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        (Summarised, {"low": 0}),
        (Summarised, {"high_water": 0}),
        (Summarised, {"window": None}),
        (Summarised, {"summariser": "minutes"}),
        (ExtractiveSummariser, {"max_tokens": 0}),
        (ModelSummariser, {"model": None}),
        (ModelSummariser, {"model": EchoModel(), "max_pieces": 0}),
        (ModelSummariser, {"model": EchoModel(), "window": 1}),
    ],
)
def test_wrong_parameters(kind: type, parameters: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        kind(**parameters)
    assert caught.value.remedy
