"""FP16 vectors in mapped files: read row by row when they are wanted, held by the page cache and not by the process."""

from __future__ import annotations

import mmap
import tempfile

import numpy as np
from numpy.typing import NDArray

from ctxkit.embedding.key_lists import KeyList
from ctxkit.errors import EmbeddingError

__all__ = ["HalfFiles", "product", "to_halves"]

Keys = NDArray[np.int64]
Halves = NDArray[np.uint16]
RowBytes = NDArray[np.uint8]
Vectors = NDArray[np.float32]

_BEFORE, _AFTER = np.float32(2.0**100), np.float32(2.0**12)


def to_halves(vectors: Vectors) -> Halves:
    """The bits of each component as FP16."""
    return vectors.astype(np.float16).view(np.uint16)


def product(halves: Halves, vector: Vectors) -> Vectors:
    """`halves @ vector` in float32, twice as fast as through numpy's own conversion.

    An FP16 number whose bits are moved to their places in a float32 is that number times 2 ** -112, for the biases of
    the exponents are 15 and 127. Instead of every component the query and the sums are multiplied by what is missing,
    which is exact.
    """
    wide = halves.view(np.int16).astype(np.int32)
    wide <<= 13
    wide &= np.int32(-0x70002000)  # the sign, and what was bits 0 to 14; not the copies of the sign between them
    return np.asarray((wide.view(np.float32) @ (vector * _BEFORE)) * _AFTER, dtype=np.float32)


class HalfFiles:
    """Vectors by key in one saved file and in unnamed temporary ones for what came since.

    Temporary files are merged when a newer one reaches half the size of the one before it, so that n vectors added one
    by one are written `log n` times each, and there are at most `log n` files to look into. Rows are mapped as bytes:
    an array in the middle of a file may start at an odd address.
    """

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._files: list[tuple[KeyList, RowBytes]] = []

    @property
    def disk_bytes(self) -> int:
        """Bytes of vectors in files, the saved one's included."""
        return sum(rows.nbytes for _, rows in self._files)

    @property
    def key_lists(self) -> list[KeyList]:
        """The keys of each file, which are in memory."""
        return [keys for keys, _ in self._files]

    def __len__(self) -> int:
        return sum(len(keys) for keys, _ in self._files)

    def adopt(self, keys: KeyList, rows: RowBytes) -> None:
        """Let these mapped rows replace everything."""
        self._files = [(keys, rows)] if len(keys) else []

    def add(self, keys: Keys, halves: Halves) -> None:
        """Vectors of ascending keys; they hide older ones of the same keys."""
        while self._files and len(self._files[-1][0]) <= 2 * len(keys):
            old, old_rows = self._files.pop()
            old_keys = old.all()
            kept = ~np.isin(old_keys, keys)
            keys = np.concatenate([old_keys[kept], keys])
            order = np.argsort(keys, kind="stable")
            keys, halves = keys[order], np.concatenate([self._halves(old_rows[kept]), halves])[order]
        if len(keys):
            self._files.append((KeyList(keys), _temporary(halves)))

    def keep(self, keys: KeyList) -> None:
        """Drop what is under other keys when that is most of it."""
        if len(self) > 2 * len(keys) + 1_024:
            halves = self.take(keys.all(), np.arange(len(keys)), keys)
            self._files = [(keys, _temporary(halves))] if len(keys) else []

    def share(self, keys: KeyList) -> None:
        """Hold these keys once: where the only file has the same, rows of this list are rows of the file."""
        if len(self._files) == 1 and np.array_equal(self._files[0][0].all(), keys.all()):
            self._files = [(keys, self._files[0][1])]

    def take(self, keys: Keys, rows: Keys, of: KeyList) -> Halves:
        """The vectors of these keys, which are these rows of that list; shape `(len(keys), dimension)`."""
        if len(self._files) == 1 and self._files[0][0] is of:
            return self._halves(self._files[0][1].take(rows, axis=0))
        found = np.empty((len(keys), self._dimension), dtype=np.uint16)
        missing = np.arange(len(keys))
        for own, stored in reversed(self._files):
            at, there = own.find(keys[missing])
            found[missing[there]] = self._halves(stored.take(at[there], axis=0))
            missing = missing[~there]
        if len(missing):
            raise EmbeddingError("a key is not in the index", remedy="Ask only for keys that keys() gives.")
        return found

    def _halves(self, rows: RowBytes) -> Halves:
        return np.ascontiguousarray(rows).view(np.uint16).reshape(len(rows), self._dimension)


def _temporary(halves: Halves) -> RowBytes:
    with tempfile.TemporaryFile() as stream:
        stream.write(np.ascontiguousarray(halves).data)
        stream.flush()
        mapping = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    return np.frombuffer(mapping, dtype=np.uint8).reshape(len(halves), -1)
