"""Cutting a text that arrives piece by piece into blocks that can be chunked one after the other.

A block is some tens of thousands of characters that end where the text allows: at a heading, a blank line, the end of
a sentence. Where it ends depends on the text alone, never on the sizes of the pieces, and on no more than a bounded
look ahead. What is chunked block by block is therefore the same whether the text came whole or in pieces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ctxkit.chunking.marks import Carried, Marks
from ctxkit.documents import Span
from ctxkit.text import Graphemes, sentence_breaks

__all__ = ["Block", "BlockReader"]

_HEADING = re.compile(r"^(?:#{1,6}[ \t]|<h[1-6]\b| ?=+ [^\n]* =+ ?$)", re.MULTILINE)
_PARAGRAPH = re.compile(r"\n[^\S\n]*+\n\s*+")
_LINE = re.compile(r"[\n\r]\s*+")
_SPACE = re.compile(r"\s++")
_DELIMITER = re.compile(r"[^\S\n]*+:?-++:?[^\S\n]*+(?:\|[^\S\n]*+:?-++:?[^\S\n]*+)++(?:\n|\Z)")
_FENCE_LINE = re.compile(r" {0,3}(?:`{3}|~{3})")


class Block(NamedTuple):
    """A stretch of a document.

    Attributes:
        start: where in the document it begins.
        text: its text.
        protected: the code fences and table rows in it, with offsets into `text`, sorted and disjoint.
        inside_line: whether it begins in the middle of a line.
    """

    start: int
    text: str
    protected: list[Span]
    inside_line: bool


class BlockReader:
    """Takes a text in pieces of any size, gives blocks as soon as they are certain.

    Holds at most two blocks of text, except where one fence or row that fits into `limit` tokens is longer.

    Args:
        size: the most characters of a block; its end lies in the second half of them.
        limit: the tokens up to which a fence or a row stays whole.
        count: tokens of a text.
    """

    def __init__(self, *, size: int, limit: int, count: Callable[[str], int]) -> None:
        self._size = size
        self._ahead = max(1, size // 4)
        self._limit = limit
        self._count = count
        self._pieces: list[str] = []
        self._waiting = 0
        self._buffer = ""
        self._at = 0  # of the buffer: what lies before has been given away
        self._start = 0  # of the document
        self._needed = self._size + self._ahead
        self._before = Carried()  # what the buffer begins in

    def feed(self, piece: str) -> Iterator[Block]:
        """Add a piece; the blocks that it makes certain."""
        self._pieces.append(piece)
        self._waiting += len(piece)
        if self._waiting >= self._needed:
            yield from self._blocks(final=False)

    def finish(self) -> Iterator[Block]:
        """The rest of the text, which ends here."""
        yield from self._blocks(final=True)

    def _blocks(self, *, final: bool) -> Iterator[Block]:
        self._buffer = "".join([self._buffer[self._at :], *self._pieces])
        self._pieces, self._at, self._waiting = [], 0, len(self._buffer)
        while self._waiting and (final or self._waiting >= self._needed):
            window = self._buffer[self._at : self._at + self._needed]
            whole = final and len(window) == self._waiting
            marks = Marks(window, self._before, ended=True)
            protected = [Span(max(0, span.start), span.end) for span in marks.blocks]
            end = len(window) if whole and len(window) <= self._size else self._end(window, protected, whole)
            if end is None:
                self._needed *= 2
                continue
            yield self._cut(marks, protected, end)
            self._needed = self._size + self._ahead

    def _cut(self, marks: Marks, protected: list[Span], end: int) -> Block:
        inside = [Span(span.start, min(span.end, end)) for span in protected if span.start < end]
        block = Block(self._start, marks.text[:end], inside, self._before.inside)
        self._before = marks.at(end)
        self._at += end
        self._start += end
        self._waiting -= end
        return block

    def _end(self, window: str, protected: list[Span], whole: bool) -> int | None:
        """Where the block at the beginning of the window ends; None where more must be seen to tell."""
        size = min(self._size, len(window))
        graphemes = Graphemes(window)
        whole_spans = self._whole(window, protected, size, whole)
        if whole_spans is None:
            return None

        def allowed(position: int) -> bool:
            if graphemes.around(position) is not None or _splits_mark(window, position):
                return False
            return not any(span.start < position < span.end for span in whole_spans)

        late = size - size // 4
        for low, pattern in ((late, _HEADING), (late, _PARAGRAPH)):
            places = [
                found.start() if pattern is _HEADING else found.end() for found in pattern.finditer(window, low, size)
            ]
            for position in reversed(places):
                if allowed(position):
                    return position
        for low in (late, size // 2):
            for position in reversed(list(sentence_breaks(window, low, size))):
                if allowed(position):
                    return position
        for pattern in (_LINE, _SPACE):
            for found in reversed(list(pattern.finditer(window, size // 2, size))):
                if allowed(found.end()):
                    return found.end()
        position = graphemes.floor(size) or size
        if _splits_mark(window, position):
            position = window.rfind("\n", 0, position) + 1 or position
        for span in whole_spans:
            if span.start < position < span.end:
                position = span.start or span.end
        return position

    def _whole(self, window: str, protected: list[Span], size: int, last: bool) -> list[Span] | None:
        """The spans that reach into where the block may end and must stay whole; None where that is not known yet."""
        kept = []
        for span in protected:
            if span.end <= size // 2 or span.start >= size:
                continue
            if self._count(span.slice(window)) > self._limit:
                continue
            if span.end >= len(window) and not last:
                return None
            kept.append(span)
        return kept


def _splits_mark(text: str, position: int) -> bool:
    """Whether a reader of what follows could not tell the fence or the table that it begins in."""
    line = text.rfind("\n", 0, position) + 1
    if line < position:
        return _FENCE_LINE.match(text, line) is not None
    return _DELIMITER.match(text, position) is not None
