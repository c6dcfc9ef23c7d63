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
from itertools import product
from typing import Any

from ctxkit.errors import ConfigError
from ctxkit.messages import Message, ToolCall
from ctxkit.models.chat_jinja import compile_template
from ctxkit.models.chat_shapes import as_function, as_text, fold_system, join_roles, with_tools_as_text

__all__ = ["PLAIN_TEMPLATE", "ChatTemplate", "Layout", "Slot", "pieces"]

PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message.role | capitalize }}: {{ message.content }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
"""For models that bring no template."""

_MARK = "CTXKITx7f3a9cSLOT"
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
        self._layouts: dict[object, tuple[_Plan, tuple[str | Slot, ...]]] = {}
        self._splits: dict[tuple[str, str, str], int] = {}

    def layout(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> Layout:
        """The prompt for these messages, with the opening of the answer.

        Rendered once for each structure (roles, calls, tools); other texts in the same structure cost no rendering.
        """
        key = (
            tuple((m.role, bool(m.text), m.name, m.tool_calls, m.tool_call_id) for m in messages),
            json.dumps(list(tools), sort_keys=True, default=str) if tools else "",
        )
        known = self._layouts.get(key)
        if known is None:
            known = self._find_plan(messages, tools)
            if len(self._layouts) >= 256:
                self._layouts.clear()
            self._layouts[key] = known
        plan, items = known
        filler = _Filler()
        self._fill(messages, tools, plan, filler)
        return Layout(items, tuple(filler.texts))

    def _find_plan(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]
    ) -> tuple[_Plan, tuple[str | Slot, ...]]:
        calling = bool(tools) or any(message.tool_calls or message.role == "tool" for message in messages)
        problem = ""
        for join, fold, calls in product((False, True), (False, True), _CALLS if calling else _CALLS[:1]):
            plan = _Plan(calls, fold, join)
            try:
                return plan, self._items(messages, tools, plan)
            except _Refused as error:
                problem = problem or str(error)
        raise ConfigError(
            f"the model's chat template cannot take these messages ({problem})",
            subject=" ".join(message.role for message in messages)[:80],
            remedy="Use another model, or give the counter and the model a chat template that takes them.",
        )

    def _items(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], plan: _Plan
    ) -> tuple[str | Slot, ...]:
        filler = _Filler()
        shown, shown_tools, owners = self._fill(messages, tools, plan, filler)
        rendered = self._render(shown, shown_tools, answer=True)
        if tools and shown_tools and rendered == self._render(shown, None, answer=True):
            raise _Refused("it ignores tools")
        items = tuple(_cut(rendered))
        missing = filler.needed - {item.index for item in items if isinstance(item, Slot)}
        if missing:
            what = [shown[owner].get("role", "?") for index in missing if (owner := owners.get(index)) is not None]
            raise _Refused(f"it leaves out a part of a message of role {', '.join(map(str, what)) or 'tool'}")
        return self._split_messages(items, shown, shown_tools, owners)

    def _split_messages(
        self,
        items: tuple[str | Slot, ...],
        shown: list[dict[str, Any]],
        tools: list[Any] | None,
        owners: Mapping[int, int],
    ) -> tuple[str | Slot, ...]:
        """Cut each piece where one message ends, so that a shorter dialogue's ids begin a longer one's."""
        result: list[str | Slot] = []
        for position, item in enumerate(items):
            before = items[position - 1] if position else None
            if isinstance(item, Slot) or not isinstance(before, Slot) or before.index not in owners:
                result.append(item)
                continue
            after = items[position + 1] if position + 1 < len(items) else None
            owner = owners[before.index]
            follower = owners.get(after.index, -1) if isinstance(after, Slot) else len(shown)
            if follower in (owner, -1):
                result.append(item)
                continue
            key = (item, shown[owner]["role"], shown[follower]["role"] if follower < len(shown) else "")
            if key not in self._splits:
                self._splits[key] = self._end_of_message(item, shown[: owner + 1], tools)
            end = self._splits[key]
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

    def _fill(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], plan: _Plan, filler: _Filler
    ) -> tuple[list[dict[str, Any]], list[Any] | None, dict[int, int]]:
        """The messages and tools as the template sees them, and which message owns which slot."""
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
        return shown, shown_tools, owners

    def _guard(self, value: Any, filler: _Filler) -> Any:
        """Tool schemas stay readable for the template; strings that could make a control token become slots."""
        if isinstance(value, str):
            return filler.slot(value) if self._dangerous(value) else value
        if isinstance(value, Mapping):
            return {self._guard(str(key), filler): self._guard(item, filler) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._guard(item, filler) for item in value]
        return value

    def _dangerous(self, text: str) -> bool:
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
        except ValueError:
            parsed = None
        if isinstance(parsed, dict):
            return filler.strings(parsed)
    return filler.slot(call.arguments)


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
