"""Scans of INT4 codes: the integer product of a query with every row, by faiss's fast-scan kernels or by numpy.

A scan leaves the scales out. The scales of unit vectors from a neural embedder differ by about a fifth, so the product
with the bare codes finds whom to score properly, which is all that it is for. It is integer arithmetic: both tables
give the same numbers.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ctxkit.embedding.int4 import ZERO_POINT, pack, unpack
from ctxkit.errors import MissingExtraError
from ctxkit.settings import require

__all__ = ["BlockTable", "CodeTable", "FastScanTable", "open_table", "whole_numbers"]

Codes = NDArray[np.uint8]
Rows = NDArray[np.int64]
Scores = NDArray[np.float32]

_PEAK = 17
_SUM = 65_535 // 15
_TINY = float(np.finfo(np.float32).tiny)
"""faiss holds a query as one byte for each of the 16 codes of a component, and sums in 16 bits. With a largest
component of 17 the widest table spans 15 * 17 = 255, faiss's own rounding does nothing, and the sums are exact."""


def whole_numbers(vector: NDArray[np.float32]) -> NDArray[np.float32] | None:
    """The query as integers from -17 to 17, one of them at an end, whose sizes sum to at most 4,369; None for zeros.

    Where the sum would be larger (above about a thousand dimensions) all but the largest component become smaller.
    """
    sizes = np.abs(vector)
    top = int(sizes.argmax())
    peak = float(sizes[top])
    if peak < _TINY:
        return None
    # Rounding adds at most a half to a component, and at most doubles it.
    room = _SUM - _PEAK
    factor = min(_PEAK / peak, max(room - len(vector) / 2, room / 2) / float(np.add.reduce(sizes, dtype=np.float64)))
    # In double precision: the factor of the smallest vectors, and the sum of the largest, are beyond float32.
    whole = np.rint(vector.astype(np.float64) * factor).astype(np.float32)
    whole[top] = math.copysign(_PEAK, float(vector[top]))
    return whole


class CodeTable(Protocol):
    """The packed codes of some rows, in order; `width` is the components of a row."""

    width: int

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        ...

    def __len__(self) -> int: ...

    def scan(self, whole: NDArray[np.float32], count: int) -> tuple[Rows, Scores]:
        """The `count` rows of the highest product, best first; which of equal rows come last is not defined."""
        ...

    def take(self, rows: Rows) -> Codes:
        """The packed codes of these rows."""
        ...

    def append(self, packed: Codes) -> None:
        """More rows."""
        ...

    def replace(self, packed: Codes) -> None:
        """These rows and no others."""
        ...


