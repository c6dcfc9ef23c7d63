"""What no database holds is refused before anything is written: NUL, lone surrogates, NaN, keys that are not text.

Nothing is repaired in silence. Stripping a NUL from a key can make it equal to its neighbour and overwrite it, and a
replaced surrogate changes offsets; so the error names the place and the remedy, and the caller decides.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from ctxkit.checking import shown
from ctxkit.errors import StorageError

__all__ = ["checked_name", "checked_plain_name", "checked_text", "decoded", "encoded", "parse_json"]

NAME_LIMIT = 512
"""Bytes of UTF-8 in a name or an id: three of them and a tenant still fit one B-tree key of PostgreSQL (2,704)."""

DEPTH_LIMIT = 100
INTEGER_BITS = 4096


def checked_text(text: str, what: str) -> str:
    """The text itself. Raises `StorageError` where it holds NUL or a lone surrogate. Linear."""
    if not isinstance(text, str):
        raise StorageError(f"{what} is a {type(text).__name__}, not text", remedy="Give a str.")
    if (position := text.find("\x00")) >= 0:
        raise StorageError(
            f"{what} has a NUL character at position {position:,}",
            subject=_near(text, position),
            remedy="No database stores it as text: remove it, or read the file as what it is (is it binary?).",
        )
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise StorageError(
                f"{what} has the lone surrogate U+{ord(text[error.start]):04X} at position {error.start:,}",
                subject=_near(text, error.start),
                remedy="It is half of a character: decode the source again with the right encoding, or replace it.",
            ) from None
    return text


def checked_name(name: str, what: str, *, limit: int = NAME_LIMIT) -> str:
    """A text that is a key: not empty, and at most `limit` bytes of UTF-8."""
    checked_text(name, what)
    if not name:
        raise StorageError(f"{what} is empty", remedy="Give it a name of at least one character.")
    if (size := len(name.encode("utf-8"))) > limit:
        raise StorageError(
            f"{what} is {size:,} bytes long, {limit} is the most",
            subject=name[:60],
            remedy="Give it a shorter name, for example a hash of this one.",
        )
    return name


def checked_plain_name(name: str, what: str) -> str:
    """A name that people type and compare: printable ASCII, so that no two of them look alike."""
    checked_name(name, what)
    odd = next((sign for sign in name if not " " <= sign <= "~"), None)
    if odd is not None or name != name.strip():
        raise StorageError(
            f"{what} has the character U+{ord(odd):04X}" if odd is not None else f"{what} begins or ends with a space",
            subject=ascii(name[:60]),
            remedy="Use printable ASCII: two names that look alike must be the same name.",
        )
    return name


def encoded(value: Any, what: str) -> str:
    """The JSON text of a value, its keys in their order. Raises `StorageError` naming the path of what is not JSON."""
    return json.dumps(_plain(value, what, "$", 0), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def decoded(text: str, *, number: Callable[[str], Any] | None = None) -> Any:
    """The value of a JSON text that the store wrote. Raises `StorageError` where it is none any more."""
    try:
        return json.loads(text, parse_float=number, parse_int=number)
    except (ValueError, RecursionError) as error:
        raise StorageError(
            f"what is stored is not the JSON that was written ({str(error)[:100]})",
            subject=ascii(text[:40]),
            remedy="Something else has changed the database: restore a backup of it.",
        ) from error


def parse_json(text: str | bytes, *, what: str = "the JSON") -> Any:
    """The value of a JSON text from outside, for payload files and request bodies.

    Stricter than `json.loads`: a key that stands twice in one object, NaN and Infinity are errors, since readers
    disagree on what they mean.

    Raises:
        StorageError: the text is not strict JSON.

    Example:
        >>> parse_json('{"tone": "brief"}')
        {'tone': 'brief'}
    """

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in items:
            if key in found:
                raise StorageError(
                    f"{what} has the key {_cut(repr(key))} twice in one object", remedy="Keep one of the two."
                )
            found[key] = value
        return found

    def constant(name: str) -> Any:
        raise StorageError(f"{what} holds {name}, which is not JSON", remedy="Use null or a finite number.")

    try:
        value = json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{what} cannot be parsed: {error}", remedy="Check it with a JSON linter.") from error
    return _plain(value, what, "$", 0)


def _plain(value: Any, what: str, path: str, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return checked_text(value, f"{what} at {_cut(path)}")
    if isinstance(value, int):
        if value.bit_length() > INTEGER_BITS:
            raise StorageError(
                f"{what} at {_cut(path)} is an integer of {value.bit_length():,} bits",
                remedy=f"At most {INTEGER_BITS:,} bits are stored; keep it as text.",
            )
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise StorageError(
                f"{what} at {_cut(path)} is {value}, which is not JSON", remedy="Use null or a finite number."
            )
        return float(value)
    if depth >= DEPTH_LIMIT:
        raise StorageError(f"{what} is nested more than {DEPTH_LIMIT} deep", remedy="Flatten it.")
    if isinstance(value, Mapping):
        return {_key(key, what, path): _plain(item, what, _join(path, key), depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, what, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
    raise StorageError(
        f"{what} at {_cut(path)} is a {type(value).__name__}, which is not JSON",
        remedy="Use text, numbers, true, false, null, lists and objects; write a date as ISO 8601 text.",
    )


def _key(key: Any, what: str, path: str) -> str:
    # 1 and "1" would become one key in JSON, and the second value would silently win.
    if not isinstance(key, str):
        raise StorageError(f"{what} at {_cut(path)} has the key {shown(key)}, which is not text", remedy="Use text.")
    return str(checked_text(key, f"{what}, in a key at {_cut(path)},"))


def _join(path: str, key: Any) -> str:
    return f"{path}.{key}" if isinstance(key, str) and key.isidentifier() else f"{path}[{key!r}]"


def _cut(text: str) -> str:
    """A key or a path in an error's text, which is one line and no book."""
    return text if len(text) <= 200 else f"{text[:200]}…"


def _near(text: str, position: int) -> str:
    return ascii(text[max(0, position - 15) : position + 15])
