"""The text of a compiled template: what `compile_text` reads back as the same nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ctxkit.templates.language import Literal, Node, SectionNode

__all__ = ["merged", "write_nodes"]

_BRACES = re.compile(r"\{\{")
_BLANK_TAIL = re.compile(r"(?:\A|\n)([ \t]*)\Z")
_BLANK_REST = re.compile(r"[ \t]*(?:\r?\n|\Z)")
_NO_TEXT = '{{""}}'


class _Token(NamedTuple):
    text: str
    kind: str  # "text", "tag", or "alone": a tag that takes a line with it where it has the line for itself


def write_nodes(nodes: Sequence[Node]) -> str:
    """The source of these nodes. Linear in their number and texts.

    A section tag alone on its line would take the line with it; where the line has to stay, an empty line is added or
    an empty text put before the tag.

    Example:
        >>> from ctxkit.templates.language import compile_text
        >>> write_nodes(compile_text("Dear {{ name }}, {{?urgent}}now{{/urgent}}"))
        'Dear {{name}}, {{?urgent}}now{{/urgent}}'
    """
    tokens = list(_tokens(merged(nodes)))
    parts: list[str] = []
    for index, (text, kind) in enumerate(tokens):
        before = tokens[index - 1] if index else _Token("", "start")
        after = tokens[index + 1] if index + 1 < len(tokens) else _Token("", "end")
        if kind == "text":
            text = _BRACES.sub('{{"{{"}}', text)
            if after.kind != "end" and text.endswith("{"):
                text = text[:-1] + '{{"{"}}'
            parts.append(text)
        elif kind == "alone" and (tail := _blank_before(before, first=index < 2)) is not None and _blank_after(after):
            if tail or (after.kind != "end" and "\n" not in after.text):
                parts += [_NO_TEXT, text]
            else:
                parts += [text] if after.kind == "end" else [text, "\n"]
        else:
            parts.append(text)
    return "".join(parts)


def merged(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """The same nodes with neighbouring literals as one, and none that is empty."""
    found: list[Node] = []
    for node in nodes:
        if isinstance(node, SectionNode):
            found.append(node._replace(body=merged(node.body)))
        elif not isinstance(node, Literal):
            found.append(node)
        elif found and isinstance(last := found[-1], Literal):
            found[-1] = Literal(last.text + node.text)
        elif node.text:
            found.append(node)
    return tuple(found)


def _tokens(nodes: Iterable[Node]) -> Iterable[_Token]:
    for node in nodes:
        if isinstance(node, Literal):
            yield _Token(node.text, "text")
        elif isinstance(node, SectionNode):
            yield _Token(f"{{{{{node.kind}{node.path}}}}}", "alone")
            yield from _tokens(node.body)
            yield _Token(f"{{{{/{node.path}}}}}", "alone")
        else:
            yield _Token(f"{{{{{node.path}}}}}", "tag")


def _blank_before(token: _Token, *, first: bool) -> str | None:
    """The blanks between the beginning of the line and a tag, or None where there is more than blanks."""
    if token.kind == "start":
        return ""
    found = _BLANK_TAIL.search(token.text) if token.kind == "text" else None
    if found is None or (not first and found.start() == 0 and not found[0].startswith("\n")):
        return None
    return found[1]


def _blank_after(token: _Token) -> bool:
    return token.kind == "end" or (token.kind == "text" and _BLANK_REST.match(token.text) is not None)
