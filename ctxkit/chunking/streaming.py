"""Chunks of a text that arrives piece by piece."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from ctxkit.checking import check_able, check_whole
from ctxkit.chunking.recursive import RecursiveChunker
from ctxkit.documents import Chunk, Document
from ctxkit.stage_inputs import check_document

__all__ = ["ChunkStream", "StreamableChunker", "StreamingChunker"]


class ChunkStream(Protocol):
    """One text on its way: pieces in, chunks out, as soon as nothing that follows can change them."""

    def feed(self, text: str) -> list[Chunk]: ...

    def finish(self) -> list[Chunk]: ...


@runtime_checkable
class StreamableChunker(Protocol):
    """A chunker that gives the same chunks for a text in pieces as for the whole."""

    def chunk(self, document: Document) -> Iterator[Chunk]: ...

    def open(self, document: Document) -> ChunkStream: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamingChunker:
    """Cuts a text that arrives in pieces of any size into the chunks that it would have as a whole.

    Chunks leave as soon as they are certain, which takes some lookahead: about a chunk for `RecursiveChunker`, a block
    (`block_size`) for `SemanticGraphChunker`. What is certain is forgotten, so memory is bounded by the lookahead, not
    by the text; only where a code fence or a table row that still fits into a chunk is longer, it grows to hold that.

    Args:
        chunker: any `StreamableChunker`; the recursive and the graph chunker are.
        piece_size: characters at a time in which `chunk` feeds a document that is there already.

    Example:
        >>> head = Document.from_text("", source="notes.txt")
        >>> streaming = StreamingChunker(chunker=RecursiveChunker(max_tokens=4))
        >>> [chunk.text for chunk in streaming.stream(["He ca", "me. He", " saw. He left."], head)]
        ['He came.', 'He saw.', 'He left.']
    """

    chunker: StreamableChunker = field(default_factory=RecursiveChunker)
    piece_size: int = 65_536

    def __post_init__(self) -> None:
        for method in ("chunk", "open"):
            check_able(self.chunker, method, "chunker", remedy="Give a RecursiveChunker or a SemanticGraphChunker.")
        check_whole(self.piece_size, "piece_size", minimum=1)

    def chunk(self, document: Document) -> Iterator[Chunk]:
        """The chunks of a document, without more memory than a stream of it takes."""
        check_document(document)
        text, size = document.text, self.piece_size
        return self.stream((text[at : at + size] for at in range(0, len(text), size)), document)

    def stream(self, pieces: Iterable[str], document: Document) -> Iterator[Chunk]:
        """The chunks of the text that `pieces` make together, lazily.

        Args:
            document: id, title, source and metadata of the text; its own text is not read.

        Raises:
            ConfigError: a piece is not a str.
        """
        stream = self.open(document)
        for piece in pieces:
            yield from stream.feed(piece)
        yield from stream.finish()

    def open(self, document: Document) -> ChunkStream:
        """A stream to feed by hand."""
        return self.chunker.open(document)
