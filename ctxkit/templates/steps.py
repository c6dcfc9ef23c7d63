"""The steps of a template's program: its own text, a value, a section; and the rendering that they write to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ctxkit.errors import MissingVariableError, TemplateError, VariableTypeError
from ctxkit.templates.language import Kind, Path
from ctxkit.templates.rendering import Source
from ctxkit.templates.slots import delimiters, is_list, type_name

__all__ = ["Fixed", "Insert", "Repeat", "State", "Step"]

_MAX_STEPS = 1_000_000


class State:
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


Item = tuple[Any, Path, "int | None", Any]
"""The item of the section around: its value, the section's path, its index in a list, and the item around that."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """The template's own text, or an open slot."""

    text: str
    source: Source

    def run(self, state: State, item: Item | None) -> None:
        state.texts.append(self.text)
        state.sources.append(self.source)


@dataclass(frozen=True, slots=True)
class Insert:
    """A value, inserted once. `whole` is the slot's type where the value is that of a variable itself."""

    relative: bool
    keys: tuple[str, ...]
    source: Source
    fence: Source | None
    whole: str

    def run(self, state: State, item: Item | None) -> None:
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

    def text(self, state: State) -> str:
        """The text of a value outside of every section."""
        value = _find(state, None, False, self.keys)
        if type(value) is str:
            return value
        return _atom(value) if isinstance(value, bool | int | float) else self._text(state, None, value)

    def _text(self, state: State, item: Item | None, value: Any) -> str:
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
class Repeat:
    """A section or a condition."""

    path: Path
    kind: Kind
    body: tuple[Step, ...]

    def run(self, state: State, item: Item | None) -> None:
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

    def _once(self, state: State, item: Item | None) -> None:
        state.spend(len(self.body))
        for step in self.body:
            step.run(state, item)


Step = Fixed | Insert | Repeat


def _find(state: State, item: Item | None, relative: bool, keys: tuple[str, ...]) -> Any:
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


def _no_field(state: State, path: Path, item: Item | None, value: Any, key: str) -> TemplateError:
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


def _name(path: Path, item: Item | None) -> str:
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
