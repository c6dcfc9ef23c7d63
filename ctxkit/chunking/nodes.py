"""The nodes of a block: its sentences, headings, list items, table rows, fences; each whole, each of known size."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise

from ctxkit.chunking.blocks import Block
from ctxkit.chunking.cutting import Cutter, Level
from ctxkit.documents import Span
from ctxkit.text import Graphemes, sentence_breaks

__all__ = ["Kind", "Nodes", "nodes_of", "pieces_of"]


class Kind(IntEnum):
    """What a node is."""

    PROSE = 0
    HEADING = 1
    ITEM = 2
    ROW = 3
    FENCE = 4


@dataclass(slots=True)
class Nodes:
    """The nodes of one block, in order, as columns. Offsets count from the block's beginning.

    Attributes:
        starts: where each begins; the indentation of its first line is its own.
        ends: where each ends, without the white space after it.
        tokens: of each, the white space before it included, so that they nearly add up.
        kinds: what each is.
        gaps: line ends before each: 0, 1, or 2 for a blank line.
    """

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    kinds: list[Kind] = field(default_factory=list)
    gaps: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.starts)

    def add(self, span: Span, tokens: int, kind: Kind, gap: int) -> None:
        self.starts.append(span.start)
        self.ends.append(span.end)
        self.tokens.append(tokens)
        self.kinds.append(kind)
        self.gaps.append(gap)


_CONTENT = re.compile(r"\S")
_LINE_START = re.compile(r"\n\s*+")
_ITEM = re.compile(r"[^\S\n]*(?:[-*+•‣–]|\d{1,3}[.)]|[a-z][.)]|\[\d+\])[ \t]")
_HEADING = re.compile(r"[^\S\n]{0,3}(?:#{1,6}[ \t]|=++ .* =++\Z)|[^\n]+\n[^\S\n]*(?:=+|-+)\Z")
_ESCAPED = re.compile(r"(?:\\r)?\\n(?:(?:\\r)?\\n|\s)*+")
_WIDEST_INDENT = 200
_LONGEST_TITLE = 80  # characters of a line that may be a heading without marks
_LONGEST_HEADING = 400
_FINEST = 24  # nodes to a chunk, on average: where there are many more, small ones are joined


def nodes_of(block: Block, *, limit: int, count: Callable[[str], int], levels: Sequence[Level], code: bool) -> Nodes:
    """Segment a block.

    Args:
        limit: the most tokens of a node; what is longer is cut at `levels`.
        code: whether lines take the place of sentences.

    Complexity: linear in the block.
    """
    text = block.text
    graphemes = Graphemes(text)
    whole = {span.start: span.end for span in block.protected if count(span.slice(text)) <= limit}
    starts = _starts(block, whole, graphemes, code)
    nodes = Nodes()
    done = 0
    for start, following in pairwise([*starts, len(text)]):
        fence = whole.get(start)
        end = graphemes.ceil(start + len(text[start:following].rstrip()))
        end = end if fence is None else max(end, fence)
        if end <= start:
            continue
        kind = _kind(text[start : min(end, start + _LONGEST_HEADING)], whole=fence is not None)
        gap = min(2, text.count("\n", done, start)) if len(nodes) else 2
        tokens = count(text[done:end])
        if tokens > limit:
            tokens = count(text[start:end])
        if tokens <= limit:
            nodes.add(Span(start, end), tokens, kind, gap)
        else:
            for span, size in pieces_of(text, Span(start, end), limit, count, levels):
                nodes.add(span, size, kind, gap)
                gap = 0
        done = end
    if len(nodes) * limit > sum(nodes.tokens) * 4 * _FINEST:
        nodes = _joined(nodes, limit // _FINEST)
    _find_titles(text, nodes)
    return nodes


def pieces_of(
    text: str, span: Span, limit: int, count: Callable[[str], int], levels: Sequence[Level]
) -> list[tuple[Span, int]]:
    """The pieces of one span that is over the limit, and their tokens."""
    part = span.slice(text)
    cutter = Cutter(part, count=count, limit=limit, overlap=0, levels=levels, overlap_levels=(), blocks=())
    return [(piece.span.shift(span.start), piece.tokens) for piece in cutter.pieces()]


def _starts(block: Block, whole: dict[int, int], graphemes: Graphemes, code: bool) -> list[int]:
    """Where nodes begin, in order, none inside a grapheme or a span that stays whole."""
    text = block.text
    places: list[int] = [0]

    def prose(low: int, high: int) -> None:
        if code:
            places.extend(found.end() for found in _LINE_START.finditer(text, low, high))
        else:
            places.extend(sentence_breaks(text, low, high))

    position = 0
    for start, end in whole.items():
        prose(position, start)
        places.extend((start, end))
        position = end
    prose(position, len(text))
    if text.count("\\n") > 4 * text.count("\n"):  # a log that was written as one escaped string
        escaped = [found.end() for found in _ESCAPED.finditer(text)]
        inside = list(whole.items())
        places = sorted({*places, *(place for place in escaped if not _is_inside(place, inside))})
    starts: list[int] = []
    for place in places:
        begin = place if place in whole else _start(text, place)
        if begin is None:
            continue
        start = graphemes.floor(begin)
        if not starts or start > starts[-1]:
            starts.append(start)
    return starts


def _is_inside(place: int, spans: Sequence[tuple[int, int]]) -> bool:
    at = bisect_left(spans, (place, 0)) - 1
    return at >= 0 and spans[at][0] < place < spans[at][1]


def _start(text: str, place: int) -> int | None:
    """Where the node behind `place` begins: at its content, or at the indentation of its line."""
    found = _CONTENT.search(text, place)
    if found is None:
        return None
    content = found.start()
    line = content
    floor = max(0, content - _WIDEST_INDENT)
    while line > floor and text[line - 1].isspace() and text[line - 1] not in "\n\r":
        line -= 1
    return line if line == 0 or text[line - 1] in "\n\r" else content


def _kind(text: str, *, whole: bool) -> Kind:
    head = text.lstrip()
    if whole and head.startswith(("```", "~~~")):
        return Kind.FENCE
    if head.startswith("|") or (" | " in head and "\n" not in head):
        return Kind.ROW
    if len(text) < _LONGEST_HEADING and _HEADING.match(text):
        return Kind.HEADING
    return Kind.ITEM if _ITEM.match(text) else Kind.PROSE


def _joined(nodes: Nodes, least: int) -> Nodes:
    """Neighbours that are very small and in one paragraph as one node."""
    joined = Nodes()
    for at in range(len(nodes)):
        small = nodes.tokens[at] + (joined.tokens[-1] if joined.tokens else least) <= least
        if small and nodes.gaps[at] < 2 and Kind.FENCE not in (nodes.kinds[at], joined.kinds[-1]):
            joined.ends[-1] = nodes.ends[at]
            joined.tokens[-1] += nodes.tokens[at]
        else:
            joined.add(Span(nodes.starts[at], nodes.ends[at]), nodes.tokens[at], nodes.kinds[at], nodes.gaps[at])
    return joined


def _find_titles(text: str, nodes: Nodes) -> None:
    """Mark short lines that stand alone, end in no stop and come before something longer: headings without marks."""
    for at in range(len(nodes) - 1):
        start, end = nodes.starts[at], nodes.ends[at]
        if (
            nodes.kinds[at] is Kind.PROSE
            and nodes.gaps[at]
            and nodes.gaps[at + 1]
            and end - start <= _LONGEST_TITLE
            and text[end - 1].isalnum()
            and (text[start].isupper() or text[start].isdigit())
            and nodes.kinds[at + 1] is Kind.PROSE
            and 2 * (nodes.ends[at + 1] - nodes.starts[at + 1]) > 3 * (end - start)
        ):
            nodes.kinds[at] = Kind.HEADING
