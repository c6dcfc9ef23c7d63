"""What one document adds to the entity graph, as arrays and as the bytes of a row.

Everything is a count, so the graph of many documents is the sum of theirs: a document comes and goes without any other
being read. Weights are computed when a graph is loaded (`ctxkit.graph.EntityGraph.from_counts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["DocumentGraph", "counts_of", "pack", "unpack"]

Counts = NDArray[np.int32]
Keys = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class DocumentGraph:
    """The entities of one document and where they are named.

    Args:
        nodes: (name, label) of each entity, sorted, none twice; the arrays name entities by their place here.
        mentions: int32 of shape (·, 3): place of the chunk among the document's chunks, entity, times named there.
        links: int32 of shape (·, 3): two entities, the first the smaller, and in how many chunks they stand close.
        aliases: int32 of shape (·, 2): two entities that this document calls one thing.
        keys: the key of each chunk of the document, int64; empty before it is stored.
    """

    nodes: tuple[tuple[str, str], ...]
    mentions: Counts
    links: Counts
    aliases: Counts
    keys: Keys

    def __bool__(self) -> bool:
        return bool(self.nodes)


def counts_of(rows: Sequence[Any], width: int) -> Counts:
    """Rows of `width` numbers as an int32 array of shape (len(rows), width)."""
    return np.asarray(rows, dtype=np.int32).reshape(len(rows), width)


def pack(array: NDArray[Any]) -> bytes:
    """Little-endian bytes, row after row."""
    return bytes(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())


def unpack(blob: bytes, width: int) -> Counts:
    """The int32 array of shape (·, width) that `pack` was given."""
    return np.frombuffer(blob, dtype="<i4").reshape(-1, width).astype(np.int32, copy=False)
