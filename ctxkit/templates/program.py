"""One pass from compiled messages and a payload to texts. A value is inserted and never looked at again.

A template becomes a program once: each message a flat run of texts and slots where it has no sections, else a tree of
them. To render is to walk it, to collect texts by reference, and to join them when somebody asks for the text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ctxkit.errors import MissingVariableError, TemplateError, VariableTypeError
from ctxkit.templates.language import Kind, Node, Path, Value
from ctxkit.templates.language import Literal as Text
from ctxkit.templates.payload import PayloadCheck
from ctxkit.templates.rendering import RenderedMessage, Source, TemplateRole
from ctxkit.templates.slots import Slot, delimiters, fence_of, is_list, is_sendable, type_name

__all__ = ["Program"]

_MAX_STEPS = 1_000_000
_FEW = 32


class Program:
    """A template, ready to render.

    Args:
        messages: roles and nodes.
        variables: every variable of the template.
        open_slots: the variables that assembly fills.
        subject: how errors name the template.
        schemas: checks of the payload beyond the types of slots.
    """

    def __init__(
        self,
        messages: Sequence[tuple[TemplateRole, Sequence[Node]]],
        variables: Mapping[str, Slot],
        *,
        open_slots: Collection[str],
        subject: str,
        schemas: Sequence[Callable[[Mapping[str, Any], str], None]] = (),
    ) -> None:
        self._subject = subject
        self._schemas = schemas
        self._check = PayloadCheck(variables, open_slots, subject)
        self._names = self._check.wanted.keys()
        self._others = any(slot.type != "string" for slot in self._check.wanted.values())
        self._messages = [_compile(role, nodes, variables, open_slots) for role, nodes in messages]
        self._flat = all(message.fills is not None for message in self._messages)
        self._plain = self._flat and not any(message.reaches for message in self._messages)

    def render(self, payload: Mapping[str, Any], max_characters: int) -> list[RenderedMessage]:
        """Every message, in order. Their number and roles do not depend on the payload. Linear in the output."""
        if self._flat and not self._schemas:
            if type(payload) is not dict or payload.keys() != self._names:
                self._check.names(payload)
            if self._others:
                self._check.all_but_texts(payload)
        else:
            self._check(payload)
            for check in self._schemas:
                check(payload, self._subject)
        state = None if self._plain else _State(payload, self._subject)
        rendered: list[RenderedMessage] = []
        characters = 0
        sources: Sequence[Source]
        for message in self._messages:
            if message.fills is None and state is not None:
                texts = state.texts = []
                sources = state.sources = []
                for step in message.steps:
                    step.run(state, None)
            else:
                texts, sources = message.texts.copy(), message.sources
                for index, name in message.fills or ():
                    value = texts[index] = payload[name]
                    if type(value) is not str:
                        self._check(payload)
                for index in message.fenced:
                    texts[index - 1], texts[index + 1] = self._fence(texts[index], payload)
                if state is not None:
                    for index, insert in message.reaches:
                        texts[index] = insert.text(state)
            # A few values are in memory already; many are counted before they are joined.
            if len(texts) > _FEW and characters + sum(map(len, texts)) > max_characters:
                raise self._too_long(max_characters)
            text = "".join(texts)
            characters += len(text)
            if characters > max_characters:
                raise self._too_long(max_characters)
            if message.unseen and not is_sendable(text):
                self._check(payload)
            rendered.append(RenderedMessage.of(message.role, text, texts, sources))
        return rendered

    def _too_long(self, max_characters: int) -> TemplateError:
        return TemplateError(
            f"the text grows over {max_characters:,} characters",
            subject=self._subject,
            remedy="Shorten the values, or raise max_characters.",
        )

    def _fence(self, value: str, payload: Mapping[str, Any]) -> tuple[str, str]:
        if "\x00" in value:
            self._check(payload)
        try:
            return fence_of(value, value.encode("utf-8"))
        except UnicodeEncodeError:
            self._check(payload)
            raise


@dataclass(frozen=True, slots=True)
class _Message:
    """A message's program: texts with places to fill, or else steps.

    The places are those of text variables, by name, and those of values without fences inside of objects; `fenced` are
    the places that have one for a fence on both sides. Text variables are not looked at before: whether they can be
    sent shows when they are encoded for a fence, and is asked once, of the whole message, where some are `unseen`.
    """

    role: TemplateRole
    steps: tuple[_Step, ...]
    texts: list[str] = field(default_factory=list)
    sources: tuple[Source, ...] = ()
    fills: tuple[tuple[int, str], ...] | None = None
    fenced: tuple[int, ...] = ()
    unseen: bool = False
    reaches: tuple[tuple[int, _Insert], ...] = ()


def _compile(
    role: TemplateRole, nodes: Sequence[Node], variables: Mapping[str, Slot], open_slots: Collection[str]
) -> _Message:
    if role == "history":
        return _Message(role, (), [""], (Source("history", "history", "history"),), ())
    steps = _steps(nodes, role, variables, open_slots)
    texts: list[str] = []
    sources: list[Source] = []
    fills: list[tuple[int, str]] = []
    fenced: list[int] = []
    reaches: list[tuple[int, _Insert]] = []
    for step in steps:
        if isinstance(step, _Fixed):
            texts.append(step.text)
            sources.append(step.source)
        elif isinstance(step, _Insert) and step.whole == "string":
            if step.fence is None:
                fills.append((len(texts), step.keys[0]))
                texts.append("")
                sources.append(step.source)
            else:
                fills.append((len(texts) + 1, step.keys[0]))
                fenced.append(len(texts) + 1)
                texts += ["", "", ""]
                sources += [step.fence, step.source, step.fence]
        elif isinstance(step, _Insert) and not step.relative and step.fence is None:
            reaches.append((len(texts), step))
            texts.append("")
            sources.append(step.source)
        else:
            return _Message(role, steps)
    return _Message(
        role,
        steps,
        texts,
        tuple(sources),
        tuple(fills),
        tuple(fenced),
        unseen=len(fills) > len(fenced),
        reaches=tuple(reaches),
    )


def _steps(
    nodes: Sequence[Node],
    role: TemplateRole,
    variables: Mapping[str, Slot],
    open_slots: Collection[str],
    root: str = "",
) -> tuple[_Step, ...]:
    own = Source("trusted", role)
    steps: list[_Step] = []
    for node in nodes:
        if isinstance(node, Text):
            steps.append(_Fixed(node.text, own))
            continue
        path = node.path
        name = root if path.relative else path.keys[0]
        if isinstance(node, Value):
            slot = variables[name]
            if name in open_slots and not path.relative:
                steps.append(_Fixed("", Source(slot.trust, name, name)))
                continue
            whole = slot.type if not path.relative and len(path.keys) == 1 else ""
            fence = own if slot.trust != "trusted" else None
            steps.append(_Insert(path.relative, path.keys, Source(slot.trust, name), fence, whole))
        else:
            body = _steps(node.body, role, variables, open_slots, name if node.kind == "#" else root)
            steps.append(_Repeat(path, node.kind, body))
    return tuple(steps)


class _State:
    """One rendering: the payload, what has been collected of the message, and what is used up of the limits."""

    __slots__ = ("fences", "json", "payload", "sources", "steps", "subject", "texts")

    def __init__(self, payload: Mapping[str, Any], subject: str) -> None:
        self.payload = payload
        self.subject = subject
        self.texts: list[str] = []
        self.sources: list[Source] = []
        self.steps = 0
        self.fences: dict[str, tuple[str, str]] = {}
        self.json: dict[str, str] = {}

    def fence(self, text: str) -> tuple[str, str]:
        """A text that stands at several places is hashed once."""
        found = self.fences.get(text)
        if found is None:
            found = self.fences[text] = delimiters(text)
        return found

    def spend(self, steps: int) -> None:
        """Count what sections do: nested ones multiply, and a small payload must not take for ever."""
        self.steps += steps
        if self.steps > _MAX_STEPS:
            raise TemplateError(
                f"the sections repeat more than {_MAX_STEPS:,} times",
                subject=self.subject,
                remedy="Shorten the lists, or nest fewer of them.",
            )


_Item = tuple[Any, Path, "int | None", Any]
"""The item of the section around: its value, the section's path, its index in a list, and the item around that."""


