"""The head of a template file: the part of YAML that has one meaning, and no more.

    ---
    name: support
    description: Answers from the handbook.
    slots:
      tone: trusted string
      user: {"type": "object", "trust": "untrusted"}
    model:
      temperature: 0.2
    ---

A line is `key: value`, or `key:` and an indented block of such lines. A value is JSON on one line, or a plain text that
YAML would read as the same text. Everything else (lists in block form, anchors, tags, folded texts, flow mappings
without quotes) is refused with the remedy, so that no reader of the file can understand it differently.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from ctxkit.errors import CtxkitError, TemplateSyntaxError
from ctxkit.storage.checks import parse_json

__all__ = ["read_front_matter", "write_front_matter"]

_MAX_INDENT = 8
_LINE = re.compile(r"(?P<indent> *)(?P<key>[A-Za-z_$][A-Za-z0-9_-]*):(?:[ \t]+(?P<value>.*))?\Z")
_INDICATORS = tuple("[]{},#&*!|>'\"%@`?-:=~<")
_WORDS = {"true", "false", "null", "yes", "no", "on", "off"}
_NUMBER_LIKE = re.compile(r"[-+.0-9]")


def read_front_matter(lines: Iterable[str], *, where: str, first_line: int) -> dict[str, Any]:
    """The mapping that the lines between the two `---` describe. Raises `TemplateSyntaxError` with the line."""
    root: dict[str, Any] = {}
    blocks: list[tuple[int, dict[str, Any]]] = [(0, root)]
    opened: tuple[int, dict[str, Any]] | None = None
    for number, raw in enumerate(lines, first_line):
        line = raw.rstrip()
        if not line or line.lstrip(" ").startswith("#"):
            continue

        def fail(message: str, remedy: str, number: int = number) -> NoReturn:
            raise TemplateSyntaxError(message, subject=f"{where} {number}:1", remedy=remedy)

        match = _LINE.match(line)
        if match is None:
            fail(f"not a line of the form 'key: value': {line[:60]!r}", "Write lists and quoted texts as JSON.")
        indent, key = len(match["indent"]), match["key"]
        if opened is not None and indent > opened[0]:
            if indent > _MAX_INDENT:
                fail("indented too deep", "Write the inner value as JSON on one line.")
            blocks.append((indent, opened[1]))
        opened = None
        while blocks and blocks[-1][0] > indent:
            blocks.pop()
        if not blocks or blocks[-1][0] != indent:
            fail(f"{key!r} is indented unlike its neighbours", "Indent the lines of a block alike, with spaces.")
        block = blocks[-1][1]
        if key in block:
            fail(f"the key {key!r} is there twice", "Keep one of them.")
        value = (match["value"] or "").strip()
        if value:
            block[key] = _value(value, fail)
        else:
            inner: dict[str, Any] = {}
            block[key] = inner
            opened = (indent, inner)
    return root


def _value(text: str, fail: Any) -> Any:
    if text[0] in '"[{' or text in ("true", "false", "null") or _NUMBER_LIKE.match(text):
        try:
            return parse_json(text, what="the value")
        except CtxkitError as error:
            fail(f"not JSON ({error.message}): {text[:60]!r}", "Write the value as JSON, or a text in double quotes.")
    if text[0] in _INDICATORS or ": " in text or " #" in text or text.endswith(":") or text.lower() in _WORDS:
        fail(f"YAML would read this text differently: {text[:60]!r}", "Put it in double quotes.")
    return text


def write_front_matter(fields: Mapping[str, Any]) -> str:
    """The lines between the two `---` that read back as `fields`: inner mappings as blocks, everything else as JSON."""
    lines: list[str] = []
    for key, value in fields.items():
        if isinstance(value, Mapping) and value and all(_LINE.match(f"{name}:") for name in value):
            lines.append(f"{key}:")
            lines += [f"  {name}: {_dump(item)}" for name, item in value.items()]
        else:
            lines.append(f"{key}: {_dump(value)}")
    return "".join(f"{line}\n" for line in lines)


def _dump(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
