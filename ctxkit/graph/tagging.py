"""Gives chunks the entities that an extractor finds in their documents."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ctxkit.documents import Chunk, Document, Entity, Span
from ctxkit.errors import ConfigError
from ctxkit.protocols import EntityExtractor

__all__ = ["WINDOW", "tag"]

WINDOW = 20_000
"""Characters that an extractor reads at once, about; a chunk that is longer is read whole."""


def tag(
    documents: Sequence[tuple[Document, Sequence[Chunk]]], extractor: EntityExtractor
) -> Iterator[tuple[Document, list[Chunk]]]:
    """The documents with their chunks, each chunk with the entities that it holds whole. Linear; lazy.

    The extractor reads runs of neighbouring chunks, not one chunk after the other: what a name is shows in the
    sentences around it, some of which are in the next chunk. A run ends where a chunk ends, so that no entity of a
    chunk is cut. All runs of all documents pass through one call of the extractor.

    Raises:
        ConfigError: the extractor gives more or fewer answers than it got texts.
    """
    runs = [list(_runs(chunks)) for _, chunks in documents]
    spans = [
        [_span(chunks[start:end]) for start, end in found] for (_, chunks), found in zip(documents, runs, strict=True)
    ]
    texts = (span.slice(document.text) for (document, _), found in zip(documents, spans, strict=True) for span in found)
    answers = iter(extractor.extract(texts))
    for (document, chunks), bounds, windows in zip(documents, runs, spans, strict=True):
        tagged: list[Chunk] = []
        for (start, end), window in zip(bounds, windows, strict=True):
            entities = next(answers, None)
            if entities is None:
                raise _uneven(extractor, "fewer")
            tagged += _shared_out(chunks[start:end], entities, window.start)
        yield document, tagged
    if next(answers, None) is not None:
        raise _uneven(extractor, "more")


def _runs(chunks: Sequence[Chunk]) -> Iterator[tuple[int, int]]:
    """Neighbouring chunks of at most `WINDOW` characters together, as ranges."""
    start = 0
    for index, chunk in enumerate(chunks):
        if index > start and chunk.span.end - chunks[start].span.start > WINDOW:
            yield start, index
            start = index
    if chunks:
        yield start, len(chunks)


def _span(chunks: Sequence[Chunk]) -> Span:
    return Span(min(chunk.span.start for chunk in chunks), max(chunk.span.end for chunk in chunks))


def _shared_out(chunks: Sequence[Chunk], entities: Sequence[Entity], offset: int) -> Iterator[Chunk]:
    """The chunks with those of the entities, whose spans count from `offset`, that are whole in them."""
    moved = [Entity(entity.text, entity.label, entity.span.shift(offset)) for entity in entities]
    moved.sort(key=lambda entity: entity.span)
    starts = [entity.span.start for entity in moved]
    for chunk in chunks:
        here = moved[bisect_left(starts, chunk.span.start) : bisect_left(starts, chunk.span.end)]
        yield replace(chunk, entities=tuple(entity for entity in here if entity.span.end <= chunk.span.end))


def _uneven(extractor: EntityExtractor, what: str) -> ConfigError:
    return ConfigError(
        f"the extractor gave {what} answers than it got texts",
        subject=type(extractor).__name__,
        remedy="Yield one sequence of entities for each text, in order: see EntityExtractorConformance.",
    )
