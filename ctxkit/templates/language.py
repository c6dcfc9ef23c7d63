"""The template language: text with slots, compiled once to a tree, never evaluated.

    {{name}}                       the value of a variable
    {{user.name}}                  a field of an object, by name
    {{#items}} … {{/items}}        once for each item of a list; once for an object; once if a boolean is true
    {{?items}} … {{/items}}        once if there is something: not null, false, 0, or an empty text, list or object
    {{^items}} … {{/items}}        once if there is nothing: exactly where {{?items}} is left out
    {{.}}   {{.title}}             the item of the section around, and a field of it
    {{> rules@3}}                  the text of another template, of one message; see `includes`
    {{! a comment }}               nothing
    {{"{{"}}                       a JSON string: exactly that text; the way to write two opening braces

A name is an ASCII identifier: there are no calls, attributes, indexes, filters or expressions, so a template can be
taken from anybody. The fields of an item begin with a dot. So a name without a dot is always a variable of the
payload, the variables can be derived, and no field of an item can hide a variable, as it can in Mustache.

A section repeats and moves to the item; a condition (`?` and `^`) asks and stays with the item around. A line that
holds nothing but one tag of a section, a condition or a comment vanishes whole, as in Mustache; an include stands where
it stands, like a value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal as Literal_
from typing import NamedTuple, cast

from ctxkit.errors import TemplateSyntaxError

__all__ = [
    "MAX_DEPTH",
    "Fail",
    "Kind",
    "Literal",
    "Node",
    "Path",
    "SectionNode",
    "Value",
    "compile_text",
    "position_of",
]

MAX_DEPTH = 16
"""How deep sections may nest."""

_NAME = r"[A-Za-z_][A-Za-z0-9_]{0,63}"
_PATH = re.compile(rf"(?:{_NAME}(?:\.{_NAME})*|\.|(?:\.{_NAME})+)\Z")
_REST_OF_LINE = re.compile(r"[ \t]*(?:\r?\n|\Z)")
_QUOTE = re.compile(r'\s*"')
_CLOSING = re.compile(r"\s*\}\}")
_UNSENDABLE = re.compile("[\x00\ud800-\udfff]")
_decode_string = json.JSONDecoder().raw_decode


class Path(NamedTuple):
    """Where a value is: from the payload, or `relative` to the item of the section around."""

    relative: bool
    keys: tuple[str, ...]

    def __str__(self) -> str:
        return ("." if self.relative else "") + ".".join(self.keys)


class Literal(NamedTuple):
    """Text of the template itself."""

    text: str


class Value(NamedTuple):
    """A slot: the value at a path is inserted here, as text, once."""

    path: Path


Kind = Literal_["#", "?", "^"]
"""A section, a condition, or an inverted condition."""


class SectionNode(NamedTuple):
    """A section or a condition."""

    path: Path
    kind: Kind
    body: tuple[Node, ...]


Node = Literal | Value | SectionNode
Fail = Callable[[str, str], TemplateSyntaxError]
"""The error of a message and a remedy, at the place in the source that it was made for."""
Include = Callable[[str, Fail], tuple[Node, ...]]
"""The nodes that stand for an include tag, by the reference that it names."""


@dataclass(slots=True)
class _Open:
    path: Path | None
    kind: Kind
    position: int
    nodes: list[Node]
    text: list[str]

    def add(self, *nodes: Node) -> None:
        self._end_text()
        self.nodes.extend(nodes)

    def close(self) -> tuple[Node, ...]:
        self._end_text()
        return tuple(self.nodes)

    def _end_text(self) -> None:
        if text := "".join(self.text):
            self.nodes.append(Literal(text))
        self.text.clear()


def position_of(source: str, offset: int, *, line: int = 1) -> str:
    """`line:column` of an offset, both counted from 1; `line` is the number of the source's first line."""
    before = source.count("\n", 0, offset)
    return f"{line + before}:{offset - source.rfind(chr(10), 0, offset)}"


