"""The recursive chunker over a text that arrives in pieces: the same chunks, in bounded memory.

The cutter says how far it looked before it decided where to cut. A piece is certain once all of that is here, and is of
the kind that more text cannot change: whole lines, and the line after them, which may underline a heading or give a
table away. What is certain leaves; of the text before the next piece some characters stay, for what looks back.
"""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Callable, Sequence

from ctxkit.checking import check_kind
from ctxkit.chunking.cutting import Cutter, Progress
from ctxkit.chunking.headings import Heading, Tag, html_tags, markdown_headings, paired
from ctxkit.chunking.marks import Carried, Marks
from ctxkit.documents import Chunk, Document, Span
from ctxkit.errors import ConfigError
from ctxkit.protected import LONGEST_MARK_LINE
from ctxkit.text import Graphemes

__all__ = ["CutStream"]

_BEHIND = 512  # characters before a piece that decisions about it may read
_LINE_BEHIND = 8192  # how far before those the line they are on may begin
_AHEAD = 32  # characters after a place to cut that tell whether it is one
_PLAIN = re.compile(r"\s*+[^\s`~#|:=-]")  # the beginning of a line that is no fence, heading, row or delimiter
_NOT_A_MARK = re.compile(r"[^-=:|\s]")


class _Part(Marks):
    """The part of a document that is in memory, and how much of it is certain."""

    def __init__(self, text: str, before: Carried, *, underlined: bool, final: bool) -> None:
        super().__init__(text, before, ended=final)
        self.certain = len(text) if final else self._certain(underlined)

    def _certain(self, underlined: bool) -> int:
        """Up to where more text cannot change what a line means, but for making it a row.

        `underlined`: whether any line may be a heading, once a line of dashes follows.
        """
        text, first, last = self.text, self.first, self.last
        if len(text) - last > LONGEST_MARK_LINE or first > last or (not underlined and _PLAIN.match(text, last)):
            return len(text)
        return last if _NOT_A_MARK.search(text, last) else text.rfind("\n", 0, max(0, last - 1)) + 1


