"""ctxkit inside LlamaIndex: a memory that always fits, and a chat store.

Needs the extra `llama-index`.

    from ctxkit.storage import Store
    from ctxkit_adapters.llama_index import CtxkitMemory

    memory = CtxkitMemory.from_defaults(store=Store.open("sqlite:///notes.db"), session_id="alice", token_limit=4_000)
    await agent.run("Which seat did I want?", memory=memory)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from llama_index.core.base.llms.types import (
    ChatMessage,
    ImageBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.bridge.pydantic import BaseModel, ConfigDict, Field, ValidationError
from llama_index.core.memory.types import BaseMemory
from llama_index.core.storage.chat_store.base import BaseChatStore

from ctxkit.checking import check_able, check_kind, check_whole
from ctxkit.errors import ConfigError, ConflictError
from ctxkit.history import SlidingWindow
from ctxkit.messages import Message, Part, ToolCall
from ctxkit.models import get_chat_counter
from ctxkit.protocols import Window
from ctxkit.storage import Store
from ctxkit_adapters.carrying import carried, carry, reading

__all__ = ["CtxkitChatStore", "CtxkitMemory", "from_llama", "to_llama"]

FRAMEWORK = "llama_index"
ROLES = {
    MessageRole.SYSTEM: "system",
    MessageRole.DEVELOPER: "system",
    MessageRole.USER: "user",
    MessageRole.ASSISTANT: "assistant",
    MessageRole.CHATBOT: "assistant",
    MessageRole.MODEL: "assistant",
    MessageRole.TOOL: "tool",
    MessageRole.FUNCTION: "tool",
}
ATTEMPTS = 100


class CtxkitChatStore(BaseChatStore):  # type: ignore[misc]  # its types are not read
    """Dialogues in a ctxkit store; a key is a session. For `ChatMemoryBuffer` and what else takes a chat store.

    A change from the middle rewrites what stands behind it, in one transaction; where somebody else appended meanwhile
    it is done anew. What a branch shares stays as it is (`ProtectedError`).

    Args:
        store: an open store, whose tenant owns the sessions.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    store: Store = Field(exclude=True)

    def __init__(self, **parts: Any) -> None:
        with _told(type(self), parts):
            super().__init__(**parts)

    @classmethod
    def class_name(cls) -> str:
        return "CtxkitChatStore"

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        new = _all(messages)
        self._change(key, lambda _: new)

    def get_messages(self, key: str) -> list[ChatMessage]:
        return list(map(to_llama, self.store.sessions.messages(key)))

    def add_message(self, key: str, message: ChatMessage, idx: int | None = None) -> None:
        new = from_llama(message)
        if idx is not None:
            _check_place(idx)
        if idx is None:
            self.store.sessions.append(key, [new])
        else:
            self._change(key, lambda there: [*there[:idx], new, *there[idx:]])

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        there = self.get_messages(key)
        self.store.sessions.delete(key)
        return there or None

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        _check_place(idx)

        def without(there: list[Message]) -> list[Message]:
            at = idx if idx >= 0 else len(there) + idx
            return [message for place, message in enumerate(there) if place != at]

        before = self._change(key, without)
        return to_llama(before[idx]) if -len(before) <= idx < len(before) else None

    def delete_last_message(self, key: str) -> ChatMessage | None:
        gone = self.store.sessions.rewind(key, 1)
        return to_llama(gone[0]) if gone else None

    def get_keys(self) -> list[str]:
        return [info.id for info in self.store.sessions.list()]

    def _change(self, key: str, change: Callable[[list[Message]], list[Message]]) -> list[Message]:
        """Change a dialogue as one; gives it as it was."""
        sessions = self.store.sessions
        for attempt in range(ATTEMPTS):
            before = sessions.messages(key)
            after = change(list(before))
            kept = 0
            while kept < min(len(before), len(after)) and before[kept] is after[kept]:
                kept += 1
            expected = before[-1].sequence if before else None
            try:
                sessions.rewind(key, len(before) - kept, messages=after[kept:], expected=expected)
            except ConflictError:
                if attempt == ATTEMPTS - 1:
                    raise
                continue
            break
        return before