class BlockTable:
    """With numpy alone: unpacks a block at a time and lets BLAS multiply. About ten times slower than `FastScanTable`.

    Whole numbers below 2 ** 24 are exact in float32.
    """

    _BLOCK = 2_048

    def __init__(self, width: int) -> None:
        self.width = width
        self._packed = np.zeros((0, width // 2), dtype=np.uint8)

    @property
    def nbytes(self) -> int:
        return self._packed.nbytes

    def __len__(self) -> int:
        return len(self._packed)

    def scan(self, whole: NDArray[np.float32], count: int) -> tuple[Rows, Scores]:
        scores = np.empty(len(self), dtype=np.float32)
        constant = ZERO_POINT * whole.sum()
        for start in range(0, len(self), self._BLOCK):
            block = self._packed[start : start + self._BLOCK]
            low, high = (block & 15).astype(np.float32), (block >> 4).astype(np.float32)
            scores[start : start + self._BLOCK] = low @ whole[0::2] + high @ whole[1::2] - constant
        best = np.argpartition(-scores, count - 1)[:count] if count < len(scores) else np.arange(len(scores))
        best = best[np.argsort(-scores[best], kind="stable")]
        return best, scores[best]

    def take(self, rows: Rows) -> Codes:
        return self._packed[rows]

    def append(self, packed: Codes) -> None:
        self._packed = np.concatenate([self._packed, packed])

    def replace(self, packed: Codes) -> None:
        self._packed = packed.copy()


_BLOCK = 32
_LANES = np.array([0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15])
_LANE_OF = np.argsort(_LANES)


class FastScanTable:
    """faiss's 4-bit fast scan: each component is a sub-quantizer of one dimension, whose 16 centroids are the codes.

    The codes lie in faiss's own layout and nowhere else: blocks of 32 rows; for each pair of components 16 bytes of
    the even and 16 of the odd one; row `_LANES[j]` in the low half of byte `j`, row `_LANES[j] + 16` in the high half.
    `works` proves the layout before the first use. Raises `MissingExtraError` without faiss.

    Source: André, Kermarrec and Le Scouarnec, "Quicker ADC", IEEE TPAMI 2021.
    """

    def __init__(self, width: int) -> None:
        self._faiss = require("faiss", extra="local", subject="FastScanTable")
        self.width = width
        self._count = 0
        self._index: Any = self._faiss.IndexPQFastScan(width, width, 4, self._faiss.METRIC_INNER_PRODUCT)
        centroids = np.tile(np.arange(-ZERO_POINT, 16 - ZERO_POINT, dtype=np.float32), width)
        self._faiss.copy_array_to_vector(centroids, self._index.pq.centroids)
        self._index.is_trained = True
        self._fixed = centroids.nbytes

    @property
    def nbytes(self) -> int:
        """Codes and centroids. faiss reserves addresses up to the next power of two; what it never writes to
        takes no memory."""
        return int(self._index.codes.size()) + self._fixed

    def __len__(self) -> int:
        return self._count

    def scan(self, whole: NDArray[np.float32], count: int) -> tuple[Rows, Scores]:
        all_scores, all_rows = self._index.search(whole[None, :], count)
        rows, scores = all_rows[0], all_scores[0]
        if rows[-1] < 0:  # faiss never returns rows of the lowest product that codes could have
            left_out = rows < 0
            others = np.setdiff1d(np.arange(self._count), rows)
            rows[left_out] = others[: np.count_nonzero(left_out)]
            scores[left_out] = np.where(whole > 0, -ZERO_POINT * whole, (15 - ZERO_POINT) * whole).sum()
        return rows, scores

    def take(self, rows: Rows) -> Codes:
        block, place = np.divmod(rows, _BLOCK)
        halves = self._blocks()[block, :, :, _LANE_OF[place & 15]]
        halves >>= ((place >> 4) * 4).astype(np.uint8)[:, None, None]
        halves &= 15
        packed: Codes = halves[:, :, 0] | (halves[:, :, 1] << np.uint8(4))
        return packed

    def append(self, packed: Codes) -> None:
        kept = self._count // _BLOCK * _BLOCK
        tail = self.take(np.arange(kept, self._count)) if kept < self._count else packed[:0]
        self._write(kept, np.concatenate([tail, packed]))

    def replace(self, packed: Codes) -> None:
        self._index.codes.clear()
        self._write(0, packed)

    def _write(self, start: int, packed: Codes) -> None:
        """Put rows at `start`, a whole number of blocks, and end there."""
        self._count = start + len(packed)
        blocks = -(-self._count // _BLOCK)
        self._index.codes.resize(blocks * _BLOCK * self.width // 2)
        self._index.ntotal, self._index.ntotal2 = self._count, blocks * _BLOCK
        if len(packed):
            target = self._blocks()[start // _BLOCK :]
            for at in range(0, len(target), 64):
                target[at : at + 64] = _interleaved(packed[at * _BLOCK : (at + 64) * _BLOCK])

    def _blocks(self) -> Codes:
        size = int(self._index.codes.size())
        if size == 0:
            return np.zeros((0, self.width // 2, 2, 16), dtype=np.uint8)
        memory = self._faiss.rev_swig_ptr(self._index.codes.get(), size)
        return np.asarray(memory).reshape(-1, self.width // 2, 2, 16)


def _interleaved(packed: Codes) -> Codes:
    """Rows in faiss's layout, the last block filled with zeros."""
    blocks = -(-len(packed) // _BLOCK)
    rows = np.zeros((blocks * _BLOCK, packed.shape[1]), dtype=np.uint8)
    rows[: len(packed)] = packed
    lanes = rows.reshape(blocks, _BLOCK, -1).transpose(0, 2, 1)
    first, second = lanes[:, :, _LANES], lanes[:, :, _LANES + 16]
    return np.stack([(first & 15) | (second << 4), (first >> 4) | (second & 240)], axis=2)


@cache
def works() -> bool:
    """Whether this faiss lays out and sums codes as `FastScanTable` does, tried on 40 rows of 64 components."""
    generator = np.random.default_rng(0)
    codes = generator.integers(0, 16, (40, 64), dtype=np.uint8)
    whole = whole_numbers(generator.standard_normal(64).astype(np.float32))
    if whole is None:
        return False
    truth = (codes.astype(np.float32) - ZERO_POINT) @ whole
    try:
        ours, theirs = FastScanTable(64), FastScanTable(64)
        ours.replace(pack(codes))
        theirs._index.add(codes.astype(np.float32) - ZERO_POINT)
        rows, scores = ours.scan(whole, 40)
        same = np.array_equal(ours._blocks(), theirs._blocks()) and np.array_equal(scores, truth[rows])
        return bool(same and np.array_equal(unpack(ours.take(np.arange(40))), codes))
    except (MissingExtraError, AttributeError, RuntimeError, ValueError):
        return False


def open_table(width: int) -> CodeTable:
    """A `FastScanTable` where faiss is there and `works`, else a `BlockTable`. `width` is a multiple of 32."""
    return FastScanTable(width) if works() else BlockTable(width)
