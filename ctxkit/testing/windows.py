"""What every window must do, whatever it keeps, and a chat counter that needs no tokenizer."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from ctxkit.errors import BudgetError
from ctxkit.messages import Message, ToolCall
from ctxkit.protocols import ChatCounter, Window

__all__ = ["WindowConformance", "WordChatCounter", "dialogue", "history_problems"]


class WordChatCounter:
    """A word is a token, a message costs three more, and so does a prompt: easy to check by eye.

    Example:
        >>> WordChatCounter().count_prompt([Message("user", "one two")])
        8
    """

    name = "words"
    exact = True
    additive = True

    def count(self, text: str) -> int:
        return len(text.split())

    def count_message(self, message: Message) -> int:
        calls = sum(1 + self.count(call.arguments) for call in message.tool_calls)
        return 3 + self.count(message.visible) + calls

    def count_prompt(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> int:
        return 3 + sum(map(self.count_message, messages)) + sum(self.count(json.dumps(tool)) for tool in tools)


def dialogue(turns: int, *, seed: int = 0) -> list[Message]:
    """A valid dialogue with parallel tool calls, the same for the same seed."""
    chance = random.Random(seed)
    messages = [Message("system", "You book flights.", id="m0")]

    def add(role: Any, words: int, **more: Any) -> None:
        text = " ".join(f"word{chance.randrange(1000)}" for _ in range(words))
        messages.append(Message(role, text, id=f"m{len(messages)}", **more))

    for turn in range(turns):
        add("user", chance.randint(1, 12))
        for step in range(chance.choice((0, 0, 1, 2, 5))):
            calls = tuple(ToolCall(f"c{turn}_{step}_{number}", "find") for number in range(chance.randint(1, 3)))
            add("assistant", chance.choice((0, 3)), tool_calls=calls)
            for call in chance.sample(calls, len(calls)):
                add("tool", chance.randint(1, 40), tool_call_id=call.id)
        if turn < turns - 1:
            add("assistant", chance.randint(1, 20))
    return messages


def history_problems(messages: Sequence[Message]) -> list[str]:
    """What the strictest provider would refuse, in words; written apart from what windows use to obey."""
    problems: list[str] = []
    roles = [message.role for message in messages]
    body = roles[next((at for at, role in enumerate(roles) if role != "system"), len(roles)) :]
    if "system" in body:
        problems.append("a system message inside the dialogue")
    if body and body[0] != "user":
        problems.append(f"the dialogue begins with a message of role {body[0]}")
    ids = [call.id for message in messages for call in message.tool_calls]
    if len(set(ids)) != len(ids) or "" in ids:
        problems.append("call ids that are empty or used twice")
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        if message.role == "tool":
            problems.append(f"an orphaned result of {message.tool_call_id!r}")
        elif not message.tool_calls and not message.text.strip() and all(part.kind == "text" for part in message.parts):
            problems.append(f"an empty {message.role} message")
        if message.tool_calls:
            end = at + len(message.tool_calls)
            answered = sorted(str(result.tool_call_id) for result in messages[at:end] if result.role == "tool")
            if answered != sorted(call.id for call in message.tool_calls):
                problems.append(f"calls without their results: {[call.id for call in message.tool_calls]}")
            at = end
    return problems


class WindowConformance:
    """What every `Window` must do. Override `make_window`, and `make_counter` to test with another counter."""

    def make_window(self) -> Window:
        raise NotImplementedError

    def make_counter(self) -> ChatCounter:
        return WordChatCounter()

    def _selected(
        self,
        messages: Sequence[Message],
        max_tokens: int,
        window: Window | None = None,
        counter: ChatCounter | None = None,
    ) -> list[Message] | None:
        refusal: BudgetError | None = None
        try:
            return (window or self.make_window()).select(messages, max_tokens, counter or self.make_counter())
        except BudgetError as error:
            refusal = error
        assert refusal.available == max_tokens
        assert refusal.excess > 0
        return None

    def test_it_is_a_window(self) -> None:
        assert isinstance(self.make_window(), Window)

    def test_every_prefix_at_every_budget_is_valid_and_fits(self) -> None:
        counter = self.make_counter()
        kept = 0
        for seed in range(4):
            whole = dialogue(8, seed=seed)
            window = self.make_window()  # one for the whole dialogue, so that what it remembers is tested as well
            for end in range(2, len(whole) + 1):
                for max_tokens in (10, 40, 100, 400):
                    selected = self._selected(whole[:end], max_tokens, window, counter)
                    if selected is None:
                        continue
                    kept += 1
                    assert history_problems(selected) == []
                    assert counter.count_prompt(selected) <= max_tokens
                    users = [message for message in whole[:end] if message.role == "user"]
                    assert users[-1] in selected
                    if end % 9 == 0:
                        assert selected == self._selected(whole[:end], max_tokens), "what it remembers changes a window"
        assert kept > 100

    def test_a_message_that_does_not_fit_is_an_error_that_names_it(self) -> None:
        messages = [Message("user", "hello"), Message("user", "word " * 500, id="big")]
        told = "nothing"
        try:
            self.make_window().select(messages, 50, self.make_counter())
        except BudgetError as error:
            told = str(error)
        assert "big" in told, f"500 words were put into 50 tokens; the window said {told}"

    def test_order_stays_and_messages_stay_as_they_are(self) -> None:
        whole = dialogue(8, seed=3)
        selected = self._selected(whole, 150)
        assert selected is not None
        places = {message.id: place for place, message in enumerate(whole)}
        history = [message for message in selected if message.id in places]
        assert [places[message.id] for message in history] == sorted(places[message.id] for message in history)
        assert all(whole[places[message.id]] == message for message in history)

    def test_same_in_same_out_and_the_input_stays(self) -> None:
        whole = dialogue(8, seed=4)
        before = list(whole)
        assert self._selected(whole, 120) == self._selected(tuple(whole), 120)
        assert whole == before

    def test_orphans_and_unanswered_calls(self) -> None:
        messages = [
            Message("tool", "lost", tool_call_id="nobody"),
            Message("user", "Rain?", id="q"),
            Message("assistant", tool_calls=(ToolCall("a", "weather"), ToolCall("b", "weather"))),
            Message("tool", "rain", tool_call_id="b"),
            Message("user", "Well?", id="r"),
        ]
        selected = self._selected(messages, 1000)
        assert selected is not None
        assert history_problems(selected) == []
        assert messages[-1] in selected

    def test_nothing_of_nothing(self) -> None:
        assert self._selected([], 100) == []