@dataclass(frozen=True, slots=True)
class _Fixed:
    """The template's own text, or an open slot."""

    text: str
    source: Source

    def run(self, state: _State, item: _Item | None) -> None:
        state.texts.append(self.text)
        state.sources.append(self.source)


@dataclass(frozen=True, slots=True)
class _Insert:
    """A value, inserted once. `whole` is the slot's type where the value is that of a variable itself."""

    relative: bool
    keys: tuple[str, ...]
    source: Source
    fence: Source | None
    whole: str

    def run(self, state: _State, item: _Item | None) -> None:
        value = _find(state, item, self.relative, self.keys)
        texts, sources = state.texts, state.sources
        if type(value) is not str:
            if isinstance(value, bool | int | float):
                texts.append(_atom(value))
                sources.append(self.source)
                return
            value = self._text(state, item, value)
        if self.fence is None:
            texts.append(value)
            sources.append(self.source)
        else:
            opening, closing = state.fence(value)
            texts += (opening, value, closing)
            sources += (self.fence, self.source, self.fence)

    def text(self, state: _State) -> str:
        """The text of a value outside of every section."""
        value = _find(state, None, False, self.keys)
        if type(value) is str:
            return value
        return _atom(value) if isinstance(value, bool | int | float) else self._text(state, None, value)

    def _text(self, state: _State, item: _Item | None, value: Any) -> str:
        if isinstance(value, str):
            return str(value)
        if self.whole in ("list", "object"):
            name = self.keys[0]
            if name not in state.json:
                state.json[name] = json.dumps(value, sort_keys=True, ensure_ascii=False, default=_plain)
            return state.json[name]
        kind = "object" if isinstance(value, Mapping) else "list"
        raise VariableTypeError(
            f"{_name(Path(self.relative, self.keys), item)!r} is {type_name(value)} and has no text",
            subject=state.subject,
            remedy="Pass a text or a number."
            if value is None
            else f"Write a section over it, or declare the slot's type: {kind}.",
        )


