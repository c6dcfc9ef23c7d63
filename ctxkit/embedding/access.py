"""Which vectors are wanted often: LRU-K over the results of searches, with K = 2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctxkit.errors import EmbeddingError

__all__ = ["AccessHistory"]

Keys = NDArray[np.int64]

_SETTLE_EVERY = 16
"""Searches between two decisions about who is hot: one vectorised pass costs about as much as one search."""

_REMEMBERED = 0.5
"""How many keys that are not hot are remembered, as a part of those that are."""


_LATE = 2**31


class AccessHistory:
    """The last two searches that gave each of the keys, and the keys that are hot by them.

    Hot are the keys whose last access but one is the most recent; keys that were given only once come after all that
    were given twice, the most recent first. So one pass over everything does not push out what is asked for again and
    again, as it does with LRU. A key that is not hot is remembered for a while, or its second access would count as a
    first one.

    Time is the number of searches. 20 bytes for each hot and each remembered key.

    Source: O'Neil, O'Neil and Weikum, "The LRU-K Page Replacement Algorithm for Database Disk Buffering",
    SIGMOD 1993.

    Example:
        >>> history = AccessHistory()
        >>> for key in (1, 2, 1, 3):
        ...     _ = history.record(np.array([key]))
        >>> history.settle(1).tolist()
        [1]
    """

    def __init__(self) -> None:
        self._now = 0
        self._pending: list[Keys] = []
        self._keys = np.zeros(0, dtype=np.int64)
        self._last = np.zeros(0, dtype=np.uint32)
        self._before = np.zeros(0, dtype=np.uint32)
        self._slot = np.zeros(0, dtype=np.int32)

    @property
    def nbytes(self) -> int:
        arrays = (self._keys, self._last, self._before, self._slot)
        return sum(array.nbytes for array in arrays) + sum(keys.nbytes for keys in self._pending)

    @property
    def hot(self) -> Keys:
        """The hot keys, ascending."""
        return self._keys[self._slot >= 0]

    def slots(self, keys: Keys) -> NDArray[np.int32]:
        """The slot of each of these keys, -1 for one that is not hot."""
        if len(self._keys) == 0:
            return np.full(len(keys), -1, dtype=np.int32)
        at = self._keys.searchsorted(keys)
        slots = self._slot.take(at, mode="clip")
        slots[self._keys.take(at, mode="clip") != keys] = -1
        return slots

    def record(self, keys: Keys) -> bool:
        """Note the keys that a search gave; whether it is time to `settle`."""
        self._pending.append(keys.astype(np.int64))
        return len(self._pending) >= _SETTLE_EVERY

    def settle(self, capacity: int) -> Keys:
        """Take in what was recorded and decide which `capacity` keys are hot; those that have a new slot come back.

        Slots are below `capacity`.
        """
        self._take_in()
        if self._now > _LATE:
            self._now, self._last, self._before = self._now // 2, self._last // 2, self._before // 2
        order = np.lexsort((self._keys, -self._last.astype(np.int64), -self._before.astype(np.int64)))
        hot = np.zeros(len(self._keys), dtype=bool)
        hot[order[:capacity]] = True
        # By recency alone, for what was asked for once must be remembered until it is asked for again.
        rest = np.flatnonzero(~hot)
        rest = rest[np.lexsort((self._keys[rest], -self._last[rest].astype(np.int64)))]
        keep = hot.copy()
        keep[rest[: int(_REMEMBERED * capacity)]] = True
        slot = np.where(hot & (self._slot < capacity), self._slot, np.int32(-1))
        new = np.flatnonzero(hot & (slot < 0))
        free = np.setdiff1d(np.arange(capacity, dtype=np.int32), slot[slot >= 0], assume_unique=True)
        slot[new] = free[: len(new)]
        promoted = self._keys[new]
        self._keys, self._last, self._before = self._keys[keep], self._last[keep], self._before[keep]
        self._slot = slot[keep]
        return promoted

    def forget(self, keys: Keys) -> None:
        """Drop these keys, hot or not: they are gone, or have another vector."""
        self._take_in()
        keep = ~np.isin(self._keys, keys)
        self._keys, self._last, self._before = self._keys[keep], self._last[keep], self._before[keep]
        self._slot = self._slot[keep]

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        self._take_in()
        return {"access_keys": self._keys, "access_last": self._last, "access_before": self._before}

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take over a saved history; nothing is hot until `settle`. Raises `KeyError` or `EmbeddingError`."""
        keys, last, before = arrays["access_keys"], arrays["access_last"], arrays["access_before"]
        if keys.dtype != np.int64 or last.dtype != np.uint32 or before.dtype != np.uint32:
            raise EmbeddingError("not an access history", remedy="Build it again from the vectors.")
        if keys.ndim != 1 or not keys.shape == last.shape == before.shape or (np.diff(keys) <= 0).any():
            raise EmbeddingError("not an access history", remedy="Build it again from the vectors.")
        self._pending = []
        self._keys, self._last, self._before = keys.copy(), last.copy(), before.copy()
        self._slot = np.full(len(keys), -1, dtype=np.int32)
        self._now = int(last.max(initial=0))

    def _take_in(self) -> None:
        if not self._pending:
            return
        sizes = [len(keys) for keys in self._pending]
        times = np.repeat(np.arange(self._now + 1, self._now + 1 + len(sizes), dtype=np.int64), sizes)
        self._now += len(sizes)
        keys = np.concatenate([self._keys, self._keys, *self._pending])
        times = np.concatenate([self._before.astype(np.int64), self._last.astype(np.int64), times])
        self._pending = []
        slots = self._slot
        order = np.lexsort((times, keys))
        keys, times = keys[order], times[order]
        ends = np.flatnonzero(np.append(keys[1:] != keys[:-1], True))
        second = np.maximum(ends - 1, 0)
        before = np.where((ends > 0) & (keys[second] == keys[ends]), times[second], 0)
        known = np.searchsorted(keys[ends], self._keys)
        slot = np.full(len(ends), -1, dtype=np.int32)
        slot[known] = slots
        self._keys, self._slot = keys[ends], slot
        self._last, self._before = times[ends].astype(np.uint32), before.astype(np.uint32)