class CutStream:
    """Text in, chunks out; the chunks of `Cutter` over the whole.

    Args:
        document: what the chunks are of; its text is not read.
        preset: of `ctxkit.chunking.separators`.
        make: a cutter for a text and its protected blocks.
    """

    def __init__(self, document: Document, preset: str, make: Callable[[str, Sequence[Span]], Cutter]) -> None:
        self._document = document
        self._preset = preset
        self._make = make
        self._pieces: list[str] = []
        self._length = 0  # of text and pieces together
        self._needed = 1
        self._text = ""
        self._begin = 0  # of `_text` in the document
        self._before = Carried()
        self._progress: Progress | None = Progress()  # in the document
        self._headings = _HeadingStream(preset)
        self._finished = False

    def feed(self, text: str) -> list[Chunk]:
        """Add a piece of text; the chunks that are certain now."""
        self._check_open()
        check_kind(text, str, "a piece of text", remedy="Decode bytes first, incrementally.")
        if text:
            self._pieces.append(text)
            self._length += len(text)
        return self._advance(final=False) if self._length >= self._needed else []

    def finish(self) -> list[Chunk]:
        """The text ends here: the chunks that were left."""
        self._check_open()
        self._finished = True
        return self._advance(final=True)

    @property
    def held(self) -> int:
        """The characters of text that are in memory."""
        return self._length

    def _check_open(self) -> None:
        if self._finished:
            raise ConfigError("this stream is finished", remedy="Open another one for another text.")

    def _advance(self, *, final: bool) -> list[Chunk]:
        self._text = "".join([self._text, *self._pieces])
        self._pieces.clear()
        part = _Part(self._text, self._before, underlined=self._preset == "markdown", final=final)
        certain = part.certain - (0 if final else _AHEAD)
        headings_to = self._headings.scan(part, self._begin, final=final)
        cutter = self._make(part.text, part.blocks)
        progress = None if self._progress is None else self._progress.shift(-self._begin)
        found: list[Chunk] = []
        begin, text, name, headings = self._begin, self._text, self._document.id, self._headings
        while progress is not None:
            before = progress
            if not final and cutter.least(before) > certain:
                cutter.looked = cutter.least(before)
                break
            piece, progress = cutter.step(before)
            if not final and (cutter.looked > certain or (piece is not None and piece.span.start >= headings_to)):
                progress = before
                break
            if piece is not None:
                (start, end), tokens = piece
                whole = Span(begin + start, begin + end)
                path = headings.at(whole.start)
                found.append(Chunk(f"{name}:{whole.start}-{whole.end}", name, whole, text[start:end], tokens, path))
        if progress is not None:
            # At least as far as the cutter wanted to look; and not so often that the work would be more than linear.
            step = max(_AHEAD, (len(part.text) - progress.at) // 8)
            self._needed = max(cutter.looked + _AHEAD, len(part.text) + step)
            self._keep(part, progress)
        return found

    def _keep(self, part: _Part, progress: Progress) -> None:
        """Forget the text that no later decision reads."""
        text = part.text
        if progress.start is None and len(text) - progress.at > _BEHIND and text[progress.at :].isspace():
            progress = progress._replace(at=len(text) - _BEHIND)  # of a blank stretch, the end is enough
        position = (progress.at if progress.start is None else progress.start) - _BEHIND
        position = min(position, self._headings.needed - self._begin)
        if position > 0:
            line = text.rfind("\n", max(0, position - _LINE_BEHIND), position) + 1
            if line or (position <= _LINE_BEHIND and not self._before.inside):
                position = line
            else:
                position = Graphemes(text).floor(position)
        self._progress = progress.shift(self._begin)
        if position > 0:
            self._before = part.at(position)
            self._text = text[position:]
            self._begin += position
            self._length -= position
            self._needed -= position


class _HeadingStream:
    """The headings of a text that arrives in parts, looked up at growing positions. Positions are the document's."""

    def __init__(self, preset: str) -> None:
        self._preset = preset
        self._scanned = 0
        self._opened: Tag | None = None
        self._ahead: deque[Heading] = deque()
        self._path: list[Heading] = []

    @property
    def needed(self) -> int:
        """From where on the text must stay."""
        if self._opened is None or self._scanned - self._opened.start > LONGEST_MARK_LINE:
            return sys.maxsize
        return self._opened.start

    def scan(self, part: _Part, begin: int, *, final: bool) -> int:
        """Take in the headings that are certain; where, in the part, the first that is not may begin."""
        size = len(part.text)
        if self._preset == "markdown":
            end = size if final or part.certain == size else part.last
            fences = [fence.span for fence in part.fences]
            for heading in markdown_headings(part.text, fences, self._scanned - begin, end):
                if heading.start < part.certain:
                    self._ahead.append(heading._replace(start=heading.start + begin))
            self._scanned = begin + part.certain
            return part.certain
        if self._preset == "html":
            end = size if final else max(self._scanned - begin, size - LONGEST_MARK_LINE)
            opened = _moved(self._opened, -begin)
            for tag in html_tags(part.text, self._scanned - begin):
                if tag.start >= end:
                    break
                heading_found, opened = paired(part.text, opened, tag)
                if heading_found is not None:
                    self._ahead.append(heading_found._replace(start=heading_found.start + begin))
            self._opened = _moved(opened, begin)
            self._scanned = begin + end
            return size if final else size - 2 * LONGEST_MARK_LINE
        return size

    def at(self, position: int) -> tuple[str, ...]:
        """The headings above a position; positions never go back."""
        if not self._ahead and not self._path:
            return ()
        while self._ahead and self._ahead[0].start <= position:
            heading = self._ahead.popleft()
            while self._path and self._path[-1].depth >= heading.depth:
                self._path.pop()
            self._path.append(heading)
        return tuple(heading.title for heading in self._path)


def _moved(tag: Tag | None, by: int) -> Tag | None:
    return None if tag is None else tag._replace(start=tag.start + by, end=tag.end + by)
