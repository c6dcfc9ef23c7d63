"""Law 1. Chunks lose nothing: for every chunker, every text, every maximum, every overlap."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from ctxkit.chunking import RecursiveChunker, SentenceChunker
from ctxkit.documents import Chunk, Document
from ctxkit.protocols import Chunker, TokenCounter
from ctxkit.tokens import get_counter
from tests.strategies import texts


class Words:
    """A counter that does not add up, and looks at nothing that byte-pair encoding looks at."""

    name = "words"

    def count(self, text: str) -> int:
        return len(text.split()) + len(text) // 7


class Framed:
    """A counter with a cost for every text, as an encoder with its first and last token has."""

    name = "framed"

    def count(self, text: str) -> int:
        return 2 + len(text.encode("utf-8", "surrogatepass")) // 3 if text else 0


COUNTERS: list[TokenCounter] = [get_counter("cl100k_base"), get_counter("o200k_base"), Words(), Framed()]
MAKERS: dict[str, Callable[..., Chunker]] = {
    **{f"recursive-{name}": partial(RecursiveChunker, preset=name) for name in ("text", "markdown", "code", "html")},
    "sentence": SentenceChunker,
}


PIECES = [
    *(
        "# H\n",
        "\n\n",
        "word ",
        "A longer sentence, with clauses; and more. ",
        "- item\n",
        "句子。",
        "\r\n",
        "    ",
        "\t",
    ),
    *("```\n", "```py\n", "~~~\n", "```  \n", "| a | b |\n", "|---|---|\n", "a | b\n--- | ---\n1 | 2\n", "x" * 40),
    *(
        "👍🏽",
        "👨‍👩‍👧‍👦",
        "🇩🇪",
        "e\u0301",
        "\u0301",
        " \u0301",
        "\u0600 ",
        "क्ष",
        "\u2028",
        "\x00",
        "\ud800",
        " " * 50,
        "\n" * 7,
    ),
]
soups = st.lists(st.sampled_from(PIECES), max_size=120).map("".join)
"""Texts in which everything stands beside everything."""


def boundaries(text: str) -> set[int]:
    return {0, *(found.end() for found in regex.finditer(r"\X", text))}


def fences(text: str) -> list[tuple[int, int]]:
    """Written for the test, line by line: from the opening mark to the end of the closing line."""
    found, opened, position = [], None, 0
    for line in text.split("\n"):
        mark = re.match(r" {0,3}(`{3,}|~{3,})(.*)", line, re.DOTALL)
        if mark and opened is None and (mark[1][0] == "~" or "`" not in mark[2]):
            opened = (position + mark.start(1), mark[1])
        elif mark and opened and mark[1].startswith(opened[1]) and not mark[2].strip():
            found.append((opened[0], position + len(line.rstrip())))
            opened = None
        position += len(line) + 1
    return found + ([(opened[0], len(text))] if opened else [])


def rows(text: str) -> list[tuple[int, int]]:
    found, position = [], 0
    for line in text.split("\n"):
        if line.lstrip().startswith("|"):
            found.append((position + len(line) - len(line.lstrip()), position + len(line.rstrip())))
        position += len(line) + 1
    return found


def check(document: Document, chunks: list[Chunk], max_tokens: int, counter: TokenCounter) -> None:
    text = document.text
    covered = bytearray(len(text))
    edges = boundaries(text)
    whole = [(start, end) for start, end in fences(text) if counter.count(text[start:end]) <= max_tokens]
    inside = [(a, b) for a, b in fences(text)]
    whole += [
        (start, end)
        for start, end in rows(text)
        if counter.count(text[start:end]) <= max_tokens and not any(a <= start < b for a, b in inside)
    ]
    for chunk in chunks:
        start, end = chunk.span
        assert chunk.text == text[start:end]
        assert chunk.document_id == document.id
        assert chunk.text.strip()
        assert chunk.token_count == counter.count(chunk.text) <= max_tokens
        for position in (start, end):
            if position not in edges:
                cluster = next(c for c in regex.finditer(r"\X", text) if c.start() < position < c.end())
                assert counter.count(cluster[0]) > max_tokens, "a grapheme that fits is split"
            for a, b in whole:
                assert not a < position < b, "a code fence or a table row that fits is split"
        covered[start:end] = b"\x01" * (end - start)
    for before, after in pairwise(chunks):
        assert before.span.start < after.span.start
        assert before.span.end < after.span.end
    assert all(covered[at] or text[at].isspace() for at in range(len(text)))
    assert len({chunk.id for chunk in chunks}) == len(chunks)


@pytest.mark.parametrize("maker", MAKERS)
@given(data=st.data(), text=st.one_of(texts, soups), max_tokens=st.one_of(st.integers(8, 24), st.integers(25, 120)))
def test_every_text_and_every_maximum(maker: str, data: Any, text: str, max_tokens: int) -> None:
    counter = data.draw(st.sampled_from(COUNTERS))
    overlap = data.draw(st.one_of(st.just(0), st.integers(0, max_tokens - 1)))
    document = Document.from_text(text, source="a")
    chunker = MAKERS[maker](max_tokens=max_tokens, overlap=overlap, counter=counter)
    chunks = list(chunker.chunk(document))
    check(document, chunks, max_tokens, counter)
    if not overlap:
        assert all(a.span.end <= b.span.start for a, b in pairwise(chunks))
    for before, after in pairwise(chunks):
        if after.span.start < before.span.end:
            assert counter.count(text[after.span.start : before.span.end]) <= overlap


@pytest.mark.parametrize("maker", MAKERS)
@given(text=texts.filter(lambda text: all(ord(c) < 0x80 for c in text)), max_tokens=st.integers(1, 7))
@example(text="```\n```", max_tokens=1)
def test_the_smallest_maxima(maker: str, text: str, max_tokens: int) -> None:
    # One ASCII character is one token: every maximum from 1 on is possible.
    counter = COUNTERS[0]
    document = Document.from_text(text, source="a")
    check(document, list(MAKERS[maker](max_tokens=max_tokens, counter=counter).chunk(document)), max_tokens, counter)


@pytest.mark.parametrize("maker", MAKERS)
@given(text=texts, max_tokens=st.integers(1, 300))
def test_the_same_text_gives_the_same_chunks(maker: str, text: str, max_tokens: int) -> None:
    document = Document.from_text(text, source="a")
    chunker = MAKERS[maker](max_tokens=max(max_tokens, 8), counter=COUNTERS[1])
    assert list(chunker.chunk(document)) == list(chunker.chunk(document))
