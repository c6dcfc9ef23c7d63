"""Which block is given up first: the one of the least expected use, learned from what was used again, and when.

The hits that a block can still bring, per unit of time that it takes a place, depend on how often it was used, on how
long ago that was, and on how much was new in the prompt that used it last: one that adds little to what was there is a
conversation that goes on. All are counted while blocks come and go; nothing is assumed of the traffic.

Source: Beckmann, Chen and Cidon, "LHD: Improving Cache Hit Rate by Maximizing Hit Density", NSDI 2018. Here blocks are
grouped by uses and novelty, and a group's counts are smoothed by those of all: in a large cache, where little is given
up and so little is learned, the order is that of LRU.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect
from collections import OrderedDict
from collections.abc import Container, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["UseOrder"]

_USES = (1, 2, 3, 5)
"""Groups by number of uses: 1, 2, 3 or 4, from 5 on."""

_NEW = (0.1, 0.5)
"""And by the share of blocks that were new in the request that used a block last: below, between and from there on."""

_GROUPS = len(_USES) * (len(_NEW) + 1)

_AGES = 32
"""Buckets of age; three for every two doublings of it, so that an age of 2^20 uses of blocks has its own."""

_SMOOTHING = 400
"""Blocks of average behaviour that are added to each group's counts."""

_LEARN_EVERY = 100
"""Requests between two estimates."""

_DECAY = 0.97
"""What remains of the counts at each estimate: half after some 2,300 requests."""

_REMEMBERED, _REMEMBERED_AT_LEAST = 4, 16_384
"""How many blocks are remembered after they were given up, as a multiple of those that are held: or one that is wanted
again would look new, and a cache too small for its traffic could learn nothing."""

_EDGES = np.exp2(np.arange(_AGES + 1) / 1.5) - 1
_WIDTHS = np.diff(_EDGES)


class UseOrder:
    """Blocks by the hits that each can be expected to bring for the place that it takes.

    Time is the number of uses of blocks. Every call takes O(log n) a block; the estimates O(groups x ages²) once in 100
    requests. Some 300 bytes for each block that is held or remembered.

    Example:
        >>> order = UseOrder()
        >>> order.use(["a", "b"])
        >>> order.add("a"), order.add("b"), order.victim(())
        (None, None, 'b')
    """

    def __init__(self) -> None:
        self._now = 0
        self._requests = 0
        self._known: OrderedDict[str, tuple[int, int, int]] = OrderedDict()  # uses, when the last one was, group
        self._held: dict[str, tuple[int, int]] = {}  # the group, and when it was used
        self._heaps: list[list[tuple[int, str]]] = [[] for _ in range(_GROUPS)]  # with entries that are out of date
        self._hits = np.zeros((_GROUPS, _AGES))
        self._seen = np.zeros(_GROUPS)
        self._density: list[list[float]] = [[1.0] * _AGES for _ in range(_GROUPS)]

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: str) -> bool:
        return key in self._held

    def use(self, keys: Sequence[str]) -> None:
        """One request's use of blocks in the order of its prompt, whether they are held or not.

        The end of a prompt counts as used before its beginning: without what comes before it, it is of no use.
        """
        self._requests += 1
        new = sum(key not in self._known for key in keys) / max(1, len(keys))
        for key in reversed(keys):
            self._now += 1
            uses, last, group = self._known.get(key, (0, 0, 0))
            if uses:
                self._hits[group, _age(self._now - last)] += 1
            group = _group_of(uses + 1, new)
            self._known[key] = (uses + 1, self._now, group)
            self._known.move_to_end(key)
            self._seen[group] += 1
            if key in self._held:
                self._place(key)
        while len(self._known) > _REMEMBERED * len(self._held) + _REMEMBERED_AT_LEAST:
            self._known.popitem(last=False)
        if self._requests % _LEARN_EVERY == 0:
            self._learn()

    def add(self, key: str) -> None:
        """A block that is held from now on; no use of it."""
        if key not in self._held:
            self._place(key)

    def remove(self, key: str) -> None:
        """A block that is no longer held."""
        self._held.pop(key, None)

    def victim(self, spared: Container[str]) -> str | None:
        """The held block of the least expected use, the longest unused of equals; None where all are spared."""
        best: tuple[float, int] | None = None
        chosen = None
        for group in range(_GROUPS):
            oldest = self._oldest(group, spared)
            if oldest is not None:
                used, key = oldest
                rank = (self._density[group][_age(self._now - used)], used)
                if best is None or rank < best:
                    best, chosen = rank, key
        return chosen

    def _place(self, key: str) -> None:
        _, last, group = self._known.get(key, (1, self._now, _group_of(1, 1.0)))
        self._held[key] = (group, last)
        heapq.heappush(self._heaps[group], (last, key))
        if len(self._heaps[group]) > 4 * len(self._held) + 64:
            self._heaps[group] = [entry for entry in self._heaps[group] if self._current(group, entry)]
            heapq.heapify(self._heaps[group])

    def _oldest(self, group: int, spared: Container[str]) -> tuple[int, str] | None:
        heap = self._heaps[group]
        aside = []
        found = None
        while heap and found is None:
            if not self._current(group, heap[0]):
                heapq.heappop(heap)
            elif heap[0][1] in spared:
                aside.append(heapq.heappop(heap))
            else:
                found = heap[0]
        for entry in aside:
            heapq.heappush(heap, entry)
        return found

    def _current(self, group: int, entry: tuple[int, str]) -> bool:
        return self._held.get(entry[1]) == (group, entry[0])

    def _learn(self) -> None:
        """For each group and age: the most hits per block and time that any span from there on has brought."""
        together = _survivors(self._seen.sum(), self._hits.sum(axis=0))
        all_hits = self._hits.sum(axis=0)
        for group in range(_GROUPS):
            hits = self._hits[group]
            alive = _survivors(self._seen[group], hits)
            for age in range(_AGES):
                widths = _WIDTHS[age:]
                found = np.cumsum(hits[age:])
                taken = np.cumsum(widths * alive[age:])
                usual = np.cumsum(all_hits[age:]) / np.cumsum(widths * together[age:])
                added = _SMOOTHING * (_EDGES[age + 1 :] - _EDGES[age])
                density = float(((found + added * usual) / (taken + added)).max())
                # Few blocks are used often or grow old, so what is known of them is chance: a block is never worth
                # less than one of the same age and novelty that was used less often.
                rarer = self._density[group - 1][age] if group % len(_USES) else 0.0
                self._density[group][age] = max(density, rarer)
        self._hits *= _DECAY
        self._seen *= _DECAY


def _survivors(count: float, hits: NDArray[np.float64]) -> NDArray[np.float64]:
    """How many blocks reached the middle of each age without being used again; at least one."""
    before = np.cumsum(hits) - hits / 2
    return np.maximum(count - before, 1.0)


def _group_of(uses: int, new: float) -> int:
    return len(_USES) * bisect(_NEW, new) + bisect(_USES, uses) - 1


def _age(age: int) -> int:
    return min(_AGES - 1, int(math.log2(age + 1) * 1.5))
