"""What a sentence is worth beside those that are taken already: the first few are chosen one by one.

A ranking takes what is good alone. A set wants what the question still lacks: a sentence of another document that has
the rest of its words, that a taken sentence names, or that shares a rare name with one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ctxkit.compression.records import Record
from ctxkit.compression.units import ABOUT_A_MARK

__all__ = ["Links", "order_together"]

Floats = NDArray[np.float64]

_STEPS, _POOL = 10, 64
"""Sentences that are chosen one by one, and the best ones that these are chosen among: bounds the time."""
_LONG, _SHARE = 0.5, 0.3
"""A sentence of more than this part of the target, so much of which has room, is cut (`Filling`) and ends the set."""
# What the logarithm of a sentence's value gains: fitted on the even questions of six sets, by the chance of the next
# gold sentence at a tenth of the tokens: docs/decisions/0021-what-compression-keeps.md.
_SAID = -1.5  # for the share of the question that it has and the taken ones have too
_SAME, _BESIDE, _OPENING = 0.8, 0.9, 0.9  # of a candidate that one is taken of; next to one; the opening of such
_NEW = 2.7  # of another candidate: for the share of the question that it adds
_NAMED, _NAMES = 0.9, 2.0  # and its title stands in a taken one; for the rarest name that it shares with one


class Links(NamedTuple):
    """What ties the sentences of all candidates together.

    Args:
        groups: the candidate of each sentence, shape `(n,)`.
        leads: which sentences open their document.
        cover: for each sentence, the weight of each word of the question that it has: shape `(n, words)`.
        titles: the title of each candidate as a number, -1 where it has none.
        sources, targets: sentences, and the titles of others that they mention.
        asked: hashes of the question's names.
    """

    groups: NDArray[np.int64]
    leads: NDArray[np.bool_]
    cover: Floats
    titles: NDArray[np.int64]
    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    asked: frozenset[int]


def order_together(
    order: NDArray[np.int64],
    values: Floats,
    tokens: NDArray[np.int32],
    records: Sequence[Record],
    links: Links,
    room: int,
) -> NDArray[np.int64]:
    """The order, its beginning by what each sentence adds to the ones before it. What stands far back stays there.

    Args:
        order: sentences, best first, each by itself.
        values: of all sentences by themselves, above zero where they are worth something.
        room: tokens that are to be filled.

    Time is bounded but for looking up how rare a name is, which is linear.
    """
    pool = order[:_POOL]
    pool = pool[values[pool] > 0.0]
    if len(pool) < 2:
        return order
    alone = np.log(values[pool])
    scores = alone
    beside = _Beside(pool, records, links)
    left = np.ones(len(pool), dtype=np.bool_)
    chosen: list[int] = []
    said: set[str] = set()
    used = 0
    while len(chosen) < _STEPS and left.any():
        at = int(np.argmax(np.where(left, scores, -np.inf)))
        left[at] = False
        chosen.append(at)
        text = beside.text(at)
        if text in said:
            continue
        said.add(text)
        size = int(tokens[pool[at]])
        if size <= room - used:
            used += size + ABOUT_A_MARK
            scores = np.round(alone + beside.take(at), 9)
        elif size > _LONG * room and room - used >= _SHARE * size:
            break
    rest = np.flatnonzero(left)
    rest = rest[np.argsort(-scores[rest], kind="stable")]
    return np.concatenate([pool[chosen], pool[rest], order[len(pool) :]])


class _Beside:
    """What each sentence of a pool gains by those that were taken."""

    def __init__(self, pool: NDArray[np.int64], records: Sequence[Record], links: Links) -> None:
        self._pool, self._records, self._links = pool, records, links
        self._groups = links.groups[pool]
        self._cover = links.cover[pool]
        self._title = links.titles[self._groups]
        self._starts = np.concatenate([[0], np.cumsum([len(record) for record in records])])
        self._covered = np.zeros(links.cover.shape[1])
        self._same, self._next, self._named = (np.zeros(len(pool), dtype=np.bool_) for _ in range(3))
        self._shared = np.zeros(len(pool))
        self._names = [self._names_of(row, group) for row, group in zip(pool, self._groups, strict=True)]
        self._all = np.concatenate([record.names for record in records])
        counts = np.array([len(record.name_rows) for record in records])
        rows = np.concatenate([record.name_rows for record in records])
        self._rows = rows + np.repeat(self._starts[:-1], counts)
        self._weights: dict[int, float] = {}

    def text(self, at: int) -> str:
        group = int(self._groups[at])
        return self._records[group].units[int(self._pool[at] - self._starts[group])].text.strip()

    def take(self, at: int) -> Floats:
        """The gains of all of the pool, this one being taken too."""
        row, group, links = self._pool[at], self._groups[at], self._links
        np.maximum(self._covered, self._cover[at], out=self._covered)
        said = np.minimum(self._cover, self._covered).sum(axis=1)
        new = self._cover.sum(axis=1) - said
        mine = self._groups == group
        self._same |= mine
        self._next |= mine & (np.abs(self._pool - row) == 1)
        self._named |= np.isin(self._title, links.targets[links.sources == row])
        for other, names in enumerate(self._names):
            for name in names & self._names[at]:
                self._shared[other] = max(self._shared[other], self._rarity(name))
        opening = links.leads[self._pool]
        inside = _SAME + _BESIDE * self._next + _OPENING * opening
        outside = _NEW * new + _NAMED * self._named + _NAMES * self._shared
        return np.asarray(_SAID * said + np.where(self._same, inside, outside))

    def _names_of(self, row: int, group: int) -> frozenset[int]:
        record = self._records[group]
        return frozenset(record.names[record.name_rows == row - self._starts[group]].tolist()) - self._links.asked

    def _rarity(self, name: int) -> float:
        """Of a name, in (0, 1]: how few sentences have it."""
        if name not in self._weights:
            count = len(self._links.groups)
            holders = len(np.unique(self._rows[self._all == np.uint32(name)]))
            self._weights[name] = math.log(1 + count / holders) / math.log(1 + count)
        return self._weights[name]
