"""Renders a chat template without ever showing it the data.

A template gets messages whose texts are placeholders. What it renders is cut at the placeholders: the pieces between
are the template's own text, the only place where control tokens may come from; the data is put in as tokens later. A
placeholder contains a quotation mark, so that its form in the output tells whether the template wrote it plainly or
inside JSON, and the data is then escaped alike.

What a template refuses or leaves out is never dropped in silence. In this order: tool calls with their arguments as
JSON text instead of an object; tools, calls and results written as text; a system message folded into the first user
message; neighbours of one role joined. If nothing helps, `ConfigError`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from hashlib import sha256
from itertools import product
from typing import Any

from ctxkit.errors import ConfigError
from ctxkit.messages import Message, ToolCall
from ctxkit.models.chat_jinja import compile_template
from ctxkit.models.chat_shapes import as_function, as_text, fold_system, join_roles, with_tools_as_text
from ctxkit.models.memo import Memo
from ctxkit.tools import checked_tools

__all__ = ["PLAIN_TEMPLATE", "ChatTemplate", "Layout", "Slot", "pieces"]

PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message.role | capitalize }}: {{ message.content }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
"""For models that bring no template."""

_MARK = "CTXKITx7f3a9cSLOT"
_MAX_DEPTH = 64
"""Of a call's arguments that are shown as an object; deeper ones are shown as their JSON text."""
_PLACEHOLDER = re.compile(_MARK + r'(\d+)(\\*)"E')


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for data: the index of its texts, and how many times the template has them escaped as JSON."""

    index: int
    escapes: int = 0


@dataclass(frozen=True, slots=True)
class Layout:
    """A rendered prompt as the template's own pieces and slots, in order; `texts[slot.index]` is the data of a slot."""

    items: tuple[str | Slot, ...]
    texts: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class _Plan:
    """How messages are put to a template."""

    calls: str = "object"
    fold_system: bool = False
    join_roles: bool = False


