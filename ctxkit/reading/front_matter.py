"""The front matter of a Markdown file: the small part of YAML that people write there."""

from __future__ import annotations

import math
import re
from typing import Any

__all__ = ["front_matter"]

_OPENING = re.compile(r"---[ \t]*\r?\n")
_CLOSING = re.compile(r"^(?:---|\.\.\.)[ \t]*$\r?\n?", re.MULTILINE)
_KEY = re.compile(r"""(?:"([^"]+)"|'([^']+)'|([^\s#:'"\-\[\]{},&*!|>%@`][^:#]*+))\s*+:(?:\s+(.*))?$""")
_ITEM = re.compile(r"-(?:\s+(.*))?$")
# An exponent needs a point or a sign before it is one (YAML 1.1): 7e12345 and 1234e56 are names of commits.
_NUMBER = re.compile(r"[-+]?(?:\d+(?:[eE][-+]\d+)?|(?:\d*\.\d+|\d+\.\d*)(?:[eE][-+]?\d+)?)")
_LIST_ITEM = re.compile(r"""\s*+("(?:[^"\\]|\\.)*+"|'(?:[^']|'')*+'|[^\s,"'\[\]{}][^,\[\]{}]*+|)\s*+(?:,|$)""")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None, "~": None, "": None}
_LIMIT = 1 << 16


def front_matter(text: str) -> tuple[dict[str, Any], int]:
    """The fields at the top of `text` between two lines `---`, and where the body starts; ({}, 0) without any.

    Reads `key: value`, quoted texts, numbers, booleans, null, lists on one line or one item a line, and block texts
    (`|`, `>`). A date stays text, and so does a number that is none to a store (`1.0e999`, `nan`). What is deeper than
    that (nested lists and maps, anchors) is kept as the text it is. A block that holds anything but fields is a
    horizontal rule and some prose, not front matter. Linear in the block, which is at most 64 KiB.
    """
    opening = _OPENING.match(text)
    if opening is None:
        return {}, 0
    closing = _CLOSING.search(text, opening.end(), opening.end() + _LIMIT)
    if closing is None:
        return {}, 0
    fields = _fields(text[opening.end() : closing.start()].splitlines())
    return (fields, closing.end()) if fields else ({}, 0)


def _fields(lines: list[str]) -> dict[str, Any] | None:
    fields: dict[str, Any] = {}
    position = 0
    while position < len(lines):
        line = lines[position]
        position += 1
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _KEY.match(line)
        if match is None:
            return None
        nested: list[str] = []
        while position < len(lines) and (not lines[position].strip() or lines[position][0] in " \t-"):
            nested.append(lines[position])
            position += 1
        key = next(group for group in match.groups()[:3] if group is not None).rstrip()
        fields[key] = _value(_without_comment(match[4] or ""), nested)
    return fields


def _value(inline: str, nested: list[str]) -> Any:
    stripped = [line.strip() for line in nested if line.strip()]
    if inline[:1] in ("|", ">") and len(inline) <= 2:
        return ("\n" if inline[0] == "|" else " ").join(stripped)
    if not stripped:
        return _scalar(inline)
    items = [_ITEM.match(line) for line in stripped]
    if not inline and all(items):
        return [_scalar(_without_comment(item[1] or "")) for item in items if item]
    if not inline:
        return "\n".join(stripped)
    return _scalar(" ".join([inline, *stripped]))


def _scalar(text: str) -> Any:
    text = text.strip()
    if len(text) >= 2 and text[0] == "[" and text[-1] == "]":
        items = _split(text[1:-1])
        return text if items is None else [_plain(item) for item in items]
    return _plain(text)


def _plain(text: str) -> Any:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        body = text[1:-1]
        return body.replace("''", "'") if text[0] == "'" else body.replace('\\"', '"').replace("\\\\", "\\")
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    # Above 15 digits a float would lose some, and a phone number or key is no number anyway.
    if len(text) <= 15 and _NUMBER.fullmatch(text) and not re.match(r"[-+]?0\d", text):
        number = int(text) if text.lstrip("+-").isdigit() else float(text)
        return number if math.isfinite(number) else text
    return text


def _split(text: str) -> list[str] | None:
    """The items between commas, quotes still on; None where the list is not flat."""
    items: list[str] = []
    position = 0
    while position < len(text):
        match = _LIST_ITEM.match(text, position)
        if match is None:
            return None
        items.append(match[1].strip())
        position = match.end()
    return [item for item in items if item]


def _without_comment(text: str) -> str:
    """Without a trailing ` # comment`, unless the value is quoted and the sign is inside."""
    text = text.strip()
    if text[:1] in ("'", '"'):
        end = text.find(text[0], 1)
        return text[: end + 1] if end > 0 and text[end + 1 :].lstrip().startswith("#") else text
    return re.split(r"(?:^|\s)#", text, maxsplit=1)[0].rstrip()
