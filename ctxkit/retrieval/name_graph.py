"""The graph that a question walks: chunks and names, joined where a chunk holds the name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ctxkit.graph.walking import Walk

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from ctxkit.graph.entity_graph import EntityGraph

__all__ = ["NameGraph", "Pairs"]

Keys = NDArray[np.int64]
Places = NDArray[np.int64]
Pairs = tuple[NDArray[Any], NDArray[Any]]
"""Two arrays of one length: the first of each pair, and the second."""

NOT_NAMES = frozenset({"DATE", "MONEY", "TIME", "PERCENT", "QUANTITY", "ORDINAL", "CARDINAL"})
"""Labels of what connects nothing: that two chunks say "2019" does not make them speak of one thing."""

BESIDE = 1.0
"""The weight of the edge between two chunks side by side; a mention of a name that every chunk has weighs ln 2."""


@dataclass(frozen=True, slots=True, eq=False)
class NameGraph:
    """Chunks and names at one moment. Entities that differ in their label alone are one name: a question has no labels.

    Args:
        keys: (n,) of the chunks, ascending.
        names: (m,) keys of names as `normalise` makes them, ascending.
        mentions: (n, m) 1 where a chunk holds a name, in its text or as its subject.
        subjects: (n, m) 1 where the title of a chunk's document, or its heading, is that name.
        rarity: (m,) `ln(1 + n / chunks that hold it)`.
        walk: over the chunks, then the names.
        near: (n, n) the weights of chunks side by side.
    """

    keys: Keys
    names: tuple[str, ...]
    mentions: csr_array
    subjects: csr_array
    rarity: NDArray[np.float64]
    walk: Walk
    near: csr_array
    _place: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_place", {name: place for place, name in enumerate(self.names)})

    @classmethod
    def of(
        cls,
        keys: Keys,
        names: tuple[str, ...],
        *,
        mentions: Iterable[Pairs],
        subjects: Pairs,
        beside: Pairs,
        aliases: Pairs,
    ) -> NameGraph:
        """Put it together from pairs of places: (chunk, name) twice, (chunk, chunk), (name, name). O(pairs)."""
        from scipy.sparse import block_array

        shape = (len(keys), len(names))
        about = _ones([subjects], shape)
        held = _ones([*mentions, subjects], shape)
        count = np.bincount(held.indices, minlength=len(names))
        rarity = np.log1p(len(keys) / np.maximum(count, 1))
        weighted = held.astype(np.float64)
        weighted.data = rarity[held.indices]
        near = BESIDE * _both_ways(beside, len(keys))
        same = _both_ways(aliases, len(names))
        walk = Walk.over(block_array([[near, weighted], [weighted.T, same]], format="csr"))
        return cls(keys, names, held, about, rarity, walk, near.tocsr())

    def rows(self, keys: Keys) -> tuple[Places, NDArray[np.bool_]]:
        """The places of chunks by key, and which of them are here."""
        places = np.searchsorted(self.keys, keys)
        known = places < len(self.keys)
        known[known] = self.keys[places[known]] == keys[known]
        return np.where(known, places, 0), known

    def find(self, names: Iterable[str]) -> Places:
        """The places of those names that are here, ascending."""
        found = {self._place[name] for name in names if name in self._place}
        return np.array(sorted(found), dtype=np.int64)

    def beside(self, row: int) -> Places:
        """The places of the chunks before and behind one."""
        return np.asarray(self.near.indices[self.near.indptr[row] : self.near.indptr[row + 1]])

    def held_by(self, rows: Places) -> Places:
        """(m,) how many of these chunks hold each name."""
        held = [self.names_of(int(row)) for row in rows]
        return np.bincount(np.concatenate([np.zeros(0, dtype=np.int64), *held]), minlength=len(self.names))

    def names_of(self, row: int) -> Places:
        """The places of the names that a chunk holds."""
        return np.asarray(self.mentions.indices[self.mentions.indptr[row] : self.mentions.indptr[row + 1]])


def entity_pairs(graph: EntityGraph, keys: Keys, place: dict[str, int]) -> tuple[Pairs, Pairs]:
    """An entity graph's mentions and aliases as pairs of places; chunks and names that are not here are left out."""
    column = np.array(
        [-1 if node.label in NOT_NAMES else place.get(node.name, -1) for node in graph.nodes], dtype=np.int64
    )
    mentions, aliases = graph.mentions.tocoo(), graph.aliases.tocoo()
    row = np.searchsorted(keys, graph.keys)
    here = row < len(keys)
    here[here] = keys[row[here]] == graph.keys[here]
    rows, columns = row[mentions.row], column[mentions.col]
    kept = here[mentions.row] & (columns >= 0)
    left, right = column[aliases.row], column[aliases.col]
    joined = (left >= 0) & (right >= 0) & (left != right)
    return (rows[kept], columns[kept]), (left[joined], right[joined])


def matches(wanted: NDArray[np.uint64], hashes: NDArray[np.uint64], rows: Places) -> Pairs:
    """(row, place in `wanted`) for every hash that is wanted; `hashes` are ascending. O(wanted log hashes + found)."""
    first = np.searchsorted(hashes, wanted, side="left")
    count = np.searchsorted(hashes, wanted, side="right") - first
    at = np.repeat(first - np.cumsum(count) + count, count) + np.arange(count.sum())
    return rows[at], np.repeat(np.arange(len(wanted)), count)


def _ones(pairs: Sequence[Pairs], shape: tuple[int, int]) -> Any:
    from scipy.sparse import csr_array

    rows, columns = (np.concatenate([pair[side] for pair in pairs]).astype(np.int64) for side in (0, 1))
    matrix = csr_array((np.ones(len(rows), dtype=np.float32), (rows, columns)), shape=shape)
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def _both_ways(pairs: Pairs, size: int) -> Any:
    left, right = pairs
    return _ones([(left, right), (right, left)], (size, size)).astype(np.float64)
