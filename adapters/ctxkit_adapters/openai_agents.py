"""ctxkit inside the OpenAI Agents SDK: a `Session` in a ctxkit store.

Needs the extra `openai-agents`.

    from agents import Agent, Runner
    from ctxkit.storage import Store
    from ctxkit_adapters.openai_agents import CtxkitSession

    session = CtxkitSession("alice", Store.open("sqlite:///notes.db"))
    await Runner.run(Agent(name="helper"), "Which seat did I want?", session=session)
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from agents.memory.session_settings import SessionSettings, resolve_session_limit

from ctxkit.checking import check_able, check_whole
from ctxkit.errors import BudgetError, ConfigError, ConflictError, HistoryError
from ctxkit.messages import Message, Part, ToolCall
from ctxkit.models import get_chat_counter
from ctxkit.protocols import Window
from ctxkit.storage import Store
from ctxkit_adapters.carrying import carried, carry, reading

if TYPE_CHECKING:
    from agents import TResponseInputItem

__all__ = ["CtxkitSession", "from_items", "to_items"]

FRAMEWORK = "openai_agents"
ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
ATTEMPTS = 100
Item = dict[str, Any]
T = TypeVar("T")


class CtxkitSession:
    """A dialogue in a ctxkit store as a `Session`: ordered, safe with several writers, items as they came.

    `get_items(limit)` gives exactly the newest `limit` items, as the SDK's contract has it, wherever that cuts: its
    runner leaves out an output whose call is cut away. With `whole=True` items that the cut would part are left out, so
    that there may be fewer: an output without its call, a call without the reasoning it came from. After each call
    `left_out` is how many items were not given, and `parted` the ids of calls whose output was given alone.

    With `window` and `max_tokens`, `get_items()` gives what the window keeps within so many tokens, repaired: whole
    exchanges, and no call without its output. Where not even the newest user message fits, it gives nothing.

    Args:
        session_id: the session; it is made when the first item comes.
        store: an open store, whose tenant owns the session.
        session_settings: of the SDK: its `limit` is the default of `get_items`.
        whole: never part an exchange at the limit.
        window: any `Window` of ctxkit.
        max_tokens: how many tokens the window may give.
        model: whose tokens count.
    """

    def __init__(
        self,
        session_id: str,
        store: Store,
        *,
        session_settings: SessionSettings | None = None,
        whole: bool = False,
        window: Window | None = None,
        max_tokens: int | None = None,
        model: str = "openai:gpt-4o",
    ) -> None:
        if (window is None) != (max_tokens is None):
            raise ConfigError("window and max_tokens belong together", remedy="Give both, or none.")
        if window is not None:
            check_able(window, "select", "window", remedy="Give a window, such as TailWindow().")
            check_whole(max_tokens, "max_tokens", minimum=1)
        store.sessions.check(session_id)
        self.session_id = session_id
        self.session_settings: SessionSettings | None = session_settings or SessionSettings()
        self.store = store
        self.whole = whole
        self.window = window
        self.max_tokens = max_tokens
        self.model = model
        self.left_out = 0
        self.parted: tuple[str, ...] = ()

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The dialogue, oldest first; of it the newest `limit` items."""
        limit = resolve_session_limit(limit, self.session_settings)
        if limit is not None:
            check_whole(limit, "limit", minimum=0)
        messages = await self.store.sessions.amessages(self.session_id)
        there = sum(len(to_items(message)) for message in messages)
        if self.window is not None and self.max_tokens is not None and messages:
            try:
                messages = list(self.window.select(messages, self.max_tokens, get_chat_counter(self.model)))
            except BudgetError:
                messages = []
        items = [item for message in messages for item in to_items(message)]
        if limit is not None:
            items = _whole(items, limit) if self.whole else items[max(0, len(items) - limit) :]
        self.left_out = max(0, there - len(items))
        self.parted = _parted(items)
        return cast("list[TResponseInputItem]", items)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items, all or none."""
        if items:
            await _settled(self.store.sessions.aappend(self.session_id, from_items(items)))

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the newest item back. Raises `ProtectedError` for one that a branch of the session shares."""
        sessions = self.store.sessions
        for attempt in range(ATTEMPTS):
            newest = await sessions.amessages(self.session_id, last=1)
            if not newest:
                return None
            *rest, item = to_items(newest[0])
            try:
                await _settled(
                    sessions.arewind(self.session_id, 1, messages=from_items(rest), expected=newest[0].sequence)
                )
            except ConflictError:  # somebody else was faster: then another item is the newest
                if attempt == ATTEMPTS - 1:
                    raise
                continue
            return cast("TResponseInputItem", item)
        return None

    async def clear_session(self) -> None:
        """Delete the session, with what of it is archived."""
        await _settled(self.store.sessions.adelete(self.session_id))


