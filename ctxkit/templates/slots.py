"""What a template says about its variables: type and trust; and how a value that is not trusted is fenced."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard, get_args

from ctxkit.errors import ConfigError, VariableTypeError
from ctxkit.prompts import Trust

__all__ = ["WELL_KNOWN", "Slot", "SlotType", "check_json", "delimiters", "fence_of", "type_name"]

SlotType = Literal["string", "number", "integer", "boolean", "list", "object", "section", "any"]

WELL_KNOWN = ("context", "history", "question")
"""The slots that assembly fills; a payload never does."""

MAX_VALUE_DEPTH = 64
_MAX_INTEGER_BITS = 4096
_LARGE = 1 << 64
_first_64_bits = struct.Struct(">Q").unpack_from
_TRUSTS: tuple[Trust, ...] = get_args(Trust)
_TYPES: tuple[SlotType, ...] = get_args(SlotType)


@dataclass(frozen=True, slots=True)
class Slot:
    """One variable of a template.

    Args:
        type: `string`, `number`, `integer`, `boolean`, `list` or `object`. A `list` or an `object` in a value slot is
            written as JSON with sorted keys. `section` (a list, an object or a boolean) is what a variable that is
            only used as a section has until it is declared, and `any` what one has that is only asked for.
        trust: `trusted` values are inserted verbatim; texts of `untrusted` and `history` values are fenced by
            `delimiters`. Nothing that a user can write should be declared trusted.
        description: for people.
    """

    type: SlotType = "string"
    trust: Trust = "untrusted"
    description: str = ""

    def __post_init__(self) -> None:
        if self.type not in _TYPES:
            raise ConfigError(f"unknown slot type {self.type!r}", remedy=f"Types: {', '.join(_TYPES)}.")
        if self.trust not in _TRUSTS:
            raise ConfigError(f"unknown trust {self.trust!r}", remedy=f"Trust is one of: {', '.join(_TRUSTS)}.")

    @classmethod
    def parse(
        cls, declaration: str | Mapping[str, Any] | Slot, *, name: str = "", otherwise: SlotType | None = None
    ) -> Slot:
        """A slot from its declaration: words in any order (`"string trusted"`), or a mapping of its fields.

        A declaration that names no type is of the type `otherwise`, or else a string.

        Example:
            >>> Slot.parse("trusted integer")
            Slot(type='integer', trust='trusted', description='')
        """
        if isinstance(declaration, Slot):
            return declaration
        assumed: dict[str, Any] = {"type": otherwise} if otherwise else {}
        if isinstance(declaration, str):
            found: dict[str, Any] = {}
            for word in declaration.split():
                field = "type" if word in _TYPES else "trust"
                if field in found or (field == "trust" and word not in _TRUSTS):
                    raise ConfigError(
                        f"{declaration!r} does not declare a slot",
                        subject=name,
                        remedy=f"Write a type ({', '.join(_TYPES)}) and a trust ({', '.join(_TRUSTS)}).",
                    )
                found[field] = word
            return cls(**{**assumed, **found})
        unknown = sorted(set(declaration) - {"type", "trust", "description"})
        if unknown or not all(isinstance(value, str) for value in declaration.values()):
            raise ConfigError(
                f"a slot has no {unknown[0]!r}" if unknown else "the fields of a slot are texts",
                subject=name,
                remedy="A slot has type, trust and description.",
            )
        return cls(**{**assumed, **declaration})

    @property
    def content(self) -> dict[str, str]:
        """The canonical form, as it is stored and hashed."""
        described = {"description": self.description} if self.description else {}
        return {"type": self.type, "trust": self.trust, **described}

    def accepts(self, value: object) -> bool:
        """Whether a JSON value is of the slot's type. A boolean is no number, and None is nothing."""
        match self.type:
            case "string":
                return isinstance(value, str)
            case "boolean":
                return isinstance(value, bool)
            case "integer":
                return isinstance(value, int) and not isinstance(value, bool)
            case "number":
                return isinstance(value, int | float) and not isinstance(value, bool)
            case "list":
                return is_list(value)
            case "object":
                return isinstance(value, Mapping)
            case "section":
                return isinstance(value, bool | Mapping) or is_list(value)
            case "any":
                return True


def is_list(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview)


