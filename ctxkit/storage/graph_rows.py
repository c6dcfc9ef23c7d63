"""What one document adds to the entity graph, as arrays and as a row.

Everything is a count, so the graph of many documents is the sum of theirs: a document comes and goes without any other
being read, and two writers never meet in a row. Weights are computed when a graph is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctxkit.errors import StorageError
from ctxkit.storage.checks import checked_text, decoded, encoded

__all__ = ["DocumentGraph", "checked_graph", "counts_of", "from_row", "to_row"]

Counts = NDArray[np.int32]
Keys = NDArray[np.int64]

_WIDTHS = {"mentions": 3, "links": 3, "aliases": 2}


@dataclass(frozen=True, slots=True, eq=False)
class DocumentGraph:
    """The entities of one document and where they are named.

    Args:
        nodes: (name, label) of each entity, sorted, none twice; the arrays name entities by their place here.
        mentions: int32 of shape (·, 3): place of the chunk among the document's chunks, entity, times named there.
        links: int32 of shape (·, 3): two entities, the first the smaller, and in how many chunks they stand close.
        aliases: int32 of shape (·, 2): two entities that this document calls one thing.
        keys: int64, the key of each chunk of the document, in order; the store fills them in.
    """

    nodes: tuple[tuple[str, str], ...]
    mentions: Counts
    links: Counts
    aliases: Counts
    keys: Keys

    @classmethod
    def empty(cls) -> DocumentGraph:
        """The graph of a document that names nothing."""
        return cls((), counts_of([], 3), counts_of([], 3), counts_of([], 2), np.zeros(0, dtype=np.int64))

    def __bool__(self) -> bool:
        return bool(self.nodes)


def counts_of(rows: Sequence[Any], width: int) -> Counts:
    """Rows of `width` numbers as an int32 array of shape (len(rows), width)."""
    return np.asarray(rows, dtype=np.int32).reshape(len(rows), width)


def checked_graph(graph: DocumentGraph, chunks: int) -> DocumentGraph:
    """The graph itself, if it is one of a document of so many chunks. Raises `StorageError`."""
    names = len(graph.nodes)
    if any(left >= right for left, right in zip(graph.nodes, graph.nodes[1:], strict=False)):
        raise _wrong("its entities are not sorted, or one stands twice")
    for name, label in graph.nodes:
        checked_text(name, "an entity's name")
        checked_text(label, "an entity's label")
    for column, width in _WIDTHS.items():
        array = getattr(graph, column)
        if array.dtype != np.int32 or array.ndim != 2 or array.shape[1] != width:
            raise _wrong(f"its {column} are {array.dtype} of shape {array.shape}")
        places = array[:, 1:2] if column == "mentions" else array[:, :2]
        if array.size and (array.min() < 0 or places.max() >= names):
            raise _wrong(f"its {column} name an entity that it has not")
    if len(graph.mentions) and graph.mentions[:, 0].max() >= chunks:
        raise _wrong(f"it names a chunk that is not among the {chunks:,}")
    return graph


def to_row(graph: DocumentGraph, keys: Sequence[int]) -> dict[str, Any]:
    """The columns of a row, for a document whose chunks have these keys; numbers are little-endian."""
    row: dict[str, Any] = {"nodes": encoded(graph.nodes, "the entities"), "keys": np.array(keys, dtype="<i8").tobytes()}
    return row | {column: getattr(graph, column).astype("<i4").tobytes() for column in _WIDTHS}


def from_row(row: Any) -> DocumentGraph:
    return DocumentGraph(
        nodes=tuple((name, label) for name, label in decoded(row.nodes)),
        keys=np.frombuffer(row.keys, dtype="<i8").astype(np.int64, copy=False),
        **{
            column: np.frombuffer(getattr(row, column), dtype="<i4").reshape(-1, width).astype(np.int32, copy=False)
            for column, width in _WIDTHS.items()
        },
    )


def _wrong(what: str) -> StorageError:
    return StorageError(f"not the graph of this document: {what}", remedy="Build it with document_graph().")
