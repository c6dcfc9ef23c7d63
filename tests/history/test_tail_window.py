"""`TailWindow`, against the conformance suite, by example, and on real token counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from ctxkit.errors import BudgetError, ConfigError
from ctxkit.history import TailWindow
from ctxkit.messages import Message, ToolCall
from ctxkit.protocols import ChatCounter, Window
from ctxkit.testing import WindowConformance
from ctxkit.testing.windows import WordChatCounter, dialogue, history_problems
from tests.timing import doubling

COUNTER = WordChatCounter()


class TestConformance(WindowConformance):
    def make_window(self) -> Window:
        return TailWindow()


class TestConformanceByMessages(WindowConformance):
    def make_window(self) -> Window:
        return TailWindow(max_messages=4)


class TestConformanceWithRealCounts(WindowConformance):
    def make_window(self) -> Window:
        return TailWindow()

    def make_counter(self) -> ChatCounter:
        from ctxkit.models import get_chat_counter

        return get_chat_counter("openai:gpt-4o")


def says(role: Any, words: int, id: str) -> Message:  # noqa: A002
    return Message(role, " ".join(["word"] * words), id=id)


def selected(messages: list[Message], max_tokens: int, **window: Any) -> list[str]:
    return [message.id for message in TailWindow(**window).select(messages, max_tokens, COUNTER)]


# By WordChatCounter: 3 for the prompt, and for each message 3 and its words.
TALK = [says("user", 1, "u1"), says("assistant", 1, "a1"), says("user", 1, "u2"), says("assistant", 1, "a2")]


@pytest.mark.parametrize(
    ("max_tokens", "expected"),
    [
        (7, ["u2"]),
        (10, ["u2"]),
        (11, ["u2", "a2"]),
        (18, ["u2", "a2"]),  # a1 would fit, but a window begins at a user message
        (19, ["u1", "a1", "u2", "a2"]),
    ],
)
def test_the_newest_that_fits(max_tokens: int, expected: list[str]) -> None:
    assert selected(TALK, max_tokens) == expected


@pytest.mark.parametrize(
    ("count", "expected"), [(1, ["u2"]), (2, ["u2", "a2"]), (3, ["u2", "a2"]), (4, ["u1", "a1", "u2", "a2"])]
)
def test_a_number_of_messages(count: int, expected: list[str]) -> None:
    assert selected(TALK, 1000, max_messages=count) == expected


def test_a_long_run_of_tool_calls_keeps_the_question_and_the_newest_calls() -> None:
    messages = [says("system", 1, "s"), says("user", 1, "u")]
    for step in range(5):
        messages.append(Message("assistant", "", tool_calls=(ToolCall(f"c{step}", "find"),), id=f"a{step}"))
        messages.append(Message("tool", "found", tool_call_id=f"c{step}", id=f"t{step}"))
    assert selected(messages, 1000, max_messages=5) == ["s", "u", "a3", "t3", "a4", "t4"]
    assert selected(messages, 3 + 4 + 4 + 9) == ["s", "u", "a4", "t4"]
    assert selected(messages, 3 + 4 + 4) == ["s", "u"]


def test_leading_system_messages_stay_and_later_ones_go_with_their_turn() -> None:
    messages = [says("system", 1, "s1"), *TALK[:2], says("system", 1, "s2"), *TALK[2:]]
    assert selected(messages, 1000) == ["s1", "s2", "u1", "a1", "u2", "a2"]
    assert selected(messages, 15) == ["s1", "u2", "a2"]


def test_what_cannot_be_left_out_and_does_not_fit_is_named() -> None:
    messages = [says("system", 10, "s"), says("user", 30, "u1"), says("assistant", 1, "a1")]
    with pytest.raises(BudgetError) as caught:
        TailWindow().select(messages, 45, COUNTER)
    error = caught.value
    assert error.parts == {"system messages": 13, "newest user message": 33, "chat format": 3}
    assert (error.available, error.excess) == (45, 4)
    assert "message u1" in str(error)
    assert [message.id for message in TailWindow().select(messages, 49, COUNTER)] == ["s", "u1"]


def test_a_dialogue_without_a_user_message_has_no_window() -> None:
    assert selected([says("assistant", 1, "a")], 100) == []
    assert selected([says("system", 1, "s"), says("assistant", 1, "a")], 100) == ["s"]
    with pytest.raises(BudgetError):
        selected([says("system", 50, "s")], 10)


def test_a_counter_that_plans_too_low_is_corrected_by_the_whole() -> None:
    class Optimist(WordChatCounter):
        additive = False

        def count_message(self, message: Message) -> int:
            return 1

        def count_prompt(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> int:
            return COUNTER.count_prompt(messages, tools)

    messages = dialogue(10, seed=2)
    lengths = set()
    for max_tokens in range(30, 400, 10):
        found = TailWindow().select(messages, max_tokens, Optimist())
        assert COUNTER.count_prompt(found) <= max_tokens
        assert history_problems(found) == []
        lengths.add(len(found))
    assert len(lengths) > 3


@pytest.mark.parametrize("count", [0, -1, True, 1.5])
def test_wrong_parameters(count: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        TailWindow(max_messages=count)
    assert caught.value.remedy


def test_time_grows_with_the_dialogue_and_not_faster() -> None:
    def selecting(turns: int) -> Callable[[], object]:
        messages = dialogue(turns, seed=1)
        return lambda: TailWindow().select(messages, 10**9, COUNTER)

    doubling(selecting, 400)
