"""Puts documents with their entities, vectors and graph into a store, as an ingest does, and remembers embeddings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ctxkit.documents import Chunk, Document
from ctxkit.embedding import embed_chunks
from ctxkit.graph.building import document_graph
from ctxkit.graph.light import LightExtractor
from ctxkit.graph.tagging import tag
from ctxkit.protocols import Embedder, EntityExtractor
from ctxkit.storage import Store

__all__ = ["Remembering", "store_documents"]


def store_documents(
    store: Store,
    items: Sequence[tuple[Document, Sequence[Chunk]]],
    embedder: Embedder,
    extractor: EntityExtractor | None = None,
) -> None:
    """Store documents cut into chunks, with entities (by rule, unless an extractor is given); known ones stay."""
    known = store.documents.states([document.id for document, _ in items])
    new = list(tag([item for item in items if item[0].id not in known], extractor or LightExtractor()))
    vectors = embed_chunks(embedder, new)
    position = 0
    for document, pieces in new:
        own = vectors[position : position + len(pieces)]
        position += len(pieces)
        store.documents.put(
            document,
            pieces,
            recipe="benchmark",
            fingerprint=embedder.fingerprint,
            vectors=own,
            graph=document_graph(document.text, pieces),
        )


class Remembering:
    """An embedder that has embedded the queries once, so that each system does not do it again."""

    def __init__(self, embedder: Embedder, texts: Sequence[str]) -> None:
        self._vectors = dict(zip(texts, embedder.embed(texts), strict=True))
        self.dimension, self.fingerprint = embedder.dimension, embedder.fingerprint

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.stack([self._vectors[text] for text in texts])
