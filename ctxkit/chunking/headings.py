"""The headings a place in a document stands under."""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ctxkit.documents import Span
from ctxkit.protected import LONGEST_MARK_LINE

__all__ = ["Heading", "Headings", "Tag", "html_headings", "html_tags", "markdown_headings", "paired"]

_LONGEST = 200


class Heading(NamedTuple):
    """Where a heading begins, how deep it is, and its text."""

    start: int
    depth: int
    title: str


class Headings:
    """Looks up the path of headings at a position: the section that the position is in, outermost first.

    A heading belongs to its own section. Building is linear, a lookup logarithmic.
    """

    def __init__(self, headings: Iterator[Heading] | None = None) -> None:
        self._starts: list[int] = []
        self._paths: list[tuple[str, ...]] = []
        stack: list[Heading] = []
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


def markdown_headings(text: str, fences: Sequence[Span], start: int = 0, end: int | None = None) -> Iterator[Heading]:
    """The ATX (`# Title`) and setext (underlined) headings outside the fences, of the lines in `[start, end)`.

    Source: CommonMark 0.31, sections 4.2 and 4.3.
    """
    starts = [fence.start for fence in fences]
    for found in _ATX.finditer(text, start, len(text) if end is None else end):
        if found.end() - found.start() > LONGEST_MARK_LINE:
            continue
        at = bisect_right(starts, found.end()) - 1
        if at >= 0 and found.start() < fences[at].end:
            continue
        if found["marks"]:
            title = _CLOSING_MARKS.sub("", (found["title"] or "").rstrip()[-4 * _LONGEST :]).strip()
            yield Heading(found.start(), len(found["marks"]), title[:_LONGEST])
        else:
            yield Heading(found.start(), 1 if found["one"] else 2, found["line"].strip()[:_LONGEST])


_HTML_TAG = re.compile(r"<(?P<close>/?)h(?P<depth>[1-6])\b[^<>]{0,1000}>", re.IGNORECASE)
_ANY_TAG = re.compile(r"<[^<>]*>")


class Tag(NamedTuple):
    """An opening or closing tag of a heading."""

    start: int
    end: int
    depth: str
    closes: bool


def html_tags(text: str, start: int = 0) -> Iterator[Tag]:
    """The tags of headings that begin at or after `start`."""
    for found in _HTML_TAG.finditer(text, start):
        yield Tag(found.start(), found.end(), found["depth"], bool(found["close"]))


def html_headings(text: str) -> Iterator[Heading]:
    """The `<h1>` to `<h6>` elements that are closed soon enough, their text without tags."""
    opened: Tag | None = None
    for tag in html_tags(text):
        heading, opened = paired(text, opened, tag)
        if heading is not None:
            yield heading


def paired(text: str, opened: Tag | None, tag: Tag) -> tuple[Heading | None, Tag | None]:
    """The heading that `tag` closes, and the tag that is open after it."""
    if not tag.closes:
        return None, tag
    if opened is None or opened.depth != tag.depth:
        return None, opened
    if tag.end - opened.start > LONGEST_MARK_LINE:
        return None, None
    title = " ".join(html.unescape(_ANY_TAG.sub(" ", text[opened.end : tag.start])).split())
    return Heading(opened.start, int(tag.depth), title[:_LONGEST]), None
