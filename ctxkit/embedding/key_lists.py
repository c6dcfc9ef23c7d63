"""Ascending keys in few bytes: runs of consecutive ones where there are runs, else 32-bit offsets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctxkit.errors import ConfigError

__all__ = ["KeyList", "whole_keys"]

Keys = NDArray[np.int64]


def whole_keys(keys: Any) -> Keys:
    """Keys as an int64 array. Errors: `ConfigError` for what are no whole numbers of 64 bits."""
    try:
        return np.asarray(keys, dtype=np.int64)
    except (ValueError, TypeError, OverflowError) as error:
        raise ConfigError(
            f"keys are no whole numbers ({error})", remedy="Give an array of int64; keep names beside it yourself."
        ) from None


class KeyList:
    """Immutable ascending int64 keys.

    A store numbers its chunks one after the other, so a handful of runs (12 bytes each) replaces 8 bytes a key. Keys
    with many gaps take 4 bytes each, and 8 where they are further than 2 ** 32 apart.

    Example:
        >>> keys = KeyList(np.array([5, 6, 7, 8, 20, 21, 22, 23]))
        >>> keys.take(np.array([0, 4])).tolist(), keys.nbytes
        ([5, 20], 24)
    """

    def __init__(self, keys: Keys) -> None:
        self._count = len(keys)
        starts = np.flatnonzero(np.diff(keys, prepend=keys[:1] - 2) != 1) if len(keys) else np.zeros(0, dtype=np.intp)
        self._rows: NDArray[np.uint32] | None = None
        self._base = 0
        self._keys: NDArray[np.int64 | np.uint32]
        if 3 * len(starts) <= len(keys):
            self._rows, self._keys = starts.astype(np.uint32), keys[starts]
        elif int(keys[-1]) - int(keys[0]) < 2**32:
            self._base = int(keys[0])
            self._keys = (keys - keys[0]).astype(np.uint32)
        else:
            self._keys = keys.copy()

    @property
    def nbytes(self) -> int:
        return self._keys.nbytes + (0 if self._rows is None else self._rows.nbytes)

    def __len__(self) -> int:
        return self._count

    def all(self) -> Keys:
        return self.take(np.arange(self._count))

    def last(self) -> int | None:
        return int(self.take(np.array([self._count - 1]))[0]) if self._count else None

    def take(self, rows: NDArray[np.int64]) -> Keys:
        """The keys at these places."""
        if self._rows is None:
            return self._keys[rows].astype(np.int64) + self._base
        if len(self._keys) == 1:
            return np.asarray(rows + self._keys[0], dtype=np.int64)
        run = np.searchsorted(self._rows, rows, side="right") - 1
        return np.asarray(self._keys[run] + (rows - self._rows[run]), dtype=np.int64)

    def find(self, keys: Keys) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The places of these keys, and which of them are there; the place of one that is not means nothing."""
        if self._count == 0:
            return np.zeros(len(keys), dtype=np.int64), np.zeros(len(keys), dtype=bool)
        if self._rows is None:
            wanted: NDArray[np.int64 | np.uint32] = keys
            inside = np.ones(len(keys), dtype=bool)
            if self._keys.dtype == np.uint32:
                offsets = keys - self._base  # wraps to a negative number where the distance is beyond int64
                inside = (keys >= self._base) & (offsets >= 0) & (offsets < 2**32)
                wanted = np.where(inside, offsets, 0).astype(np.uint32)
            rows = np.minimum(np.searchsorted(self._keys, wanted), self._count - 1)
            return rows, inside & (self._keys[rows] == wanted)
        run = np.maximum(np.searchsorted(self._keys, keys, side="right") - 1, 0)
        starts = self._rows.astype(np.int64)
        rows = starts[run] + (keys - self._keys[run])  # less than the start where the distance is beyond int64
        there = (keys >= self._keys[run]) & (rows >= starts[run]) & (rows < np.append(starts[1:], self._count)[run])
        return np.where(there, rows, 0), there
