"""A part of a text that knows what it begins in reads its fences and rows as the whole does."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from ctxkit.chunking.marks import Carried, Marks
from ctxkit.documents import Span

PIECES = [
    "\n", "\n\n", "```", "```\n", "~~~~\n", "a | b\n--- | ---\nc | d\n", "| a | b |\n", "   ", " " * 80, "|", "x",
    " | ", "--- | ---\n", "word ", "``", "\r\n",
]  # fmt: skip

marked = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


def clipped(spans: list[Span], position: int) -> list[tuple[int, int]]:
    return [(max(position, span.start), span.end) for span in spans if span.end > position]


@given(marked)
@example("    | a |\n")
@example("   a | b\n--- | ---\nc | d\n")
@example(" " * 80 + "| a | b |\n")
@example("a | b\n--- | ---\nc | d\ne | f\n")
@example("```\ncode\n\n| no row |\n```\n")
def test_a_part_reads_as_the_whole_does(text: str) -> None:
    whole = Marks(text, Carried(), ended=True)
    for position in range(len(text)):
        line = text.rfind("\n", 0, position) + 1
        if line < position and re.compile(r" {0,3}(```|~~~)").match(text, line):
            continue  # the rest of such a line does not say what it is, and no part begins there
        part = Marks(text[position:], whole.at(position), ended=True)
        found = [span.shift(position) for span in part.blocks]
        assert clipped(found, position) == clipped(whole.blocks, position), position


def test_a_line_that_is_not_all_here_counts_as_a_row() -> None:
    assert Marks("one\ntwo", Carried(), ended=False).blocks == [Span(4, 7)]
    assert Marks("one\ntwo", Carried(), ended=True).blocks == []