async def _settled(change: Coroutine[Any, Any, T]) -> T:
    """Wait for a change's outcome even when the caller is cancelled, so that nobody does again what was done."""
    task = asyncio.create_task(change)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


def _call_id(item: Item) -> str | None:
    """The call that an item is of; anything but a text names none."""
    call = item.get("call_id")
    return call if isinstance(call, str) else None


def _parted(items: list[Item]) -> tuple[str, ...]:
    """The ids of calls whose output is there and that are not."""
    asked: set[Any] = set()
    parted = []
    for item in items:
        call = _call_id(item)
        if call and str(item.get("type")).endswith("_output"):
            if call not in asked:
                parted.append(str(call))
        else:
            asked.add(call)
    return tuple(parted)


def _whole(items: list[Item], limit: int) -> list[Item]:
    """The newest items, at most `limit`, of which none belongs to one that is cut away. Linear."""
    first: dict[Any, int] = {}
    owners = [first.setdefault(_call_id(item) or object(), at) for at, item in enumerate(items)]
    start = lowest = len(items)
    for at in range(len(items) - 1, max(0, len(items) - limit) - 1, -1):
        lowest = min(lowest, owners[at])
        if lowest >= at and not (at and items[at - 1].get("type") == "reasoning"):
            start = at
    return items[start:]


def from_items(items: Sequence[Any]) -> list[Message]:
    """The items of the Responses API as messages, one each. Raises `HistoryError` for what is no item."""
    messages = []
    for item in items:
        if not isinstance(item, Mapping):
            raise HistoryError(f"an item is {item!r:.60}", remedy="Give dicts, such as result.to_input_list() has.")
        with reading(item, "Give items of the Responses API, such as result.to_input_list() has."):
            message = _read(item)
            messages.append(message if _written(message) == [dict(item)] else carry(message, FRAMEWORK, dict(item)))
    return messages


def _read(item: Mapping[str, Any]) -> Message:
    kind, role, call = item.get("type"), ROLES.get(str(item.get("role"))), item.get("call_id")
    if role is not None and kind in (None, "message"):
        content = item.get("content")
        parts = content if isinstance(content, str) else tuple(_part(block) for block in content or ())
        return Message(cast("Any", role), parts)
    if isinstance(kind, str) and isinstance(call, str):
        if kind.endswith("_output"):
            return Message("tool", _output(item.get("output")), tool_call_id=call)
        if kind.endswith("_call"):
            arguments = item.get("arguments", item.get("input", item.get("action", "")))
            return Message("assistant", tool_calls=(ToolCall(call, str(item.get("name") or kind), _text(arguments)),))
    # Reasoning, searches of the provider, references: nothing that another model could read.
    summary = item.get("summary")
    said = [str(part.get("text", "")) for part in summary or () if isinstance(part, Mapping)]
    return Message("assistant", (Part("reasoning", "\n".join(said)),))


def _part(block: Any) -> Part:
    if not isinstance(block, Mapping):
        raise HistoryError(f"a part of an item is {block!r:.60}", remedy="Give dicts with a type.")
    text = block.get("text", block.get("refusal"))
    if isinstance(text, str):
        return Part(text=text)
    if block.get("type") == "input_image" and isinstance(block.get("image_url"), str):
        detail = {"detail": block["detail"]} if isinstance(block.get("detail"), str) else {}
        return Part("image", data={"url": block["image_url"], **detail})
    return Part(text=f"[{block.get('type', 'part')}]")


def _output(value: Any) -> str | tuple[Part, ...]:
    if isinstance(value, list) and all(isinstance(block, Mapping) for block in value):
        return tuple(map(_part, value))
    return _text(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def to_items(message: Message) -> list[Item]:
    """A message as items: as it came, or made anew; a call is an item of its own."""
    raw = carried(message, FRAMEWORK, _read)
    return _written(message) if raw is None else [raw]


def _written(message: Message) -> list[Item]:
    if message.tool_call_id is not None:
        output: Any = message.visible if isinstance(message.content, str) else _blocks(message, "input")
        return [{"type": "function_call_output", "call_id": message.tool_call_id, "output": output}]
    items: list[Item] = []
    if isinstance(message.content, str):
        if message.content or not message.tool_calls:
            items.append({"role": message.role, "content": message.content})
    elif blocks := _blocks(message, "output" if message.role == "assistant" else "input"):
        items.append({"role": message.role, "content": blocks})
    items += [
        {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    ]
    return items or [{"role": message.role, "content": ""}]


def _blocks(message: Message, side: str) -> list[Item]:
    blocks: list[Item] = []
    for part in message.parts:
        if part.kind == "text" and part.text:
            blocks.append({"type": f"{side}_text", "text": part.text})
        elif part.kind == "image":
            url = part.data.get("url")
            blocks.append({"type": "input_image", "image_url": url, "detail": part.data.get("detail", "auto")})
    return blocks
