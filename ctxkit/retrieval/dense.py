"""Retrieval by meaning: the nearest embeddings, from a faiss index beside SQLite or from pgvector."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ctxkit.documents import Candidate, Query
from ctxkit.embedding.indexes import FaissIndex, FlatIndex, open_index
from ctxkit.errors import ConfigError, EmbeddingError
from ctxkit.protocols import Embedder
from ctxkit.retrieval.candidates import check_query, fetch
from ctxkit.retrieval.derived import DerivedIndex

if TYPE_CHECKING:
    from ctxkit.storage import Store

__all__ = ["Dense", "DenseIndex"]

Keys = NDArray[np.int64]
Vectors = NDArray[np.float32]
Scores = NDArray[np.float64]


class DenseIndex(DerivedIndex):
    """The stored embeddings of one embedder's fingerprint."""

    def __init__(self, store: Store, fingerprint: str, dimension: int) -> None:
        super().__init__(store, kind="dense", recipe=f"vectors-1-{fingerprint}-{dimension}")
        self.fingerprint = fingerprint
        self.dimension = dimension
        self._index: FaissIndex | FlatIndex = open_index(dimension)

    def __len__(self) -> int:
        return len(self._index)

    def search(self, vector: Vectors, k: int, *, keys: Keys | None = None) -> tuple[Keys, Vectors]:
        """The nearest `k` keys, best first, and their cosines."""
        with self.current():
            if len(self._index) == 0 and len(self._known):
                raise not_embedded(self.fingerprint)
            return self._index.search(vector, k, keys=keys)

    def clear(self) -> None:
        self._index = open_index(self.dimension)

    def add(self, keys: Keys) -> None:
        found, vectors = self.store.documents.vectors(self.fingerprint, keys)
        if len(found):
            self._index.add(found, vectors)

    def remove(self, keys: Keys) -> None:
        self._index.remove(keys)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        keys = self._index.keys()
        return {"keys": keys, "vectors": self._index.vectors(keys)}

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        try:
            self._index.add(arrays["keys"], arrays["vectors"])
        except ConfigError as error:
            raise ValueError("the arrays are not those of one index") from error


@dataclass(eq=False)
class Dense:
    """Finds chunks whose embedding is near the question's: exact cosine, in [0, 1] with negative ones as 0.

    Beside SQLite an index in memory follows the store and keeps a copy on disk; PostgreSQL computes the neighbours
    itself (pgvector). Costs one forward pass of the embedder and `n * dimension` multiplications.

    Args:
        store: whose chunks.
        embedder: must be the one that the chunks were stored with; its fingerprint says so.

    Raises:
        ConfigError: `k` is not positive, or the query is another tenant's.
        EmbeddingError: there are chunks, but none was embedded by this embedder.

    Example:
        >>> from ctxkit.storage import Store
        >>> from ctxkit.testing import HashEmbedder
        >>> Dense(Store.open("sqlite://"), HashEmbedder()).retrieve(Query("anything"), 10)
        []
    """

    store: Store
    embedder: Embedder

    @cached_property
    def index(self) -> DenseIndex:
        """The index beside SQLite."""
        return DenseIndex(self.store, self.embedder.fingerprint, self.embedder.dimension)

    def current(self) -> AbstractContextManager[None]:
        """Holds the index still for several searches; PostgreSQL has none to hold."""
        return nullcontext() if self.store.kind == "postgresql" else self.index.current()

    def rank(self, query: Query, k: int, *, keys: Keys | None = None) -> tuple[Keys, Scores]:
        """Keys and cosines of the nearest `k` chunks, among these keys where some are given."""
        return self.nearest(self.embedder.embed([query.text])[0], k, keys=keys)

    def nearest(self, vector: Vectors, k: int, *, keys: Keys | None = None) -> tuple[Keys, Scores]:
        """Keys and cosines of the `k` chunks nearest to a vector."""
        if keys is not None and len(keys) == 0:
            return np.zeros(0, dtype=np.int64), np.zeros(0)
        if self.store.kind == "postgresql":
            found, scores = self._nearest_in_database(vector, k, keys)
        else:
            found, scores = self.index.search(vector, k, keys=keys)
        return found, np.clip(np.round(scores.astype(np.float64), 6), 0.0, 1.0)

    def _nearest_in_database(self, vector: Vectors, k: int, keys: Keys | None) -> tuple[Keys, Vectors]:
        documents, fingerprint = self.store.documents, self.embedder.fingerprint
        found, scores = documents.nearest(fingerprint, vector, k, keys=keys)
        if len(found) == 0 and keys is None and len(documents.keys()):
            # Looked at twice, for the first document may have come between the two questions.
            found, scores = documents.nearest(fingerprint, vector, k)
            if len(found) == 0:
                raise not_embedded(fingerprint)
        return found, scores

    def retrieve(self, query: Query, k: int) -> list[Candidate]:
        if not check_query(self.store, query, k):
            return []
        keys, scores = self.rank(query, k, keys=self.store.documents.matching_keys(query.filters))
        return fetch(self.store, keys, {"dense": scores, "final": scores})


def not_embedded(fingerprint: str) -> EmbeddingError:
    return EmbeddingError(
        "no stored chunk was embedded by this embedder",
        subject=fingerprint,
        remedy="Ingest again with it, or search with the embedder that the store was filled with.",
    )