def compile_text(
    source: str, *, where: str = "template", line: int = 1, include: Include | None = None
) -> tuple[Node, ...]:
    """The nodes of a text; includes are replaced by what they include. Linear in its length.

    Raises:
        TemplateSyntaxError: its subject is `where` and the line and column.
    """
    if (bad := _UNSENDABLE.search(source)) is not None:
        message = f"the text has {_name_of(bad[0])}, which no model can be sent"
        raise _error(source, bad.start(), where, line, message, "Remove it; it is no text.")
    stack = [_Open(None, "#", 0, [], [])]
    position = 0
    while True:
        start = source.find("{{", position)
        if start < 0:
            break
        fail = partial(_error, source, start, where, line)
        text = source[position:start]
        if quote := _QUOTE.match(source, start + 2):
            string, position = _string(source, quote.end() - 1, fail)
            stack[-1].text += text, string
            continue
        end = source.find("}}", start + 2)
        if end < 0:
            raise fail("a tag is opened and never closed", 'Close it with }}, or write two literal braces as {{"{{"}}.')
        tag = source[start + 2 : end].strip()
        kind, name = (tag[:1], tag[1:].strip()) if tag[:1] in ("#", "?", "^", "/", "!", ">") else ("", tag)
        end += 2
        if kind and kind != ">":
            text, end = _standalone(source, position, start, end)
        stack[-1].text.append(text)
        position = end
        if kind == "!":
            continue
        if kind == ">":
            if include is None:
                raise fail("templates cannot be included here", "Write the text out.")
            stack[-1].add(*include(name, fail))
            continue
        path = _path(name, fail)
        if kind == "/":
            _close(stack, path, fail)
        elif path.relative and not any(opened.kind == "#" for opened in stack[1:]):
            raise fail(
                f"{{{{{tag[:60]}}}}} stands outside every section",
                "A name that begins with a dot belongs to the item of the section around it.",
            )
        elif kind:
            if len(stack) > MAX_DEPTH:
                raise fail(f"sections nest deeper than {MAX_DEPTH} levels", "Flatten the data or the template.")
            stack.append(_Open(path, cast(Kind, kind), start, [], []))
        else:
            stack[-1].add(Value(path))
    if len(stack) > 1:
        opened = stack[-1]
        raise _error(
            source,
            opened.position,
            where,
            line,
            f"the section {str(opened.path)!r} is opened and never closed",
            f"Close it with {{{{/{opened.path}}}}}.",
        )
    stack[0].text.append(source[position:])
    return stack[0].close()


def _error(source: str, offset: int, where: str, line: int, message: str, remedy: str) -> TemplateSyntaxError:
    return TemplateSyntaxError(message, subject=f"{where} {position_of(source, offset, line=line)}", remedy=remedy)


def _string(source: str, start: int, fail: Fail) -> tuple[str, int]:
    try:
        value, end = _decode_string(source, start)
    except (ValueError, RecursionError):
        closing = None
    else:
        closing = _CLOSING.match(source, end)
    if closing is None:
        raise fail("not a JSON string", 'A tag that begins with " holds one JSON string and nothing else: {{"{{"}}.')
    if (bad := _UNSENDABLE.search(value)) is not None:
        raise fail(f"the text has {_name_of(bad[0])}, which no model can be sent", "Remove it; it is no text.")
    return str(value), closing.end()


def _name_of(character: str) -> str:
    return "a NUL character" if character == "\x00" else f"the lone surrogate U+{ord(character):04X}"


def _standalone(source: str, position: int, start: int, end: int) -> tuple[str, int]:
    """The text before a tag and where to go on; a line that holds the tag alone is taken out."""
    newline = source.rfind("\n", position, start)
    begins_line = newline >= 0 or position == 0 or source[position - 1] == "\n"
    line_start = newline + 1 if newline >= 0 else position
    rest = _REST_OF_LINE.match(source, end)
    if begins_line and rest is not None and not source[line_start:start].strip(" \t"):
        return source[position:line_start], rest.end()
    return source[position:start], end


def _path(name: str, fail: Fail) -> Path:
    if not _PATH.match(name):
        raise fail(
            f"{name[:60]!r} is not a name",
            "Use an ASCII identifier, or a dotted path of them; no calls, indexes or filters. "
            'Two literal braces are written {{"{{"}}.',
        )
    relative = name.startswith(".")
    return Path(relative, tuple(key for key in name.split(".") if key))


def _close(stack: list[_Open], path: Path, fail: Fail) -> None:
    opened = stack[-1]
    if opened.path is None:
        raise fail(f"{{{{/{path}}}}} closes a section that is not open", f"Open it with {{{{#{path}}}}}, or remove it.")
    if opened.path != path:
        raise fail(f"{{{{/{path}}}}} stands where {{{{/{opened.path}}}}} is due", "Close the inner section first.")
    stack.pop()
    stack[-1].add(SectionNode(opened.path, opened.kind, opened.close()))
