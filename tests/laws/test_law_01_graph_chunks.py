"""Law 1 for the graph chunker: blocks of any size, any counter, any extractor, whole or in pieces."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ctxkit.chunking import SemanticGraphChunker
from ctxkit.documents import Document
from ctxkit.graph.light import LightExtractor
from tests.laws.test_law_01_chunks_lose_nothing import COUNTERS, check, soups
from tests.strategies import texts

any_text = st.one_of(texts, soups, st.lists(soups, min_size=2, max_size=4).map("".join))


@given(data=st.data(), text=any_text, max_tokens=st.one_of(st.integers(8, 24), st.integers(25, 120)))
def test_every_text_and_every_maximum(data: Any, text: str, max_tokens: int) -> None:
    counter = data.draw(st.sampled_from(COUNTERS))
    preset = data.draw(st.sampled_from(("text", "markdown", "code", "html")))
    extractor = data.draw(st.sampled_from((None, LightExtractor())))
    chunker = SemanticGraphChunker(
        max_tokens=max_tokens, counter=counter, preset=preset, extractor=extractor, block_size=64
    )
    document = Document.from_text(text, source="a")
    chunks = list(chunker.chunk(document))
    check(document, chunks, max_tokens, counter)
    for chunk in chunks:
        assert counter.count(chunk.context) <= chunker.context_tokens
        for entity in chunk.entities:
            assert chunk.span.contains(entity.span)
            assert text[entity.span.start : entity.span.end] == entity.text

    sizes = data.draw(st.lists(st.integers(1, 200), min_size=1, max_size=8))
    stream, found, position = chunker.open(document), [], 0
    while position < len(text):
        size = sizes[len(found) % len(sizes)]
        found += stream.feed(text[position : position + size])
        position += size
    assert found + stream.finish() == chunks


@given(text=texts.filter(str.isascii), max_tokens=st.integers(1, 7))
def test_the_smallest_maxima(text: str, max_tokens: int) -> None:
    # One ASCII character is one token: every maximum from 1 on is possible.
    document = Document.from_text(text, source="a")
    chunker = SemanticGraphChunker(max_tokens=max_tokens, counter=COUNTERS[0], extractor=None, block_size=64)
    check(document, list(chunker.chunk(document)), max_tokens, COUNTERS[0])
