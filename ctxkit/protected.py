"""What of a text is not cut: code fences and table rows.

Everything is told by lines, and by lines that are not too long, so that a text can be read as a stream: a fence, a row
or a heading is known for what it is once the line after it is there.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import NamedTuple

from ctxkit.documents import Span

__all__ = [
    "LONGEST_MARK_LINE",
    "Fence",
    "code_fences",
    "is_delimiter",
    "marked_fences",
    "protected_spans",
    "rows_and_tables",
    "table_rows",
    "with_rows_outside",
]

LONGEST_MARK_LINE = 4096
"""Characters: a longer line opens no fence, closes none, underlines nothing and is no heading. So a text can be read as
a stream: after so many characters it is known that a line means nothing."""

_FENCE_LINE = re.compile(r"^ {0,3}(?P<mark>`{3,}+|~{3,}+)(?P<info>[^\n]*)", re.MULTILINE)
_PIPE_LINE = re.compile(r"^[^\S\n]*+(?P<row>\|[^\n]*)", re.MULTILINE)
_DELIMITER_LINE = re.compile(r"^[^\S\n]*+:?-++:?[^\S\n]*+(?:\|[^\S\n]*+:?-++:?[^\S\n]*+)++$", re.MULTILINE)


class Fence(NamedTuple):
    """A fenced code block, and the mark that opened it."""

    span: Span
    mark: str


def code_fences(text: str) -> list[Span]:
    """The fenced code blocks, from the opening mark to the end of the closing line; one that is never closed lasts to
    the end of the text.

    Source: CommonMark 0.31, section 4.5.

    Example:
        >>> code_fences("a\n```\nb\n```\nc")
        [Span(start=2, end=11)]
    """
    return [fence.span for fence in marked_fences(text)]


def marked_fences(text: str, begin: int = 0, mark: str = "") -> list[Fence]:
    """The code fences of a text whose first whole line is at `begin`.

    Where a `mark` is given a fence is open there already; it then begins before the text, at -1.
    """
    if not mark and "```" not in text and "~~~" not in text:
        return []
    fences: list[Fence] = []
    opened = -1
    for line in _FENCE_LINE.finditer(text, begin):
        if line.end() - line.start() > LONGEST_MARK_LINE:
            continue
        found, info = line["mark"], line["info"]
        if not mark:
            if found[0] == "~" or "`" not in info:
                opened, mark = line.start("mark"), found
        elif found[0] == mark[0] and len(found) >= len(mark) and not info.strip():
            fences.append(Fence(Span(opened, line.end("mark")), mark))
            mark = ""
    if mark:
        fences.append(Fence(Span(opened, len(text)), mark))
    return fences


def table_rows(text: str) -> list[Span]:
    """The rows of Markdown tables, without the white space around them: each line that opens with a pipe, and the rows
    of tables written without outer pipes, which a delimiter line (`--- | ---`) gives away.

    Example:
        >>> table_rows("a\n| b | c |\n")
        [Span(start=2, end=11)]
    """
    return rows_and_tables(text)[0]


def rows_and_tables(text: str, begin: int = 0, inside: bool = False) -> tuple[list[Span], list[Span]]:
    """The table rows of a text whose first whole line is at `begin`, and the tables that a delimiter line gives away.

    `inside`: whether such a table may go on at `begin`; it then begins before the text, at -1.
    """
    if "|" not in text:
        return [], []
    tables: list[Span] = []
    rows: dict[int, int] = {}
    for line in _PIPE_LINE.finditer(text, begin):
        rows[line.start("row")] = line.start("row") + len(line["row"].rstrip())

    def table(position: int, top: int) -> None:
        while position < len(text):
            end = text.find("\n", position)
            end = len(text) if end < 0 else end
            line = text[position:end]
            if "|" not in line:
                break
            start = position + len(line) - len(line.lstrip())
            rows[start] = position + len(line.rstrip())
            position = end + 1
        if position > max(top, begin):
            tables.append(Span(top, position))

    if inside:
        table(begin, -1)
    for delimiter in _DELIMITER_LINE.finditer(text, begin):
        done = tables[-1].end if tables else 0
        if delimiter.start() < done or delimiter.end() - delimiter.start() > LONGEST_MARK_LINE:
            continue
        above = max(begin, text.rfind("\n", begin, max(begin, delimiter.start() - 1)) + 1)
        if "|" in text[above : max(begin, delimiter.start() - 1)]:
            table(above, above)
    return [Span(start, end) for start, end in sorted(rows.items())], tables


def is_delimiter(text: str, position: int) -> bool:
    """Whether the line that begins at `position` delimits the header of a table from its rows."""
    found = _DELIMITER_LINE.match(text, position)
    return found is not None and found.end() - found.start() <= LONGEST_MARK_LINE


def protected_spans(text: str) -> list[Span]:
    """Code fences, and table rows outside them: sorted and disjoint. A chunk may begin or end at their edges only."""
    return with_rows_outside(code_fences(text), table_rows(text))


def with_rows_outside(fences: list[Span], rows: list[Span]) -> list[Span]:
    """Fences, and those of the rows that are outside of them, in order."""
    if not fences or not rows:
        return fences or rows
    starts = [fence.start for fence in fences]
    kept = list(fences)
    for row in rows:
        at = bisect_right(starts, row.start) - 1
        if (at < 0 or row.start >= fences[at].end) and (at + 1 >= len(fences) or row.end <= fences[at + 1].start):
            kept.append(row)
    return sorted(kept)
