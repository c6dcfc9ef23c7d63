"""Exact nearest vectors by inner product: with faiss, or with numpy alone where faiss is not installed.

Both indexes give the same answers, order ties by key, and share one file format, so that an index written with faiss
opens without it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctxkit.embedding.files import read_arrays, write_arrays
from ctxkit.embedding.key_lists import whole_keys
from ctxkit.errors import ConfigError, EmbeddingError, MissingExtraError
from ctxkit.settings import require

__all__ = ["FaissIndex", "FlatIndex", "load_index", "open_index"]

Keys = NDArray[np.int64]
Vectors = NDArray[np.float32]

_DECIMALS = 6
"""Scores are rounded: the last bits of a float32 sum differ between libraries, and a tie must be a tie."""

_FEW = 8
"""Fewer keys than this part of the index are scored one by one instead of searched for."""


def open_index(dimension: int) -> FaissIndex | FlatIndex:
    """A `FaissIndex`, or a `FlatIndex` where faiss is not installed."""
    try:
        return FaissIndex(dimension)
    except MissingExtraError:
        return FlatIndex(dimension)


class _Index:
    """What the two share: checks, the order of results, and the file."""

    def __init__(self, dimension: int) -> None:
        if dimension < 1:
            raise ConfigError(f"dimension is {dimension}", remedy="A vector has at least one component.")
        self.dimension = dimension

    def __len__(self) -> int:
        return len(self.keys())

    def keys(self) -> Keys:
        """The keys in the index, ascending."""
        raise NotImplementedError

    def vectors(self, keys: Keys) -> Vectors:
        """The vectors of these keys, shape `(len(keys), dimension)`. Raises `EmbeddingError` for an unknown key."""
        raise NotImplementedError

    def add(self, keys: Keys, vectors: Vectors) -> None:
        """Add vectors of shape `(n, dimension)` under `n` keys; a key that is there gets the new vector."""
        keys, vectors = self._checked(keys, vectors)
        if len(keys) == 0:
            return
        known = np.isin(keys, self.keys())
        if known.any():
            self.remove(keys[known])
        self._add(keys, vectors)

    def remove(self, keys: Keys) -> None:
        """Remove these keys; unknown ones are ignored. Linear in the size of the index."""
        raise NotImplementedError

    def search(self, vector: Vectors, k: int, *, keys: Keys | None = None) -> tuple[Keys, Vectors]:
        """The `k` keys of the highest inner product with `vector`, best first, ties by key; and their scores.

        With `keys`, only these are looked at. Fewer come back when there are fewer. Linear in the size of the index,
        or in the number of `keys` and a logarithmic look-up of each where they are few.
        """
        if k < 1:
            raise ConfigError(f"k is {k}", remedy="Ask for at least one neighbour.")
        wanted = np.ascontiguousarray(vector, dtype=np.float32).reshape(-1)
        if len(wanted) != self.dimension:
            raise ConfigError(
                f"the vector has {len(wanted)} components and the index {self.dimension}",
                remedy="Embed the query with the embedder that made the index.",
            )
        if keys is not None:
            # Few keys among many: look each up, sort none of the index.
            own, keys = self.keys(), np.unique(whole_keys(keys))
            places = np.searchsorted(own, keys)
            keys = keys[own[np.minimum(places, len(own) - 1)] == keys] if len(own) else keys[:0]
            if len(keys) * _FEW <= len(self) or len(keys) <= k:
                scores = np.round(self.vectors(keys) @ wanted, _DECIMALS)
                order = np.lexsort((keys, -scores))[:k]
                return keys[order], scores[order]
        total = len(self) if keys is None else len(keys)
        # A tie that reaches over the edge is fetched whole, so that the key decides it and not the order of adding.
        reach = min(total, k + 8)
        while True:
            found, scores = self._search(wanted, reach, keys) if reach else (_NO_KEYS, _NO_SCORES)
            scores = np.round(scores, _DECIMALS)
            if len(found) < reach or reach >= total or scores[k - 1] > scores[-1]:
                break
            reach = min(total, reach * 4)
        order = np.lexsort((found, -scores))[:k]
        return found[order], scores[order]

    def save(self, path: Path, **header: str) -> None:
        """Write the index and these facts about it to a file, atomically: another process sees the old one or this."""
        keys = self.keys()
        write_arrays(path, {"keys": keys, "vectors": self.vectors(keys)}, header)

    def _add(self, keys: Keys, vectors: Vectors) -> None:
        raise NotImplementedError

    def _search(self, vector: Vectors, k: int, keys: Keys | None) -> tuple[Keys, Vectors]:
        raise NotImplementedError

    def _checked(self, keys: Keys, vectors: Vectors) -> tuple[Keys, Vectors]:
        keys = np.ascontiguousarray(whole_keys(keys))
        vectors = np.ascontiguousarray(vectors, dtype=np.float32)
        if vectors.shape != (len(keys), self.dimension):
            raise ConfigError(
                f"vectors of shape {vectors.shape} for {len(keys)} keys of dimension {self.dimension}",
                remedy="Give one vector a key.",
            )
        if len(np.unique(whole_keys(keys))) != len(keys):
            raise ConfigError("a key comes twice in one call", remedy="Give every key once.")
        return keys, vectors


_NO_KEYS = np.zeros(0, dtype=np.int64)
_NO_SCORES = np.zeros(0, dtype=np.float32)


class FlatIndex(_Index):
    """Exact search with numpy. Costs `n * dimension` multiplications a query and no dependency."""

    def __init__(self, dimension: int) -> None:
        super().__init__(dimension)
        self._keys = _NO_KEYS
        self._vectors = np.zeros((0, dimension), dtype=np.float32)

    def keys(self) -> Keys:
        return self._keys

    def vectors(self, keys: Keys) -> Vectors:
        return self._vectors[self._rows(keys)]

    def remove(self, keys: Keys) -> None:
        keep = ~np.isin(self._keys, keys)
        self._keys, self._vectors = self._keys[keep], self._vectors[keep]

    def _add(self, keys: Keys, vectors: Vectors) -> None:
        order = np.argsort(np.concatenate([self._keys, keys]), kind="stable")
        self._keys = np.concatenate([self._keys, keys])[order]
        self._vectors = np.concatenate([self._vectors, vectors])[order]

    def _search(self, vector: Vectors, k: int, keys: Keys | None) -> tuple[Keys, Vectors]:
        if keys is None:
            candidates, scores = self._keys, self._vectors @ vector
        else:
            rows = np.flatnonzero(np.isin(self._keys, keys))
            candidates, scores = self._keys[rows], self._vectors[rows] @ vector
        best = np.argpartition(-scores, k - 1)[:k] if k < len(scores) else np.arange(len(scores))
        best = best[np.argsort(-scores[best], kind="stable")]
        return candidates[best], scores[best]

    def _rows(self, keys: Keys) -> NDArray[np.intp]:
        rows = np.searchsorted(self._keys, keys)
        if len(keys) and (len(self._keys) == 0 or (self._keys[np.minimum(rows, len(self._keys) - 1)] != keys).any()):
            raise EmbeddingError("a key is not in the index", remedy="Ask only for keys that keys() gives.")
        return rows


class FaissIndex(_Index):
    """Exact search with faiss: `IndexIDMap2` over `IndexFlatIP`. Raises `MissingExtraError` without faiss.

    Source: Johnson, Douze and Jégou, "Billion-scale similarity search with GPUs", IEEE Big Data 2019.
    """

    def __init__(self, dimension: int) -> None:
        super().__init__(dimension)
        self._faiss = require("faiss", extra="local", subject="FaissIndex")
        self._index: Any = self._faiss.IndexIDMap2(self._faiss.IndexFlatIP(dimension))
        self._sorted: Keys | None = _NO_KEYS

    def keys(self) -> Keys:
        if self._sorted is None:
            self._sorted = np.sort(self._faiss.vector_to_array(self._index.id_map)).astype(np.int64)
        return self._sorted

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def vectors(self, keys: Keys) -> Vectors:
        if len(keys) == 0:
            return np.zeros((0, self.dimension), dtype=np.float32)
        try:
            return np.asarray(self._index.reconstruct_batch(np.ascontiguousarray(keys, dtype=np.int64)))
        except RuntimeError as error:
            raise EmbeddingError("a key is not in the index", remedy="Ask only for keys that keys() gives.") from error

    def remove(self, keys: Keys) -> None:
        if len(keys) and len(self):
            self._index.remove_ids(np.ascontiguousarray(keys, dtype=np.int64))
            self._sorted = None

    def _add(self, keys: Keys, vectors: Vectors) -> None:
        self._index.add_with_ids(vectors, keys)
        self._sorted = None

    def _search(self, vector: Vectors, k: int, keys: Keys | None) -> tuple[Keys, Vectors]:
        parameters = None
        if keys is not None:
            selector = self._faiss.IDSelectorBatch(np.ascontiguousarray(keys, dtype=np.int64))
            parameters = self._faiss.SearchParameters(sel=selector)
        # faiss shares out queries, not vectors: for one query its other threads would only wait. The number of threads
        # belongs to the calling thread, so nobody else notices.
        threads = self._faiss.omp_get_max_threads()
        self._faiss.omp_set_num_threads(1)
        try:
            scores, found = self._index.search(vector[None, :], k, params=parameters)
        finally:
            self._faiss.omp_set_num_threads(threads)
        there = found[0] >= 0
        return found[0][there], scores[0][there]


def load_index(path: Path, dimension: int) -> tuple[FaissIndex | FlatIndex, dict[str, str]] | None:
    """The index in a file and the facts saved with it; None when the file is missing, damaged or of another shape."""
    content = read_arrays(path)
    if content is None:
        return None
    arrays, header = content
    index = open_index(dimension)
    try:
        index.add(arrays["keys"], arrays["vectors"])
    except (KeyError, ConfigError, ValueError):
        return None
    return index, header