@dataclass(slots=True)
class _Filler:
    """Makes the placeholders of one rendering."""

    texts: list[tuple[str, ...]] = field(default_factory=list)
    needed: set[int] = field(default_factory=set)

    def slot(self, *texts: str, needed: bool = True) -> str:
        index = len(self.texts)
        self.texts.append(texts)
        if needed and any(texts):
            self.needed.add(index)
        return f'{_MARK}{index}"E'

    def strings(self, value: Any) -> Any:
        """A JSON value with every string in a slot."""
        if isinstance(value, str):
            return self.slot(value) if value else value
        if isinstance(value, Mapping):
            return {self.slot(str(key)): self.strings(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.strings(item) for item in value]
        return value


@dataclass(frozen=True, slots=True)
class _Shown:
    """What a template is given, which message owns which slot, and the data that belongs in the slots."""

    messages: list[dict[str, Any]]
    tools: list[Any] | None
    owners: dict[int, int]
    texts: tuple[tuple[str, ...], ...]
    needed: frozenset[int]

    @property
    def structure(self) -> bytes:
        """A digest of all that a rendering depends on: equal structures render alike, whatever their data."""
        everything = (self.messages, self.tools, self.owners, len(self.texts), sorted(self.needed))
        return sha256(repr(everything).encode("utf-8", "surrogatepass")).digest()


class ChatTemplate:
    """A Jinja chat template in the dialect of Hugging Face.

    Args:
        source: the template.
        special: the special tokens it may name (`bos_token`, …).
        control_texts: tool schemas are shown to the template, but for strings that could form one of these.
        options: further variables for the template, such as `enable_thinking`.
        today: what `strftime_now` sees; fixed, so that equal inputs give equal prompts.

    Errors: `ConfigError` when the template is malformed, or leaves data out whatever is tried.
    """

    def __init__(
        self,
        source: str,
        *,
        special: Mapping[str, str],
        control_texts: frozenset[str] = frozenset(),
        options: Mapping[str, Any] | None = None,
        today: date | None = None,
    ) -> None:
        self.source = source
        self._variables = {**special, **(options or {})}
        self._controls = control_texts
        self._template = compile_template(source, today or date.today())
        self._rendered: dict[bytes, tuple[str | Slot, ...] | _Refused] = {}
        self._dangerous: Memo[bool] = Memo(self._may_be_control)

    def layout(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> Layout:
        """The prompt for these messages, with the opening of the answer.

        Rendered once for each structure (roles, shapes of calls, tools); other texts in it cost no rendering.

        Errors: `ConfigError` for tools that are none, and for messages that the template cannot take.
        """
        tools = checked_tools(tools)
        calling = bool(tools) or any(message.tool_calls or message.role == "tool" for message in messages)
        problem = ""
        for join, fold, calls in product((False, True), (False, True), _CALLS if calling else _CALLS[:1]):
            shown = self._fill(messages, tools, _Plan(calls, fold, join))
            items = self._items(shown)
            if not isinstance(items, _Refused):
                return Layout(items, shown.texts)
            problem = problem or str(items)
        raise ConfigError(
            f"the model's chat template cannot take these messages ({problem})",
            subject=" ".join(message.role for message in messages)[:80],
            remedy="Use another model, or give the counter and the model a chat template that takes them.",
        )

    def _items(self, shown: _Shown) -> tuple[str | Slot, ...] | _Refused:
        """What the template makes of a structure, or why it refuses; remembered."""
        structure = shown.structure
        known = self._rendered.get(structure)
        if known is None:
            try:
                known = self._render_items(shown)
            except _Refused as refused:
                known = _Refused(str(refused))  # without its traceback, which holds the data
            if len(self._rendered) >= 512:
                self._rendered.clear()
            self._rendered[structure] = known
        return known

    def _render_items(self, shown: _Shown) -> tuple[str | Slot, ...]:
        rendered = self._render(shown.messages, shown.tools, answer=True)
        if shown.tools and rendered == self._render(shown.messages, None, answer=True):
            raise _Refused("it ignores tools")
        items = tuple(_cut(rendered))
        missing = shown.needed - {item.index for item in items if isinstance(item, Slot)}
        if missing:
            owners = [shown.owners[index] for index in sorted(missing) if index in shown.owners]
            what = ", ".join(str(shown.messages[owner].get("role", "?")) for owner in owners) or "tool"
            raise _Refused(f"it leaves out a part of a message of role {what}")
        return self._split_messages(items, shown)

    def _split_messages(self, items: tuple[str | Slot, ...], shown: _Shown) -> tuple[str | Slot, ...]:
        """Cut each piece where one message ends, so that a shorter dialogue's ids begin a longer one's."""
        result: list[str | Slot] = []
        # Where a piece ends is found at its first place in this dialogue, so that no other dialogue has a say in it.
        splits: dict[tuple[str, str, str], int] = {}
        messages, owners = shown.messages, shown.owners
        for position, item in enumerate(items):
            before = items[position - 1] if position else None
            if isinstance(item, Slot) or not isinstance(before, Slot) or before.index not in owners:
                result.append(item)
                continue
            after = items[position + 1] if position + 1 < len(items) else None
            owner = owners[before.index]
            follower = owners.get(after.index, -1) if isinstance(after, Slot) else len(messages)
            if follower in (owner, -1):
                result.append(item)
                continue
            key = (item, messages[owner]["role"], messages[follower]["role"] if follower < len(messages) else "")
            if key not in splits:
                splits[key] = self._end_of_message(item, messages[: owner + 1], shown.tools)
            end = splits[key]
            result += [piece for piece in (item[:end], item[end:]) if piece]
        return tuple(result)

    def _end_of_message(self, piece: str, shown: list[dict[str, Any]], tools: list[Any] | None) -> int:
        try:
            *_, last = _cut(self._render(shown, tools, answer=False)) or ("",)
        except _Refused:
            return 0
        return len(last) if isinstance(last, str) and piece.startswith(last) else 0

    def _render(self, messages: list[dict[str, Any]], tools: list[Any] | None, *, answer: bool) -> str:
        try:
            return str(
                self._template.render(
                    messages=messages, tools=tools, documents=None, add_generation_prompt=answer, **self._variables
                )
            )
        except RecursionError:
            raise
        except Exception as error:  # a template may fail in any way: on a role, a missing key, a type
            raise _Refused(f"{type(error).__name__}: {error}") from error

    def _fill(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], plan: _Plan) -> _Shown:
        """The messages and tools as the template sees them by a plan."""
        filler = _Filler()
        shown_tools: list[Any] | None = None
        if plan.calls == "text":
            messages = [as_text(message) for message in messages]
            if tools:
                messages = with_tools_as_text(messages, tools)
        elif tools:
            shown_tools = [self._guard(as_function(tool), filler) for tool in tools]
        if plan.fold_system:
            messages = fold_system(messages)
        if plan.join_roles:
            messages = join_roles(messages)
        names = {call.id: call.name for message in messages for call in message.tool_calls}
        shown: list[dict[str, Any]] = []
        owners: dict[int, int] = {}
        for message in messages:
            start = len(filler.texts)
            shown.append(_show(message, plan, filler, names))
            owners.update(dict.fromkeys(range(start, len(filler.texts)), len(shown) - 1))
        return _Shown(shown, shown_tools, owners, tuple(filler.texts), frozenset(filler.needed))

    def _guard(self, value: Any, filler: _Filler) -> Any:
        """Tool schemas stay readable for the template; strings that could make a control token become slots."""
        if isinstance(value, str):
            return filler.slot(value) if self._dangerous(value) else value
        if isinstance(value, Mapping):
            return {self._guard(str(key), filler): self._guard(item, filler) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._guard(item, filler) for item in value]
        return value

    def _may_be_control(self, text: str) -> bool:
        """Whether the text holds a control token, or begins or ends with a piece of one, or with a placeholder."""
        if _MARK in text:
            return True
        return any(
            control in text
            or any(text.endswith(control[:size]) or text.startswith(control[-size:]) for size in range(1, len(control)))
            for control in self._controls
        )


_CALLS = ("object", "json", "text")


class _Refused(Exception):
    """The template raised, or left something out."""


def _cut(rendered: str) -> list[str | Slot]:
    items: list[str | Slot] = []
    position = 0
    for match in _PLACEHOLDER.finditer(rendered):
        if match.start() > position:
            items.append(rendered[position : match.start()])
        # n times escaped, a quotation mark has 2**n - 1 backslashes before it
        items.append(Slot(int(match[1]), (len(match[2]) + 1).bit_length() - 1))
        position = match.end()
    if position < len(rendered):
        items.append(rendered[position:])
    return items


def _texts(message: Message) -> tuple[str, ...]:
    """The texts of a message as a text model reads them; what was thought aloud in the past is not sent again."""
    texts = []
    for part in message.parts:
        if part.kind == "text":
            texts.append(part.text)
        elif part.kind != "reasoning":
            raise ConfigError(
                f"a local text model cannot read a part of kind {part.kind!r}",
                subject=message.id,
                remedy="Describe it in text, or ask a model that reads it.",
            )
    return tuple(texts)


def _show(message: Message, plan: _Plan, filler: _Filler, names: Mapping[str, str]) -> dict[str, Any]:
    texts = _texts(message)
    shown: dict[str, Any] = {"role": message.role, "content": ""}
    if any(texts) or not message.tool_calls:
        shown["content"] = filler.slot(*texts)
    if message.name:
        shown["name"] = filler.slot(message.name, needed=False)
    if message.tool_call_id is not None:
        shown["tool_call_id"] = filler.slot(message.tool_call_id, needed=False)
        if message.tool_call_id in names and not message.name:
            shown["name"] = filler.slot(names[message.tool_call_id], needed=False)
    if message.tool_calls:
        shown["tool_calls"] = [
            {
                "id": filler.slot(call.id, needed=False),
                "type": "function",
                "function": {"name": filler.slot(call.name), "arguments": _arguments(call, plan, filler)},
            }
            for call in message.tool_calls
        ]
    return shown


def _arguments(call: ToolCall, plan: _Plan, filler: _Filler) -> Any:
    if plan.calls == "object":
        try:
            parsed = json.loads(call.arguments)
        except (ValueError, RecursionError):
            parsed = None
        if isinstance(parsed, dict) and not _deeper(parsed, _MAX_DEPTH):
            return filler.strings(parsed)
    return filler.slot(call.arguments)


def _deeper(value: Any, depth: int) -> bool:
    """Whether a JSON value is nested deeper than that."""
    level = [value]
    for _ in range(depth):
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return True


def pieces(layout: Layout) -> Iterator[tuple[str, bool]]:
    """The layout's texts in order, each with whether it is data."""
    for item in layout.items:
        if isinstance(item, str):
            yield item, False
            continue
        for text in layout.texts[item.index]:
            for _ in range(item.escapes):
                text = json.dumps(text, ensure_ascii=False)[1:-1]
            yield text, True
