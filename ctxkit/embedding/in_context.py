"""Vectors of chunks that say more than the chunk's text read as one: its sentences one by one, and its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ctxkit.checking import check_able, check_number
from ctxkit.documents import Chunk, Document
from ctxkit.embedded import embedded
from ctxkit.protocols import Embedder
from ctxkit.registry import create
from ctxkit.storage import index_text
from ctxkit.text import sentence_spans

__all__ = ["ChunkEmbedder", "InContext", "embed_chunks"]

Vectors = NDArray[np.float32]
Items = Sequence[tuple[Document, Sequence[Chunk]]]


@runtime_checkable
class ChunkEmbedder(Protocol):
    """An embedder that is given chunks with their documents instead of texts, where vectors are made to be stored."""

    def embed_chunks(self, items: Items) -> Vectors: ...


def embed_chunks(embedder: Embedder, items: Items) -> Vectors:
    """The vectors of all chunks of some documents, in order: what an ingest stores.

    An embedder that is a `ChunkEmbedder` is asked for them; any other embeds what an index sees of each chunk.
    """
    if isinstance(embedder, ChunkEmbedder):
        return embedder.embed_chunks(items)
    return embedded(embedder, _texts(items))


@dataclass(frozen=True, kw_only=True, slots=True)
class InContext:
    """Makes the vector of a chunk of its text read whole, of its sentences read alone, and of its neighbours.

    One vector a chunk still, of unit length, by any embedder: `v = unit(c + sentences * unit(sum of s))`, where `c` is
    the vector of the text with its context line and `s` are those of its sentences; then, along each document,
    `unit(v + neighbours * (before + after))`. Questions are embedded as ever.

    Each text is read twice, once whole and once in sentences, so the embedding of an ingest takes about twice as long;
    a question costs what it did. With `sentences=0` nothing is read twice.

    Args:
        embedder: whose vectors; a registered name, or any `Embedder`.
        sentences: the weight of a chunk's sentences beside its whole, 0 for none.
        neighbours: the weight of the chunk before and of the one after beside its own, 0 for none.

    Raises:
        ConfigError: a weight is negative or more than 100, or the embedder is none.

    Complexity: linear in the text.

    Example:
        >>> embedder = InContext(embedder="hash")
        >>> embedder.embed(["Where do cats sleep?"]).shape, embedder.fingerprint
        ((1, 64), 'hash-64-in-context-1-0.2')
    """

    embedder: Embedder | str = "minilm"
    sentences: float = 1.0
    neighbours: float = 0.2

    def __post_init__(self) -> None:
        if isinstance(self.embedder, str):
            object.__setattr__(self, "embedder", create("embedder", self.embedder))
        check_able(self.embedder, "embed", "embedder", remedy="Give a registered embedder's name, or an Embedder.")
        for name in ("sentences", "neighbours"):
            check_number(getattr(self, name), name, minimum=0.0, maximum=100.0)

    @property
    def dimension(self) -> int:
        return self._inner.dimension

    @property
    def fingerprint(self) -> str:
        """The embedder's, and the weights: vectors of other weights are another space."""
        return f"{self._inner.fingerprint}-in-context-{self.sentences:g}-{self.neighbours:g}"

    @property
    def _inner(self) -> Embedder:
        return cast("Embedder", self.embedder)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """The vectors of texts that stand alone, such as questions: the embedder's own."""
        return self._inner.embed(texts)

    def embed_chunks(self, items: Items) -> Vectors:
        """The vectors of all chunks of some documents, in order; documents do not touch each other."""
        whole = _texts(items)
        parts, owners = self._sentences(items)
        known = {text: at for at, text in enumerate(dict.fromkeys([*whole, *parts]))}
        found = self._inner.embed(list(known))
        vectors = found[[known[text] for text in whole]].astype(np.float64)
        if parts:
            means = np.zeros_like(vectors)
            np.add.at(means, owners, found[[known[text] for text in parts]])
            vectors = _unit(vectors + self.sentences * _unit(means, means), vectors)
        if self.neighbours:
            vectors = self._beside(vectors, [len(chunks) for _, chunks in items])
        return vectors.astype(np.float32)

    def _sentences(self, items: Items) -> tuple[list[str], list[int]]:
        """The sentences of all chunks, and the chunk that each is of."""
        parts: list[str] = []
        owners: list[int] = []
        if self.sentences:
            texts = (chunk.text for _, chunks in items for chunk in chunks)
            for number, text in enumerate(texts):
                own = [part for span in sentence_spans(text) if (part := span.slice(text).strip())]
                parts.extend(own)
                owners.extend([number] * len(own))
        return parts, owners

    def _beside(self, vectors: NDArray[np.float64], counts: Sequence[int]) -> NDArray[np.float64]:
        mixed = vectors.copy()
        low = 0
        for count in counts:
            own, into = vectors[low : low + count], mixed[low : low + count]
            into[1:] += self.neighbours * own[:-1]
            into[:-1] += self.neighbours * own[1:]
            low += count
        return _unit(mixed, vectors)


def _texts(items: Items) -> list[str]:
    return [
        index_text(document.title, chunk.heading_path, chunk.text, chunk.context)
        for document, chunks in items
        for chunk in chunks
    ]


def _unit(vectors: NDArray[np.float64], otherwise: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each at unit length; where opposites cancelled out, the other one."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    there = length > 1e-6
    return np.where(there, vectors / np.where(there, length, 1.0), otherwise)