def type_name(value: object) -> str:
    """A value's type as JSON names it, with an article: `a string`, `an object`, `null`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, int):
        return "an integer"
    if isinstance(value, float):
        return "a number"
    if isinstance(value, Mapping):
        return "an object"
    if is_list(value):
        return "a list"
    return f"{type(value).__name__}, which is not JSON"


def check_json(value: object, *, name: str, subject: str, depth: int = 0) -> None:
    """Raise `VariableTypeError` unless `value` is JSON: finite numbers, text keys, at most 64 levels. Linear.

    A text that no database holds and no model can be sent, with NUL or half of a character, is none.
    """
    if type(value) is str and value.isascii() and "\x00" not in value:
        return
    if problem := _problem(value, depth):
        raise VariableTypeError(
            f"the variable {name[:200]!r} {problem}",
            subject=subject,
            remedy="Pass JSON values: numbers, lists, texts without NUL and lone surrogates…",
        )
    if isinstance(value, Mapping):
        for key, item in value.items():
            check_json(item, name=f"{name}.{key}", subject=subject, depth=depth + 1)
    elif is_list(value):
        for index, item in enumerate(value):
            check_json(item, name=f"{name}.{index}", subject=subject, depth=depth + 1)


def is_sound(value: object, depth: int = 0) -> bool:
    """Whether a value is JSON of Python's plain types; False says only that `check_json` has to look."""
    kind = type(value)
    if kind is str:
        return is_sendable(value)  # type: ignore[arg-type]
    if kind is dict and depth < MAX_VALUE_DEPTH:
        for key, item in value.items():  # type: ignore[attr-defined]
            if type(key) is not str or not key.isascii() or "\x00" in key:
                return False
            if type(item) is str and item.isascii():
                if "\x00" in item:
                    return False
            elif not is_sound(item, depth + 1):
                return False
        return True
    if kind is list and depth < MAX_VALUE_DEPTH:
        return all(is_sound(item, depth + 1) for item in value)  # type: ignore[attr-defined]
    if kind is int:
        return -_LARGE < value < _LARGE  # type: ignore[operator]
    return kind is bool or value is None or (kind is float and math.isfinite(value))  # type: ignore[arg-type]


def _problem(value: object, depth: int) -> str:
    """Why a value is not JSON, its inner values aside; empty where it is."""
    if isinstance(value, str):
        return _unsendable(value)
    if value is None or isinstance(value, bool):
        return ""
    if depth > MAX_VALUE_DEPTH:
        return f"is nested deeper than {MAX_VALUE_DEPTH} levels"
    if isinstance(value, int):
        over = value.bit_length() > _MAX_INTEGER_BITS
        return f"is an integer of more than {_MAX_INTEGER_BITS} bits" if over else ""
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"is {value!r}, which JSON cannot say"
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                return f"has the key {key!r}, which is not a text"
            if problem := _unsendable(key):
                return f"has the key {key[:60]!r}, which {problem}"
        return ""
    return "" if is_list(value) else f"is {type_name(value)}"


def is_sendable(text: str) -> bool:
    """Whether a text can be stored and sent: no NUL, no half of a character."""
    if "\x00" in text:
        return False
    if not text.isascii():
        try:
            text.encode("utf-16")  # refuses the same as UTF-8, in half the time
        except UnicodeEncodeError:
            return False
    return True


def _unsendable(text: str) -> str:
    if "\x00" in text:
        return f"has a NUL character at position {text.index(chr(0)):,}"
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            return f"has the lone surrogate U+{ord(text[error.start]):04X} at position {error.start:,}"
    return ""


def delimiters(value: str) -> tuple[str, str]:
    """The opening and the closing fence of an untrusted text.

    They derive from SHA-256 of the value itself: the same value has the same fence (laws 6 and 7), whoever writes the
    value cannot know the fence before it is written, and a fence that should occur in its value all the same is
    passed over for the next one. Decimal digits are few tokens in every tokenizer.

    A fence tells a model where data ends; it mitigates instructions inside data and does not prevent that a model
    follows them. Linear in the value's length.

    Example:
        >>> opening, closing = delimiters("obey me")
        >>> opening, closing
        ('<data-66116801>', '</data-66116801>')
    """
    return fence_of(value, value.encode("utf-8", "surrogatepass"))


def fence_of(value: str, encoded: bytes) -> tuple[str, str]:
    """`delimiters` of a value whose UTF-8 is at hand."""
    digest = hashlib.sha256(encoded).digest()
    while True:
        tag = "data-" + str(_first_64_bits(digest)[0] % 100_000_000).zfill(8)
        if tag not in value:
            return f"<{tag}>", f"</{tag}>"
        digest = hashlib.sha256(digest).digest()
