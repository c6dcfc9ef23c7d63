"""The code fences and table rows of a part of a document, and what of them a later part has to know.

A text that is read in parts needs from what lay before a part only a few facts: whether the part begins in the middle
of a line and of what kind, and which fence or table is open there. Both ways to chunk a stream carry these facts.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from ctxkit.documents import Span
from ctxkit.protected import Fence, is_delimiter, marked_fences, rows_and_tables, with_rows_outside

__all__ = ["Carried", "Marks"]


class Carried(NamedTuple):
    """What the beginning of a part stands in; the default is the beginning of a document.

    Args:
        inside: the part begins in the middle of a line.
        fence: the mark of the fence that is open.
        row: the line is a table row, and the part begins inside of it.
        bar: a pipe stands in the line before the part begins.
        blank: nothing but white space stands in the line before the part begins.
        table: the line above is in a table that a delimiter line gave away.
    """

    inside: bool = False
    fence: str = ""
    row: bool = False
    bar: bool = False
    blank: bool = False
    table: bool = False


class Marks:
    """The marks of one part.

    Args:
        text: of the part.
        before: what it begins in.
        ended: whether its last line is all here; one that is not counts as a row, for it may turn out to be one.

    Attributes:
        first: where its first whole line begins.
        last: where its last line begins.
        fences: in order; one that was open before begins at -1, one that stays open ends with the text.
        blocks: fences, and rows outside of them: what is not cut, in order. A row that began before begins at -1.
    """

    def __init__(self, text: str, before: Carried, *, ended: bool) -> None:
        first = (text.find("\n") + 1 or len(text)) if before.inside else 0
        self.text, self.first, self.last = text, first, text.rfind("\n") + 1
        self._before = before
        self.fences: list[Fence] = marked_fences(text, first, before.fence)
        bar = before.inside and (before.bar or "|" in text[:first])
        table = before.table
        if before.inside:
            table = bar and (before.table or is_delimiter(text, first))
        self._rows, self._tables = rows_and_tables(text, first, table)
        if before.inside:
            content = first - len(text[:first].lstrip())
            if before.row or table:
                start = content if before.blank and not before.row else -1
                self._rows.insert(0, Span(start, len(text[:first].rstrip())))
            elif before.blank and text.startswith("|", content) and content < first:
                self._rows.insert(0, Span(content, len(text[:first].rstrip())))
        rows = self._rows
        if not ended and first <= self.last < len(text):
            start = len(text) - len(text[self.last :].lstrip())
            if not rows or rows[-1].start < start:
                rows = [*rows, Span(start, len(text))]
        self.blocks = with_rows_outside([fence.span for fence in self.fences], rows)

    def at(self, position: int) -> Carried:
        """What a part carries that begins at `position`, which is not behind the last character."""
        text, before = self.text, self._before
        begin = text.rfind("\n", 0, position) + 1
        inside = begin < position or (begin == 0 and before.inside)
        for fence in self.fences:
            if fence.span.start < position < fence.span.end:
                return Carried(inside, fence.mark)
        table = before.table if begin == 0 else any(run.start < begin <= run.end for run in self._tables)
        if not inside:
            return Carried(table=table)
        row = bisect_left(self._rows, Span(position, 0)) - 1
        blank = text[begin:position].isspace() or begin == position
        return Carried(
            inside,
            row=row >= 0 and self._rows[row].start < position < self._rows[row].end,
            bar=text.find("|", begin, position) >= 0 or (begin == 0 and before.bar),
            blank=blank and (begin > 0 or not before.inside or before.blank),
            table=table,
        )
