"""Candidates as sentences: what can be kept or left out, one by one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ctxkit.documents import Candidate, Span, intersect_spans
from ctxkit.text import sentence_spans

__all__ = ["ABOUT_A_MARK", "BLANKS", "Unit", "split"]

BLANKS = " \t\u3000"
"""White space that a gap mark replaces; a line break before one stays."""

ABOUT_A_MARK = 2
"""Tokens of a gap mark, where an estimate is enough; `GapCosts` counts them."""

_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")
_ROW = re.compile(r"[ \t]*\|")
_DELIMITER = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?\s*$")


@dataclass(frozen=True, slots=True)
class Unit:
    """One sentence of a candidate, and what it needs beside it.

    Args:
        span: in the document.
        header: a table's header, which comes with its rows and never alone.
        heading: a heading line, which says little alone.
        needs: positions, in the candidate's units, of the header rows of its table.
        under: position of the nearest heading above, or None.
    """

    span: Span
    text: str
    header: bool = False
    heading: bool = False
    needs: tuple[int, ...] = ()
    under: int | None = None


def split(candidate: Candidate) -> list[Unit]:
    """The sentences that the candidate still keeps, in order. Linear in its length."""
    chunk = candidate.chunk
    offset = chunk.span.start
    pieces: list[Span] = [span.shift(offset) for span in sentence_spans(chunk.text)]
    if candidate.kept is not None:
        pieces = _within(pieces, candidate.kept)
    texts = [piece.slice(chunk.text, offset=offset) for piece in pieces]
    return _related(pieces, texts)


def _within(pieces: Sequence[Span], kept: Sequence[Span]) -> list[Span]:
    """Each sentence cut to what was kept before; a sentence with a hole becomes several. Linear."""
    found: list[Span] = []
    first = 0
    for piece in pieces:
        while first < len(kept) and kept[first].end <= piece.start:
            first += 1
        last = first
        while last < len(kept) and kept[last].start < piece.end:
            last += 1
        found.extend(intersect_spans([piece], kept[first:last]))
    return found


def _related(pieces: Sequence[Span], texts: Sequence[str]) -> list[Unit]:
    units: list[Unit] = []
    table: tuple[int, ...] = ()
    heading: int | None = None
    for position, (piece, text) in enumerate(zip(pieces, texts, strict=True)):
        if _ROW.match(text):
            follows = bool(units) and units[-1].span.end == piece.start and _ROW.match(texts[position - 1]) is not None
            if not follows:
                is_header = position + 1 < len(texts) and _is_delimiter(texts[position + 1])
                table = (position, position + 1) if is_header else ()
            header = position in table
            units.append(Unit(piece, text, header=header, needs=() if header else table, under=heading))
            continue
        table = ()
        if _HEADING.match(text):
            units.append(Unit(piece, text, heading=True))
            heading = position
        else:
            units.append(Unit(piece, text, under=heading))
    return units


def _is_delimiter(text: str) -> bool:
    return "-" in text and "|" in text and _DELIMITER.match(text) is not None
