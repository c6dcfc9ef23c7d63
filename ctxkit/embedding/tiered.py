"""A vector index in a sixth of the memory: INT4 codes of every vector, FP16 of the ones that are asked for.

A search has three steps, each over fewer vectors with more bits: integer products with all codes give a shortlist, the
scales shorten it, and FP16 decides. The FP16 vectors lie in a file; those of hot keys are in memory too. Where a vector
is read from never changes a result: the tiers are a cache, and the scores are those of the file.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ctxkit.embedding.access import AccessHistory
from ctxkit.embedding.code_tables import CodeTable, open_table, whole_numbers
from ctxkit.embedding.files import map_arrays, write_arrays
from ctxkit.embedding.halves import HalfFiles, product, to_halves
from ctxkit.embedding.indexes import _DECIMALS, _Index
from ctxkit.embedding.int4 import GROUP, check, dequantise, padded, quantise
from ctxkit.embedding.key_lists import KeyList, whole_keys
from ctxkit.errors import ConfigError, EmbeddingError

__all__ = ["TieredIndex", "load_tiered"]

Keys = NDArray[np.int64]
Rows = NDArray[np.int64]
Vectors = NDArray[np.float32]

_UNEVEN = 0.08
"""The first step takes each group's mean scale for the scale. How far scales are from it (root mean square, as a part
of it: 0.18 for MiniLM and for normal noise) matters less the more groups there are: divided by the root of their number
it is 0.05 for 384 components. Above this limit vectors are sparse, short, or not of one length, and are decoded."""


class TieredIndex(_Index):
    """Nearest vectors by inner product, for unit vectors: INT4 scan, FP16 rescoring, an FP16 tier of hot vectors.

    Memory for 384 dimensions, in bytes a vector: 192 of codes, 24 of scales, and `hot_share` of 768 and of 30 for the
    access history; float32 has 1,536. Disk: 768 for FP16.

    Searching costs one fast-scan pass over the codes and reads `2 k + 16` FP16 vectors. What can be missing: a vector
    whose product with bare codes is not among the best `4 k + 32`, or not among the best `2 k + 16` with its mean
    scale (measured in `docs/decisions/0013-tiered-embeddings.md`). With `rescore="int4"` nothing is on disk and
    nothing hot: the INT4 vectors give the scores.

    Safe to search from several threads.

    Args:
        dimension: of the vectors.
        hot_share: the part of the vectors that may be hot.
        hot_bytes: the same as bytes of FP16 vectors; wins over `hot_share`.
        rescore: `fp16` or `int4`.

    Raises:
        ConfigError: an argument is wrong, or vectors and keys do not fit.
        EmbeddingError: a vector holds NaN, infinity, or a number beyond FP16.

    Example:
        >>> index = TieredIndex(32)
        >>> index.add(np.array([7, 9]), np.eye(2, 32, dtype=np.float32))
        >>> index.search(np.eye(1, 32, dtype=np.float32)[0], 1)[0].tolist()
        [7]
    """

    def __init__(
        self,
        dimension: int,
        *,
        hot_share: float = 0.05,
        hot_bytes: int | None = None,
        rescore: Literal["fp16", "int4"] = "fp16",
    ) -> None:
        super().__init__(dimension)
        if not 0 <= hot_share <= 1:
            raise ConfigError(f"hot_share is {hot_share}", remedy="Use a part of all vectors, from 0 to 1.")
        if hot_bytes is not None and hot_bytes < 0:
            raise ConfigError(f"hot_bytes is {hot_bytes}", remedy="Use 0 or more, or None.")
        if rescore not in ("fp16", "int4"):
            raise ConfigError(f"rescore is {rescore!r}", remedy="Use 'fp16' or 'int4'.")
        self.hot_share, self.hot_bytes, self.rescore = hot_share, hot_bytes, rescore
        self.reads, self.hits = 0, 0
        self._lock = threading.RLock()
        self._keys = KeyList(np.zeros(0, dtype=np.int64))
        self._codes: CodeTable = open_table(padded(dimension))
        self._scales = np.zeros((0, padded(dimension) // GROUP), dtype=np.float16)
        self._means = self._inverse = np.zeros(self._scales.shape[1], dtype=np.float32)
        self._uneven = False
        self._files = HalfFiles(dimension)
        self._history = AccessHistory()
        self._hot = np.zeros((0, dimension), dtype=np.uint16)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def memory_bytes(self) -> int:
        """Bytes of everything that is held in memory. Mapped files are not: the system drops their pages at will."""
        lists = {id(keys): keys for keys in (self._keys, *self._files.key_lists)}
        keys = sum(each.nbytes for each in lists.values())
        scales = self._scales.nbytes + self._means.nbytes + self._inverse.nbytes
        return keys + self._codes.nbytes + scales + self._history.nbytes + self._hot.nbytes

    @property
    def disk_bytes(self) -> int:
        """Bytes of the FP16 vectors on disk."""
        return self._files.disk_bytes

    @property
    def hot(self) -> Keys:
        """The keys whose FP16 vectors are in memory, ascending."""
        return self._history.hot

    def keys(self) -> Keys:
        return self._keys.all()

    def vectors(self, keys: Keys) -> Vectors:
        """What scores are made of: the FP16 vectors, or with `rescore="int4"` the decoded ones."""
        with self._lock:
            rows = self._rows(whole_keys(keys))
            if self.rescore == "int4":
                return dequantise(self._codes.take(rows), self._scales[rows], self.dimension)
            return self._halves(whole_keys(keys), rows).view(np.float16).astype(np.float32)

    def remove(self, keys: Keys) -> None:
        with self._lock:
            rows, there = self._keys.find(np.unique(whole_keys(keys)))
            rows = rows[there]
            if len(rows) == 0:
                return
            gone = self._keys.take(rows)
            kept = np.delete(np.arange(len(self)), rows)
            self._codes.replace(self._codes.take(kept))
            self._set(self._keys.take(kept), self._scales[kept])
            self._history.forget(gone)
            if self.rescore == "fp16":
                self._files.keep(self._keys)

    def search(self, vector: Vectors, k: int, *, keys: Keys | None = None) -> tuple[Keys, Vectors]:
        """The `k` keys of the highest inner product with `vector`, best first, ties by key; and their scores.

        With `keys`, only these are looked at. The scores are of the FP16 vectors (of the decoded ones with
        `rescore="int4"`), whichever are hot.
        """
        if k < 1:
            raise ConfigError(f"k is {k}", remedy="Ask for at least one neighbour.")
        wanted = np.ascontiguousarray(vector, dtype=np.float32).reshape(-1)
        if len(wanted) != self.dimension:
            raise ConfigError(
                f"the vector has {len(wanted)} components and the index {self.dimension}",
                remedy="Embed the query with the embedder that made the index.",
            )
        check(wanted)
        with self._lock:
            rows = self._shortlist(wanted, k, keys)
            found = self._keys.take(rows)
            if self.rescore == "int4":
                scores = self._decoded_scores(rows, wanted)
            else:
                scores = product(self._halves(found, rows), wanted)
            scores = scores.round(_DECIMALS)
            order = np.lexsort((rows, -scores))[:k]
            found, scores = found[order], scores[order]
            if self.rescore == "fp16" and len(found) and self._history.record(found):
                self.settle()
            return found, scores

    def settle(self) -> None:
        """Decide now which keys are hot; searches do it every few times."""
        with self._lock:
            capacity = int(self.hot_share * len(self)) if self.hot_bytes is None else self.hot_bytes // self._row_bytes
            capacity = min(capacity, len(self))
            promoted = self._history.settle(capacity)
            if len(self._hot) != capacity:
                hot = np.zeros((capacity, self.dimension), dtype=np.uint16)
                hot[: len(self._hot)] = self._hot[:capacity]
                self._hot = hot
            if len(promoted):
                rows = self._rows(promoted)
                self._hot[self._history.slots(promoted)] = self._files.take(promoted, rows, self._keys)

    def save(self, path: Path, **header: str) -> None:
        """Write the index, the access history and these facts to a file, atomically, and read FP16 from there."""
        with self._lock:
            write_arrays(path, self.to_arrays(), header, sync=True)
            self.adopt(path)

    def adopt(self, path: Path) -> None:
        """Read FP16 vectors from the file that these very vectors were just written to."""
        content = map_arrays(path, mapped=_MAPPED) if self.rescore == "fp16" else None
        if content is not None and np.array_equal(content[0]["keys"], self.keys()):
            self._files.adopt(self._keys, content[0]["halves"])

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Everything, as arrays for a file. The FP16 vectors are copied: twice the bytes of the index for a moment."""
        with self._lock:
            keys = self.keys()
            arrays: dict[str, NDArray[Any]] = {
                "keys": keys,
                "codes": self._codes.take(np.arange(len(self))),
                "scales": self._scales,
            }
            if self.rescore == "fp16":
                arrays |= {"halves": self._all_halves().view(np.uint8), **self._history.to_arrays()}
            return arrays

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take over what `to_arrays` gave. Raises `KeyError` or `EmbeddingError` where it did not."""
        keys, codes, scales = arrays["keys"], arrays["codes"], arrays["scales"]
        width = padded(self.dimension)
        if keys.dtype != np.int64 or codes.dtype != np.uint8 or scales.dtype != np.float16:
            raise EmbeddingError("not a tiered index", remedy="Build it again from the vectors.")
        if keys.ndim != 1 or codes.shape != (len(keys), width // 2) or scales.shape != (len(keys), width // GROUP):
            raise EmbeddingError("not a tiered index of this dimension", remedy="Build it again from the vectors.")
        if (keys[1:] <= keys[:-1]).any() or not (scales >= 0).all():
            raise EmbeddingError("not a tiered index", remedy="Build it again from the vectors.")
        with self._lock:
            if self.rescore == "fp16":
                halves = arrays["halves"]
                if halves.dtype != np.uint8 or halves.shape != (len(keys), 2 * self.dimension):
                    raise EmbeddingError(
                        "not a tiered index of this dimension", remedy="Build it again from the vectors."
                    )
                self._history.from_arrays(arrays)
            self._codes.replace(np.ascontiguousarray(codes))
            self._set(keys, np.array(scales))
            if self.rescore == "fp16":
                self._files.adopt(self._keys, halves)
                self._history.forget(np.setdiff1d(arrays["access_keys"], keys))
                self.settle()

    @property
    def _row_bytes(self) -> int:
        return 2 * self.dimension

    def _add(self, keys: Keys, vectors: Vectors) -> None:
        with self._lock:
            order = np.argsort(keys)
            keys, vectors = keys[order], vectors[order]
            codes, scales = quantise(vectors)
            last = self._keys.last()
            if last is None or keys[0] > last:
                self._codes.append(codes)
                self._set(np.concatenate([self.keys(), keys]), np.concatenate([self._scales, scales]))
            else:
                merged = np.concatenate([self.keys(), keys])
                order = np.argsort(merged, kind="stable")
                self._codes.replace(np.concatenate([self._codes.take(np.arange(len(self))), codes])[order])
                self._set(merged[order], np.concatenate([self._scales, scales])[order])
            if self.rescore == "fp16":
                self._files.add(keys, to_halves(vectors))
                self._files.share(self._keys)

    def _checked(self, keys: Keys, vectors: Vectors) -> tuple[Keys, Vectors]:
        keys, vectors = super()._checked(keys, vectors)
        check(vectors)
        return keys, vectors

    def _set(self, keys: Keys, scales: NDArray[np.float16]) -> None:
        self._keys, self._scales = KeyList(keys), scales
        count = max(1, len(scales))
        means = scales.sum(axis=0, dtype=np.float64) / count
        squares = np.einsum("ij,ij->j", scales, scales, dtype=np.float64, casting="safe") / count
        there = means > 0
        spread = squares[there] / means[there] ** 2 - 1
        self._means = means.astype(np.float32)
        self._inverse = np.divide(1, self._means, out=np.zeros_like(self._means), where=self._means > 0)
        self._uneven = bool(spread.mean() > _UNEVEN**2 * len(spread)) if there.any() else False

    def _rows(self, keys: Keys) -> Rows:
        rows, there = self._keys.find(keys)
        if not there.all():
            raise EmbeddingError("a key is not in the index", remedy="Ask only for keys that keys() gives.")
        return rows

    def _halves(self, keys: Keys, rows: Rows) -> NDArray[np.uint16]:
        """FP16 vectors: of hot keys from memory, of the others from the files."""
        slots = self._history.slots(keys)
        cold = slots < 0
        misses = int(np.count_nonzero(cold))
        self.reads += len(keys)
        self.hits += len(keys) - misses
        if misses == len(keys):
            return self._files.take(keys, rows, self._keys)
        halves = self._hot.take(slots, axis=0, mode="clip")
        if misses:
            halves[cold] = self._files.take(keys[cold], rows[cold], self._keys)
        return halves

    def _all_halves(self) -> NDArray[np.uint16]:
        return self._files.take(self.keys(), np.arange(len(self)), self._keys)

    def _decoded_scores(self, rows: Rows, vector: Vectors) -> Vectors:
        return dequantise(self._codes.take(rows), self._scales[rows], self.dimension) @ vector

    def _shortlist(self, vector: Vectors, k: int, keys: Keys | None) -> Rows:
        """The rows to score with all bits, ascending where that costs nothing."""
        count = total = len(self._keys)
        first = 4 * k + 32
        second = first if self.rescore == "int4" else 2 * k + 16
        allowed: NDArray[np.bool_] | None = None
        rows: Rows
        if keys is not None:
            rows, there = self._keys.find(np.unique(whole_keys(keys)))
            rows = rows[there]
            total = len(rows)
        if total <= second:
            return np.arange(count) if keys is None else rows
        if keys is not None:
            if total <= first or self._uneven:
                return rows if total <= first else self._by_decoding(vector, first, rows)
            allowed = np.zeros(count, dtype=bool)
            allowed[rows] = True
        whole = None if self._uneven else whole_numbers(self._weighted(vector))
        if whole is None:
            return self._by_decoding(vector, first, np.arange(count) if keys is None else rows)
        # Which of equal rows a scan gives last is left open, so the last score is left out, and the shortlist is the
        # same for every order of adding.
        reach = min(count, (first + 1) * -(-count // total))
        while True:
            rows, products = self._codes.scan(whole, reach)
            if reach < count:
                inside = int(np.count_nonzero(products > products[-1]))
                rows, products = rows[:inside], products[:inside]
            if allowed is not None:
                mask = allowed[rows]
                rows, products = rows[mask], products[mask]
            if reach == count or len(rows) >= min(second, total):
                break
            reach = min(count, reach * 4)
        if len(rows) <= second:
            return rows
        estimates = products * product(self._scales[rows].view(np.uint16), self._inverse)
        kept: Rows = rows[estimates >= np.partition(estimates, -second)[-second]]
        return kept

    def _weighted(self, vector: Vectors) -> Vectors:
        """The query times the mean scale of each group: what the codes are multiplied with."""
        if self.dimension < self._codes.width:
            vector = np.concatenate([vector, np.zeros(self._codes.width - self.dimension, dtype=np.float32)])
        return (vector.reshape(-1, GROUP) * self._means[:, None]).reshape(-1)

    def _by_decoding(self, vector: Vectors, count: int, rows: Rows) -> Rows:
        """The shortlist where the scan cannot be trusted: every vector is decoded. Two hundred times slower."""
        scores = np.concatenate(
            [self._decoded_scores(rows[start : start + 2_048], vector) for start in range(0, len(rows), 2_048)]
        )
        return rows[np.lexsort((rows, -np.round(scores, _DECIMALS)))[:count]]


_MAPPED = ("halves",)


def load_tiered(path: Path, dimension: int, **options: Any) -> tuple[TieredIndex, dict[str, str]] | None:
    """The index in a file and the facts saved with it; None when the file is missing, damaged or of another shape."""
    index = TieredIndex(dimension, **options)
    content = map_arrays(path, mapped=_MAPPED)
    if content is None:
        return None
    arrays, header = content
    try:
        index.from_arrays(arrays)
    except (KeyError, EmbeddingError):
        return None
    return index, header
