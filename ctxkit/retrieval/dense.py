"""Retrieval by meaning: the nearest embeddings, from a faiss index beside SQLite or from pgvector."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ctxkit.documents import Candidate, Query
from ctxkit.embedded import embedded
from ctxkit.embedding.indexes import FaissIndex, FlatIndex, open_index
from ctxkit.embedding.tiered import TieredIndex
from ctxkit.errors import ConfigError, EmbeddingError
from ctxkit.protocols import Embedder
from ctxkit.retrieval.candidates import check_query, fetch
from ctxkit.retrieval.derived import DerivedIndex

if TYPE_CHECKING:
    from ctxkit.storage import Store

__all__ = ["Dense", "DenseIndex", "TieredDenseIndex"]

Keys = NDArray[np.int64]
Vectors = NDArray[np.float32]
Scores = NDArray[np.float64]


class DenseIndex(DerivedIndex):
    """The stored embeddings of one embedder's fingerprint."""

    def __init__(self, store: Store, fingerprint: str, dimension: int, *, recipe: str = "vectors-1") -> None:
        super().__init__(store, kind="dense", recipe=f"{recipe}-{fingerprint}-{dimension}")
        self.fingerprint = fingerprint
        self.dimension = dimension
        self._index = self._empty()

    def __len__(self) -> int:
        return len(self._index)

    def search(self, vector: Vectors, k: int, *, keys: Keys | None = None) -> tuple[Keys, Vectors]:
        """The nearest `k` keys, best first, and their cosines."""
        with self.current():
            if len(self._index) == 0 and len(self._known):
                raise not_embedded(self.fingerprint)
            return self._index.search(vector, k, keys=keys)

    def clear(self) -> None:
        self._index = self._empty()

    def _empty(self) -> FaissIndex | FlatIndex | TieredIndex:
        return open_index(self.dimension)

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


class TieredDenseIndex(DenseIndex):
    """The same in a sixth of the memory: `TieredIndex`, which reads FP16 from the copy on disk.

    A damaged copy is not used: the vectors come from the store again, and the access history begins anew.
    """

    mapped = ("halves",)
    _AT_ONCE = 8_192

    def __init__(
        self, store: Store, fingerprint: str, dimension: int, *, hot_share: float, rescore: Literal["fp16", "int4"]
    ) -> None:
        self._hot_share, self._rescore = hot_share, rescore
        super().__init__(store, fingerprint, dimension, recipe=f"tiered-1-{rescore}")

    @property
    def tiers(self) -> TieredIndex:
        """The index, for its `memory_bytes`, `disk_bytes`, `hot` keys, `hits` and `reads`."""
        return self._tiers

    def add(self, keys: Keys) -> None:
        # The float32 vectors of all chunks are never in memory together.
        for start in range(0, len(keys), self._AT_ONCE):
            super().add(keys[start : start + self._AT_ONCE])

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return self._tiers.to_arrays()

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        try:
            self._tiers.from_arrays(arrays)
        except EmbeddingError as error:
            raise ValueError("the arrays are not those of one index") from error

    def _save(self) -> None:
        super()._save()
        if self.path is not None:
            self._tiers.adopt(self.path)

    def _empty(self) -> TieredIndex:
        self._tiers = TieredIndex(self.dimension, hot_share=self._hot_share, rescore=self._rescore)
        return self._tiers


@dataclass(eq=False)
class Dense:
    """Finds chunks whose embedding is near the question's: exact cosine, in [0, 1] with negative ones as 0.

    Beside SQLite an index in memory follows the store and keeps a copy on disk; PostgreSQL computes the neighbours
    itself (pgvector). Costs one forward pass of the embedder and `n * dimension` multiplications.

    Args:
        store: whose chunks.
        embedder: must be the one that the chunks were stored with; its fingerprint says so.
        index_kind: `flat` holds float32. `tiered` holds INT4 and the often found vectors in FP16, a sixth of the
            bytes, and reads the FP16 vectors of a shortlist from disk. `int4` reads nothing from disk and scores by
            INT4. On PostgreSQL only `flat` has a meaning.
        hot_share: of `tiered`, the part of the vectors whose FP16 form is held in memory.

    Raises:
        ConfigError: an argument is wrong, `k` is not positive, or the query is another tenant's.
        EmbeddingError: there are chunks, but none was embedded by this embedder.

    Example:
        >>> from ctxkit.storage import Store
        >>> from ctxkit.testing import HashEmbedder
        >>> Dense(Store.open("sqlite://"), HashEmbedder()).retrieve(Query("anything"), 10)
        []
    """

    store: Store
    embedder: Embedder
    _: KW_ONLY
    index_kind: Literal["flat", "tiered", "int4"] = "flat"
    hot_share: float = 0.05

    def __post_init__(self) -> None:
        if self.index_kind not in ("flat", "tiered", "int4"):
            raise ConfigError(f"index_kind is {self.index_kind!r}", remedy="Use 'flat', 'tiered' or 'int4'.")
        if not 0 <= self.hot_share <= 1:
            raise ConfigError(f"hot_share is {self.hot_share}", remedy="Use a part of all vectors, from 0 to 1.")
        if self.index_kind != "flat" and self.store.kind == "postgresql":
            raise ConfigError(
                f"index_kind is {self.index_kind!r} and the store is PostgreSQL",
                remedy="Use 'flat': pgvector holds the vectors there.",
            )

    @cached_property
    def index(self) -> DenseIndex:
        """The index beside SQLite."""
        fingerprint, dimension = self.embedder.fingerprint, self.embedder.dimension
        if self.index_kind == "flat":
            return DenseIndex(self.store, fingerprint, dimension)
        rescore: Literal["fp16", "int4"] = "fp16" if self.index_kind == "tiered" else "int4"
        return TieredDenseIndex(self.store, fingerprint, dimension, hot_share=self.hot_share, rescore=rescore)

    def current(self) -> AbstractContextManager[None]:
        """Holds the index still for several searches; PostgreSQL has none to hold."""
        return nullcontext() if self.store.kind == "postgresql" else self.index.current()

    def rank(self, query: Query, k: int, *, keys: Keys | None = None) -> tuple[Keys, Scores]:
        """Keys and cosines of the nearest `k` chunks, among these keys where some are given."""
        return self.nearest(embedded(self.embedder, [query.text])[0], k, keys=keys)

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
