"""The entity graph of many documents in memory: chunks, entities, and how strongly entities belong together."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ctxkit.graph.names import normalise
from ctxkit.graph.nodes import Node
from ctxkit.settings import require
from ctxkit.storage.graph_rows import DocumentGraph

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from ctxkit.documents import Chunk

__all__ = ["EntityGraph"]

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class EntityGraph:
    """Chunks and entities, joined by mentions; entities joined by closeness and by aliases.

    Rows and columns are the places in `keys` and `nodes`. The same documents give the same graph, bit for bit, in
    whatever order they come.

    Args:
        keys: (n,) int64, the keys of the chunks of every document that names an entity, ascending.
        nodes: (m,) the entities, sorted by name and label; a name is a key that `normalise` makes.
        mentions: (n, m) float32, how often chunk i names entity j.
        links: (m, m) symmetric float32 in (0, 1], zero diagonal: the positive normalised pointwise mutual information
            of two entities that stand close (Bouma 2009). 1 for two that are never close to anything else, and no link
            for two that are close no more often than chance has it.
        aliases: (m, m) symmetric float32, 1 between two entities that some document calls one thing.

    Example:
        >>> from ctxkit.documents import Chunk, Document, Entity, Span
        >>> text = Document.from_text("Ada met Bob.")
        >>> named = (Entity("Ada", "NAME", Span(0, 3)), Entity("Bob", "NAME", Span(8, 11)))
        >>> graph = EntityGraph.from_chunks({7: Chunk.of(text, Span(0, 12), 4, entities=named)})
        >>> graph.chunks_of(graph.node_of("ada")).tolist()
        [7]
    """

    keys: NDArray[np.int64]
    nodes: tuple[Node, ...]
    mentions: csr_matrix
    links: csr_matrix
    aliases: csr_matrix
    _by_name: dict[str, list[int]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        by_name: dict[str, list[int]] = {}
        for index, node in enumerate(self.nodes):
            by_name.setdefault(node.name, []).append(index)
        object.__setattr__(self, "_by_name", by_name)

    @classmethod
    def from_counts(cls, documents: Iterable[DocumentGraph]) -> EntityGraph:
        """The graph of documents whose chunks have keys. O(counts + m log m)."""
        sparse = require("scipy.sparse", extra="nlp")
        parts = [part for part in documents if part]
        nodes = sorted({node for part in parts for node in part.nodes})
        place = {node: index for index, node in enumerate(nodes)}
        keys = np.concatenate([part.keys for part in parts]) if parts else np.zeros(0, dtype=np.int64)
        order = np.argsort(keys, kind="stable")
        row_of = np.empty(len(keys), dtype=np.int64)
        row_of[order] = np.arange(len(keys))
        starts = itertools.accumulate((len(part.keys) for part in parts), initial=0)
        rows, columns, times = [], [], []
        near, alias = [], []
        for part, start in zip(parts, starts, strict=False):
            entity = np.fromiter((place[node] for node in part.nodes), dtype=np.int64, count=len(part.nodes))
            rows.append(row_of[start + part.mentions[:, 0]])
            columns.append(entity[part.mentions[:, 1]])
            times.append(part.mentions[:, 2])
            near.append((entity[part.links[:, 0]], entity[part.links[:, 1]], part.links[:, 2]))
            alias.append((entity[part.aliases[:, 0]], entity[part.aliases[:, 1]], np.ones(len(part.aliases))))
        shape = (len(keys), len(nodes))
        mentions = sparse.csr_matrix((_joined(times), (_joined(rows), _joined(columns))), shape=shape, dtype=np.float32)
        aliases = _symmetric(sparse, alias, len(nodes))
        aliases.data[:] = 1
        return cls(
            keys=keys[order],
            nodes=tuple(itertools.starmap(Node, nodes)),
            mentions=_canonical(mentions),
            links=_weighted(_symmetric(sparse, near, len(nodes))),
            aliases=aliases.astype(np.float32),
        )

    @classmethod
    def from_chunks(cls, chunks: Mapping[int, Chunk]) -> EntityGraph:
        """The graph of chunks that carry their entities, by key, in the order of their documents. Linear."""
        from ctxkit.graph.building import graphs_of_chunks

        return cls.from_counts(graphs_of_chunks(chunks))

    def __len__(self) -> int:
        """How many entities there are."""
        return len(self.nodes)

    def __repr__(self) -> str:
        return (
            f"EntityGraph({len(self.keys):,} chunks, {len(self.nodes):,} entities, {self.mentions.nnz:,} mentions, "
            f"{self.links.nnz // 2:,} links, {self.aliases.nnz // 2:,} aliases)"
        )

    def node_of(self, name: str, label: str | None = None) -> Indices:
        """The entities of this name, in any spelling that `normalise` makes equal; of one label where it is given."""
        found = self._by_name.get(normalise(name), [])
        return np.array([i for i in found if label is None or self.nodes[i].label == label], dtype=np.int64)

    def chunks_of(self, nodes: Indices | int) -> NDArray[np.int64]:
        """The keys of the chunks that name any of these entities, ascending."""
        wanted = np.zeros(len(self.nodes), dtype=np.float32)
        wanted[nodes] = 1
        return self.keys[np.asarray(self.mentions @ wanted) > 0]

    def nodes_of(self, key: int) -> Indices:
        """The entities that a chunk names, ascending; none for a chunk that is not here. O(log n)."""
        row = int(np.searchsorted(self.keys, key))
        if row == len(self.keys) or self.keys[row] != key:
            return np.zeros(0, dtype=np.int64)
        indices = self.mentions.indices[self.mentions.indptr[row] : self.mentions.indptr[row + 1]]
        return np.asarray(indices, dtype=np.int64)

    @property
    def frequency(self) -> Indices:
        """(m,) in how many chunks each entity is named; 0 for one that is only known as an alias."""
        return np.bincount(self.mentions.indices, minlength=len(self.nodes)).astype(np.int64)


def _joined(parts: list[Any]) -> Any:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _symmetric(sparse: Any, parts: list[tuple[Any, Any, Any]], size: int) -> Any:
    left, right, counts = (_joined([part[column] for part in parts]) for column in range(3))
    both = (np.concatenate([counts, counts]), (np.concatenate([left, right]), np.concatenate([right, left])))
    return _canonical(sparse.csr_matrix(both, shape=(size, size), dtype=np.float64))


def _canonical(matrix: Any) -> Any:
    matrix.sum_duplicates()  # also sorts the columns of each row
    return matrix


def _weighted(counts: Any) -> Any:
    """Positive NPMI of symmetric counts: log(p(a,b) / p(a) p(b)) / -log p(a,b), what is not above 0 left out.

    The counts are whole numbers, so their sums do not depend on an order, and both halves get the same bits.
    """
    total = counts.sum()
    share = np.asarray(counts.sum(axis=1)).ravel()
    left = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    chance = share[left] * share[counts.indices]
    counts.data = np.log(counts.data * total / chance) / -np.log(counts.data / total)
    counts.data[counts.data <= 0] = 0
    counts.eliminate_zeros()
    return counts.astype(np.float32)
