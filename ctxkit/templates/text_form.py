r"""One template as one text file: an optional head, then messages separated by role lines.

    --- system ---
    You answer in a {{tone}} tone.

    --- history ---

    --- user ---
    {{context}}

    Question: {{question}}

A role line is `--- system ---`, `--- user ---`, `--- assistant ---` or `--- history ---`, alone on its line. They are
found before anything else happens, in the template's own text only: a value that contains one is inserted after that,
and stays text (law 4). A line of the text that looks like a role line is written with a backslash before it,
`\--- system ---`. The text of a message is what stands between two role lines, without one empty line at its end.
A text without head and role lines is one user message, exactly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ctxkit.errors import TemplateSyntaxError
from ctxkit.templates.front_matter import read_front_matter, write_front_matter

__all__ = ["TEMPLATE_ROLES", "SourceMessage", "read_text_form", "write_text_form"]

TEMPLATE_ROLES = ("system", "user", "assistant", "history")
"""What a message of a template can be; `history` marks where the dialogue's messages are inserted."""

_ROLE_LINE = re.compile(r"^(?P<escapes>\\*)---[ \t]?(?P<role>\w+)[ \t]?---[ \t]*$", re.MULTILINE)
_FENCE = re.compile(r"---[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SourceMessage:
    """A message as it is written: its role, its text, and the line of the file where the text begins."""

    role: str
    content: str
    line: int = 1


def read_text_form(text: str, *, where: str) -> tuple[dict[str, Any], list[SourceMessage]]:
    """The head's fields and the messages of a template text. Linear in its length.

    A file whose first line ends with CR LF is read with CR LF as LF. Raises `TemplateSyntaxError` with line and column.
    """
    text = text.removeprefix("\ufeff")
    first, newline, _ = text.partition("\n")
    is_file = first.rstrip() == "---" or _ROLE_LINE.match(first.rstrip("\r")) is not None
    if newline and is_file and first.endswith("\r"):
        text = text.replace("\r\n", "\n")
    head: dict[str, Any] = {}
    position, line, has_head = 0, 1, False
    if fence := _FENCE.match(text):
        closing = _FENCE.search(text, fence.end() + 1) if fence.end() < len(text) else None
        while closing is not None and text[closing.start() - 1] != "\n":
            closing = _FENCE.search(text, closing.end())
        if closing is None:
            raise TemplateSyntaxError(
                "the head is opened and never closed", subject=f"{where} 1:1", remedy="End it with a line '---'."
            )
        lines = text[fence.end() + 1 : closing.start()].split("\n")
        head = read_front_matter(lines, where=where, first_line=2)
        position = min(closing.end() + 1, len(text))
        line, has_head = 1 + text.count("\n", 0, position), True
    messages = _messages(text, position, line, where)
    if not messages:
        content = _unescape(text[position:])
        messages = [SourceMessage("user", content.removesuffix("\n") if has_head else content, line)]
    return head, messages


def _messages(text: str, position: int, line: int, where: str) -> list[SourceMessage]:
    found: list[SourceMessage] = []
    role, role_line, counted = "", line, position
    for match in _ROLE_LINE.finditer(text, position):
        if match["escapes"]:
            continue
        line += text.count("\n", counted, match.start())
        counted = match.start()
        if match["role"] not in TEMPLATE_ROLES:
            raise TemplateSyntaxError(
                f"there is no role {match['role'][:40]!r}",
                subject=f"{where} {line}:1",
                remedy=f"Roles: {', '.join(TEMPLATE_ROLES)}. A line of text that looks so begins with a backslash.",
            )
        before = text[position : match.start()]
        if role:
            content = before.removesuffix("\n").removesuffix("\n")
            found.append(SourceMessage(role, _unescape(content), role_line + 1))
        elif before.strip():
            raise TemplateSyntaxError(
                "there is text before the first role line",
                subject=f"{where} {line - before.count(chr(10))}:1",
                remedy="Begin with a role line such as '--- system ---'.",
            )
        role, role_line, position = match["role"], line, min(match.end() + 1, len(text))
    if role:
        found.append(SourceMessage(role, _unescape(text[position:].removesuffix("\n")), role_line + 1))
    return found


def _unescape(text: str) -> str:
    return _ROLE_LINE.sub(lambda match: match[0].removeprefix("\\"), text)


def _escape(text: str) -> str:
    return _ROLE_LINE.sub(lambda match: "\\" + match[0], text)


def write_text_form(head: Mapping[str, Any], messages: Sequence[SourceMessage]) -> str:
    """The text that `read_text_form` reads as these fields and messages."""
    front = f"---\n{write_front_matter(head)}---\n\n" if head else ""
    blocks = [
        f"--- {message.role} ---\n" + (f"{_escape(message.content)}\n" if message.content else "")
        for message in messages
    ]
    return front + "\n".join(blocks)
