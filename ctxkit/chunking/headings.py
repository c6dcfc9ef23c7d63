"""The headings a place in a document stands under."""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ctxkit.documents import Span

__all__ = ["Headings", "html_headings", "markdown_headings"]

_LONGEST = 200


class _Heading(NamedTuple):
    start: int
    depth: int
    title: str


class Headings:
    """Looks up the path of headings at a position: the section that the position is in, outermost first.

    A heading belongs to its own section. Building is linear, a lookup logarithmic.
    """

    def __init__(self, headings: Iterator[_Heading] | None = None) -> None:
        self._starts: list[int] = []
        self._paths: list[tuple[str, ...]] = []
        stack: list[_Heading] = []
        for heading in headings or ():
            while stack and stack[-1].depth >= heading.depth:
                stack.pop()
            stack.append(heading)
            self._starts.append(heading.start)
            self._paths.append(tuple(above.title for above in stack))

    def at(self, position: int) -> tuple[str, ...]:
        index = bisect_right(self._starts, position) - 1
        return self._paths[index] if index >= 0 else ()


_ATX = re.compile(
    r"^[ ]{0,3}(?P<marks>\#{1,6})(?:[ \t]+(?P<title>[^\n]*))?$"
    r"|^[ ]{0,3}(?P<line>[^\s#>|`~=+*-][^\n]*)\n[ ]{0,3}(?:(?P<one>=+)|-+)[ \t\r]*$",
    re.MULTILINE,
)
_CLOSING_MARKS = re.compile(r"(?:^|[ \t]+)#+[ \t]*$")


def markdown_headings(text: str, fences: Sequence[Span]) -> Iterator[_Heading]:
    """The ATX (`# Title`) and setext (underlined) headings outside the fences.

    Source: CommonMark 0.31, sections 4.2 and 4.3.
    """
    starts = [fence.start for fence in fences]
    for found in _ATX.finditer(text):
        at = bisect_right(starts, found.end()) - 1
        if at >= 0 and found.start() < fences[at].end:
            continue
        if found["marks"]:
            title = _CLOSING_MARKS.sub("", (found["title"] or "").rstrip()[-4 * _LONGEST :]).strip()
            yield _Heading(found.start(), len(found["marks"]), title[:_LONGEST])
        else:
            yield _Heading(found.start(), 1 if found["one"] else 2, found["line"].strip()[:_LONGEST])


_HTML_TAG = re.compile(r"<(?P<close>/?)h(?P<depth>[1-6])\b[^<>]*>", re.IGNORECASE)
_ANY_TAG = re.compile(r"<[^<>]*>")


def html_headings(text: str) -> Iterator[_Heading]:
    """The `<h1>` to `<h6>` elements that are closed, their text without tags."""
    opened: re.Match[str] | None = None
    for tag in _HTML_TAG.finditer(text):
        if not tag["close"]:
            opened = tag
        elif opened is not None and opened["depth"] == tag["depth"]:
            inner = text[opened.end() : min(tag.start(), opened.end() + 10 * _LONGEST)]
            title = " ".join(html.unescape(_ANY_TAG.sub(" ", inner)).split())
            yield _Heading(opened.start(), int(tag["depth"]), title[:_LONGEST])
            opened = None
