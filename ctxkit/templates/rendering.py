"""One pass from compiled messages and a payload to pieces of text. A value is inserted and never looked at again."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ctxkit.errors import MissingVariableError, TemplateError, VariableTypeError
from ctxkit.messages import Role
from ctxkit.prompts import Trust
from ctxkit.templates.language import Kind, Node, Path, Value
from ctxkit.templates.language import Literal as Text
from ctxkit.templates.slots import WELL_KNOWN, Slot, delimiters, is_list, type_name

__all__ = ["MAX_OUTPUT", "Piece", "RenderedMessage", "TemplateRole", "render_nodes"]

TemplateRole = Literal["system", "user", "assistant", "history"]
MAX_OUTPUT = 16_000_000
"""The characters one rendering may have; `render(max_characters=…)` sets another limit."""

_MAX_STEPS = 1_000_000


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a rendered message that has one source.

    Args:
        text: verbatim; empty where `slot` is set.
        trust: `trusted` for the template's own text, else the trust of the variable.
        section: a message's role for the template's own text, the variable's name for a value, or the slot's name.
        slot: `context`, `history` or `question`, where assembly inserts; None everywhere else.
    """

    text: str
    trust: Trust
    section: str
    slot: str | None = None


@dataclass(frozen=True, slots=True)
class RenderedMessage:
    """A message as pieces. The role `history` marks where the dialogue's messages are inserted."""

    role: TemplateRole
    pieces: tuple[Piece, ...]

    @property
    def text(self) -> str:
        """The texts of the pieces, joined; slots that assembly fills are missing."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def message_role(self) -> Role:
        """The role of the message to send. Raises `TemplateError` for the `history` marker."""
        if self.role == "history":
            raise TemplateError("the history marker is no message", remedy="Insert the dialogue's messages here.")
        return self.role


@dataclass(frozen=True, slots=True)
class _Item:
    """The item of the section around, and the variable that it comes from."""

    value: Any
    name: str
    root: str


class _Output:
    """Pieces of one message; neighbours of one source become one."""

    def __init__(self) -> None:
        self._pieces: list[tuple[list[str], Trust, str, str | None]] = []

    def add(self, text: str, trust: Trust, section: str, slot: str | None = None) -> None:
        if not text and slot is None:
            return
        if trust == "trusted" and slot is None and self._pieces:
            texts, last_trust, last_section, last_slot = self._pieces[-1]
            if (last_trust, last_section, last_slot) == (trust, section, None):
                texts.append(text)
                return
        self._pieces.append(([text], trust, section, slot))

    def pieces(self) -> tuple[Piece, ...]:
        return tuple(Piece("".join(texts), trust, section, slot) for texts, trust, section, slot in self._pieces)


class Renderer:
    """One rendering: the payload, the limits, and what is used up of them."""

    def __init__(
        self,
        payload: Mapping[str, Any],
        variables: Mapping[str, Slot],
        well_known: Collection[str],
        *,
        subject: str,
        max_characters: int,
    ) -> None:
        self._payload = payload
        self._variables = variables
        self._well_known = well_known
        self._subject = subject
        self._max_characters = max_characters
        self._characters = 0
        self._steps = 0

    def message(self, role: TemplateRole, nodes: Sequence[Node]) -> RenderedMessage:
        output = _Output()
        if role == "history":
            output.add("", "history", "history", "history")
        else:
            self._nodes(nodes, None, output, role)
        return RenderedMessage(role, output.pieces())

    def _nodes(self, nodes: Sequence[Node], item: _Item | None, output: _Output, role: str) -> None:
        for node in nodes:
            self._spend(len(node.text) if isinstance(node, Text) else 0)
            if isinstance(node, Text):
                output.add(node.text, "trusted", role)
            elif isinstance(node, Value):
                self._value(node.path, item, output, role)
            else:
                for inner in self._items(node.path, node.kind, item):
                    self._spend(0)
                    self._nodes(node.body, inner, output, role)

    def _spend(self, characters: int) -> None:
        self._characters += characters
        self._steps += 1
        if self._characters > self._max_characters:
            raise TemplateError(
                f"the text grows over {self._max_characters:,} characters",
                subject=self._subject,
                remedy="Shorten the values, or raise max_characters.",
            )
        if self._steps > _MAX_STEPS:
            raise TemplateError(
                f"the sections repeat more than {_MAX_STEPS:,} times",
                subject=self._subject,
                remedy="Shorten the lists, or nest fewer of them.",
            )

    def _value(self, path: Path, item: _Item | None, output: _Output, role: str) -> None:
        name = path.keys[0] if path.keys else ""
        if not path.relative and name in WELL_KNOWN and name in self._well_known:
            output.add("", self._variables[name].trust, name, name)
            return
        value, shown, root = self._find(path, item)
        slot = self._variables[root]
        whole = not path.relative and len(path.keys) == 1
        text = self._text(value, shown, as_json=whole and slot.type in ("list", "object"))
        self._spend(len(text))
        if slot.trust != "trusted" and (isinstance(value, str) or not _is_atom(value)):
            opening, closing = delimiters(text)
            self._spend(len(opening) + len(closing))
            output.add(opening, "trusted", role)
            output.add(text, slot.trust, root)
            output.add(closing, "trusted", role)
        else:
            output.add(text, slot.trust, root)

    def _text(self, value: Any, shown: str, *, as_json: bool) -> str:
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int | float):
            return repr(value)
        if as_json:
            return json.dumps(value, sort_keys=True, ensure_ascii=False, default=_plain)
        raise VariableTypeError(
            f"{shown!r} is {type_name(value)} and has no text",
            subject=self._subject,
            remedy="Pass a text or a number."
            if value is None
            else f"Write a section over it, or declare the slot's type: {'object' if _is_object(value) else 'list'}.",
        )

    def _items(self, path: Path, kind: Kind, item: _Item | None) -> Sequence[_Item | None]:
        value, shown, root = self._find(path, item)
        if kind != "#":
            return [item] if bool(value) == (kind == "?") else []
        if value is None or isinstance(value, bool):
            return [item] if value else []
        if _is_object(value):
            return [_Item(value, shown, root)] if value else []
        if is_list(value):
            return [_Item(entry, f"{shown}.{index}", root) for index, entry in enumerate(value)]
        raise VariableTypeError(
            f"{shown!r} is {type_name(value)} and cannot be a section",
            subject=self._subject,
            remedy="A section takes a list, an object or a boolean; a condition, {{?name}}, takes everything.",
        )

    def _find(self, path: Path, item: _Item | None) -> tuple[Any, str, str]:
        """The value at a path, its name for people, and the variable it belongs to."""
        keys = path.keys
        if path.relative:
            if item is None:
                raise VariableTypeError(
                    f"{{{{{path}}}}} has no item here",
                    subject=self._subject,
                    remedy="The section around it is a boolean; only lists and objects have items.",
                )
            value, shown, root = item.value, item.name, item.root
        else:
            root = shown = keys[0]
            value, keys = self._payload[root], keys[1:]
        for key in keys:
            if not _is_object(value):
                raise VariableTypeError(
                    f"{shown!r} is {type_name(value)} and has no field {key!r}",
                    subject=self._subject,
                    remedy="Pass an object.",
                )
            if key not in value:
                raise MissingVariableError(
                    f"the variable {shown!r} has no field {key!r}",
                    subject=self._subject,
                    remedy=f"Pass it in the payload, as {shown}.{key}; null, where a section asks for it.",
                )
            value, shown = value[key], f"{shown}.{key}"
        return value, shown, root


def render_nodes(
    messages: Sequence[tuple[TemplateRole, Sequence[Node]]],
    payload: Mapping[str, Any],
    variables: Mapping[str, Slot],
    *,
    well_known: Collection[str],
    subject: str,
    max_characters: int,
) -> list[RenderedMessage]:
    """Every message as pieces, in order. The number of messages and their roles do not depend on the payload."""
    renderer = Renderer(payload, variables, well_known, subject=subject, max_characters=max_characters)
    return [renderer.message(role, nodes) for role, nodes in messages]


def _is_object(value: object) -> bool:
    return isinstance(value, Mapping)


def _is_atom(value: object) -> bool:
    return isinstance(value, bool | int | float)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else list(value)
