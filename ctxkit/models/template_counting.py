"""Counts and encodes prompts for local models: the ids that are counted are the ids that are fed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

from ctxkit.errors import ConfigError
from ctxkit.messages import Message, ToolCall
from ctxkit.models.chat_template import PLAIN_TEMPLATE, ChatTemplate, Slot, pieces
from ctxkit.models.local_tokenizer import LocalTokenizer
from ctxkit.models.memo import Memo

__all__ = ["ChatTemplateCounter"]


class ChatTemplateCounter:
    """A `ChatCounter` from a model's own tokenizer and chat template; the weights are not loaded.

    The template's text is encoded with control tokens, each part of a message by itself and without them (law 4). Each
    part is encoded once and remembered; a prompt that grows by one part costs that part.

    Args:
        folder: the model's folder (`tokenizer.json`, `tokenizer_config.json`, `chat_template.jinja`).
        chat_template: instead of the folder's own.
        options: further variables for the template, such as `{"enable_thinking": False}`.
        today: what a template that prints the date sees; the day of creation by default.

    Errors: `ModelNotFoundError` without a tokenizer; `ConfigError` for messages that the template cannot take.
    """

    exact = True

    def __init__(
        self,
        folder: str | Path,
        *,
        chat_template: str | None = None,
        options: Mapping[str, Any] | None = None,
        today: date | None = None,
    ) -> None:
        self.tokenizer = LocalTokenizer(folder)
        self.template = ChatTemplate(
            chat_template or self.tokenizer.chat_template or PLAIN_TEMPLATE,
            special=self.tokenizer.special,
            control_texts=self.tokenizer.control_texts,
            options=options,
            today=today,
        )
        self.name = f"hf-{self.tokenizer.digest[:16]}"
        self.data_memo: Memo[tuple[int, ...]] = Memo(lambda text: tuple(self.tokenizer.encode_data(text)))
        self._first: Memo[tuple[int, ...]] = Memo(lambda text: tuple(self.tokenizer.encode_template(text, first=True)))
        self._later: Memo[tuple[int, ...]] = Memo(lambda text: tuple(self.tokenizer.encode_template(text)))
        self._overheads: dict[object, int] = {}

    def count(self, text: str) -> int:
        """Tokens of a text as data."""
        return len(self.data_memo(text))

    def encode_prompt(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """The ids of the whole prompt, the opening of the answer included: what the model is fed."""
        return [token for ids in self._ids(messages, tools) for token in ids]

    def count_prompt(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> int:
        """`len(encode_prompt(messages, tools))`. Linear in what was not encoded before."""
        return sum(map(len, self._ids(messages, tools)))

    def _ids(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, ...]]:
        for _, ids in self.encode_pieces(messages, tools):
            yield ids

    def encode_pieces(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()
    ) -> Iterator[tuple[str | None, tuple[int, ...]]]:
        """The prompt's ids piece by piece: each part of a message with its text, what the template writes with None."""
        for index, (text, is_data) in enumerate(pieces(self.template.layout(messages, tools))):
            if is_data:
                yield text, self.data_memo(text)
            else:
                yield None, self._later(text) if index else self._first(text)

    def count_message(self, message: Message) -> int:
        """What the message adds to a dialogue; exact for templates that treat all messages of a role alike."""
        said = [part.text for part in message.parts if part.kind == "text"]
        texts = sum(map(self.count, said))
        other = frozenset(part.kind for part in message.parts) - {"text", "reasoning"}
        key = (message.role, any(said), other, message.name, message.tool_calls, message.tool_call_id)
        if key not in self._overheads:
            if len(self._overheads) > 4096:
                self._overheads.clear()
            try:
                self._overheads[key] = self._overhead(message) - texts
            except ConfigError:  # the template takes the message only among others
                calls = sum(self.count(call.name) + self.count(call.arguments) + 8 for call in message.tool_calls)
                self._overheads[key] = 16 + calls
        return texts + self._overheads[key]

    def _overhead(self, message: Message) -> int:
        system = Message("system", "x")
        if message.role == "system":
            user = Message("user", "x")
            return self.count_prompt([system, message, user]) - self.count_prompt([system, user])
        before = [system]
        if message.tool_call_id is not None:
            call = ToolCall(message.tool_call_id, message.name or "x")
            before = [system, Message("user", "x"), Message("assistant", "", tool_calls=(call,))]
        return self.count_prompt([*before, message]) - self.count_prompt(before)

    @cached_property
    def stop_ids(self) -> frozenset[int]:
        """The control tokens that end an answer: the tokenizer's `eos_token`, and what the template writes after it."""
        found = set()
        eos = self.tokenizer.token_id(self.tokenizer.special.get("eos_token", ""))
        if eos is not None:
            found.add(eos)
        try:
            items = self.template.layout([Message("user", "x"), Message("assistant", "y"), Message("user", "z")]).items
        except ConfigError:
            return frozenset(found)
        slots = [index for index, item in enumerate(items) if isinstance(item, Slot)]
        after = items[slots[1] + 1] if len(slots) > 1 and slots[1] + 1 < len(items) else ""
        if isinstance(after, str):
            for token in self._later(after)[:1]:
                if token in self.tokenizer.special_ids:
                    found.add(token)
        return frozenset(found)