class CtxkitMemory(BaseMemory):  # type: ignore[misc]
    """A memory whose `get` gives a valid dialogue of at most `token_limit` tokens, chosen by a ctxkit window.

    A call never loses its result, the newest user message is always kept, tool calls are counted, and nothing is over
    the limit: where the newest user message alone is, `get` raises `BudgetError`, which names it. `get(input=…)` hands
    the question to a window that looks at one. All that was said stays in the store.

    Args:
        store: an open store, whose tenant owns the session.
        session_id: the session; it is made when the first message comes.
        token_limit: of what `get` gives.
        window: any `Window` of ctxkit; by default the first messages and the newest ones.
        model: whose tokens count.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    store: Store = Field(exclude=True)
    session_id: str
    token_limit: int = 4_000
    window: Any = Field(default_factory=SlidingWindow, exclude=True)
    model: str = "openai:gpt-4o"

    def __init__(self, **parts: Any) -> None:
        with _told(type(self), parts):
            super().__init__(**parts)

    def model_post_init(self, context: Any) -> None:
        check_whole(self.token_limit, "token_limit", minimum=1)
        check_able(self.window, "select", "window", remedy="Give a window, such as SlidingWindow().")
        self.store.sessions.check(self.session_id)

    @classmethod
    def class_name(cls) -> str:
        return "CtxkitMemory"

    @classmethod
    def from_defaults(cls, chat_history: list[ChatMessage] | None = None, **parts: Any) -> CtxkitMemory:
        memory = cls(**parts)
        if chat_history is not None:
            memory.set(chat_history)
        return memory

    def get(self, input: str | None = None, initial_token_count: int = 0, **options: Any) -> list[ChatMessage]:  # noqa: A002
        """What the window keeps within `token_limit - initial_token_count` tokens, and nothing of an empty dialogue."""
        check_whole(initial_token_count, "initial_token_count", minimum=0)
        messages = self.store.sessions.messages(self.session_id)
        if not messages:
            return []
        window: Window = self.window
        asking = getattr(window, "asking", None)
        if input and callable(asking):
            window = asking(input)
        room = max(1, self.token_limit - initial_token_count)
        return list(map(to_llama, window.select(messages, room, get_chat_counter(self.model))))

    def get_all(self) -> list[ChatMessage]:
        return list(map(to_llama, self.store.sessions.messages(self.session_id)))

    def put(self, message: ChatMessage) -> None:
        self.put_messages([message])

    def put_messages(self, messages: Sequence[ChatMessage]) -> None:
        """Append messages, all or none."""
        self.store.sessions.append(self.session_id, _all(messages))

    def set(self, messages: list[ChatMessage]) -> None:
        CtxkitChatStore(store=self.store).set_messages(self.session_id, messages)

    def reset(self) -> None:
        self.store.sessions.delete(self.session_id)


@contextmanager
def _told(kind: type[BaseModel], parts: Mapping[str, Any]) -> Iterator[None]:
    """A part that is missing, wrong or not known, as a `ConfigError` that names it instead of pydantic's own error."""
    remedy = f"{kind.__name__} takes {', '.join(kind.model_fields)}."
    if unknown := sorted(parts.keys() - kind.model_fields):
        raise ConfigError(f"there is no {unknown[0]}", subject=kind.__name__, remedy=remedy)
    try:
        yield
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{name}: {first['msg']}", subject=kind.__name__, remedy=remedy) from error


def _all(messages: Sequence[ChatMessage]) -> list[Message]:
    check_kind(messages, Iterable, "the list of messages", remedy="Give a list of ChatMessage.")
    return list(map(from_llama, messages))


def _check_place(idx: Any) -> None:
    check_kind(idx, int, "idx", remedy="Give a whole number, the place in the list of messages.")


def from_llama(message: ChatMessage) -> Message:
    """The message as ours. What ours does not hold goes along as JSON, and comes back with `to_llama`."""
    check_kind(message, ChatMessage, "a message", remedy="Give a ChatMessage.")
    with reading(message, "Give a ChatMessage whose parts can be written as JSON."):
        ours = _read(message)
        return ours if _written(ours) == message else carry(ours, FRAMEWORK, message.model_dump(mode="json"))


def _read(message: ChatMessage) -> Message:
    role = ROLES[message.role]
    parts: list[Part] = []
    calls: list[ToolCall] = []
    for block in message.blocks:
        if isinstance(block, TextBlock):
            parts.append(Part(text=block.text))
        elif isinstance(block, ThinkingBlock):
            parts.append(Part("reasoning", block.content or ""))
        elif isinstance(block, ToolCallBlock):
            calls.append(ToolCall(block.tool_call_id or "", block.tool_name, _json(block.tool_kwargs)))
        elif isinstance(block, ImageBlock) and block.url is not None:
            parts.append(Part("image", data={"url": str(block.url)}))
        else:
            parts.append(Part(text=f"[{getattr(block, 'block_type', 'block')}]"))
    known = {call.id for call in calls}
    calls += [call for call in map(_call, message.additional_kwargs.get("tool_calls") or ()) if call.id not in known]
    answered = str(message.additional_kwargs.get("tool_call_id") or "") if role == "tool" else None
    plain = len(parts) == 1 and parts[0].kind == "text"
    return Message(
        cast("Any", role),
        parts[0].text if plain else tuple(parts),
        tool_calls=tuple(calls) if role == "assistant" else (),
        tool_call_id=answered,
    )


def _call(value: Any) -> ToolCall:
    """A call in the form of OpenAI's SDK, as an object or a dict."""
    data = value if isinstance(value, Mapping) else value.model_dump()
    function = data.get("function") or data
    return ToolCall(str(data.get("id") or ""), str(function.get("name") or ""), _json(function.get("arguments", "{}")))


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def to_llama(message: Message) -> ChatMessage:
    """The message as LlamaIndex has it: as it came, or made anew."""
    raw = carried(message, FRAMEWORK, lambda value: _read(ChatMessage.model_validate(value)))
    return _written(message) if raw is None else ChatMessage.model_validate(raw)


def _written(message: Message) -> ChatMessage:
    blocks: list[Any] = []
    for part in message.parts or ((Part(),) if isinstance(message.content, str) and not message.tool_calls else ()):
        if part.kind == "text":
            blocks.append(TextBlock(text=part.text))
        elif part.kind == "reasoning":
            blocks.append(ThinkingBlock(content=part.text))
        elif part.kind == "image" and isinstance(part.data.get("url"), str):
            blocks.append(ImageBlock(url=part.data["url"]))
    blocks += [
        ToolCallBlock(tool_call_id=call.id, tool_name=call.name, tool_kwargs=_arguments(call.arguments))
        for call in message.tool_calls
    ]
    answered = {} if message.tool_call_id is None else {"tool_call_id": message.tool_call_id}
    return ChatMessage(role=MessageRole(message.role), blocks=blocks, additional_kwargs=answered)


def _arguments(text: str) -> Any:
    """The arguments as the object that they are; as they were written where they are none, or would change."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, dict) and _json(value) == text else text