@dataclass(frozen=True, slots=True)
class _Repeat:
    """A section or a condition."""

    path: Path
    kind: Kind
    body: tuple[_Step, ...]

    def run(self, state: _State, item: _Item | None) -> None:
        path = self.path
        value = _find(state, item, path.relative, path.keys)
        if self.kind != "#":
            if bool(value) == (self.kind == "?"):
                self._once(state, item)
        elif isinstance(value, list) or is_list(value):
            weight, body = 1 + len(self.body), self.body
            for index, entry in enumerate(value):
                state.spend(weight)
                inner = (entry, path, index, item)
                for step in body:
                    step.run(state, inner)
        elif value is None or isinstance(value, bool):
            if value:
                self._once(state, item)
        elif isinstance(value, Mapping):
            if value:
                self._once(state, (value, path, None, item))
        else:
            raise VariableTypeError(
                f"{_name(path, item)!r} is {type_name(value)} and cannot be a section",
                subject=state.subject,
                remedy="A section takes a list, an object or a boolean; a condition, {{?name}}, takes everything.",
            )

    def _once(self, state: _State, item: _Item | None) -> None:
        state.spend(len(self.body))
        for step in self.body:
            step.run(state, item)


_Step = _Fixed | _Insert | _Repeat


def _find(state: _State, item: _Item | None, relative: bool, keys: tuple[str, ...]) -> Any:
    """The value at a path; `PayloadCheck` has seen that the variables themselves are there."""
    value: Any
    if not relative:
        value = state.payload[keys[0]]
        if len(keys) == 1:
            return value
        rest = 1
    elif item is None:
        raise VariableTypeError(
            f"{{{{{Path(relative, keys)}}}}} has no item here",
            subject=state.subject,
            remedy="The section around it is a boolean; only lists and objects have items.",
        )
    else:
        value, rest = item[0], 0
    for at in range(rest, len(keys)):
        key = keys[at]
        if (type(value) is dict and key in value) or (isinstance(value, Mapping) and key in value):
            value = value[key]
        else:
            raise _no_field(state, Path(relative, keys[:at]), item, value, key)
    return value


def _no_field(state: _State, path: Path, item: _Item | None, value: Any, key: str) -> TemplateError:
    shown = _name(path, item)
    if isinstance(value, Mapping):
        return MissingVariableError(
            f"the variable {shown!r} has no field {key!r}",
            subject=state.subject,
            remedy=f"Pass it in the payload, as {shown}.{key}; null, where a section asks for it.",
        )
    return VariableTypeError(
        f"{shown!r} is {type_name(value)} and has no field {key!r}", subject=state.subject, remedy="Pass an object."
    )


def _name(path: Path, item: _Item | None) -> str:
    """How people name a path: `items.2.title`."""
    if not path.relative or item is None:
        return ".".join(path.keys)
    _, section, index, around = item
    names = (_name(section, around), *(() if index is None else (str(index),)), *path.keys)
    return ".".join(names)


def _atom(value: float | bool) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else repr(value)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else list(value)
