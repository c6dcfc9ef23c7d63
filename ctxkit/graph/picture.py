"""What one document's graph looks like: its chunks and cuts, its entities, and what ties them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ctxkit.documents import Chunk, Document, Entity
from ctxkit.graph.building import document_graph, named_in
from ctxkit.graph.entity_graph import EntityGraph

__all__ = ["Edge", "Picture", "PictureNode", "picture_of"]


@dataclass(frozen=True, slots=True)
class PictureNode:
    """An entity: `name` is its key, `display` how the document writes it, `chunks` how many name it."""

    name: str
    label: str
    display: str
    chunks: int
    mentions: int


@dataclass(frozen=True, slots=True)
class Edge:
    """A tie of two entities, by their places: `near` with its weight and in how many chunks, or `alias`."""

    kind: str
    source: int
    target: int
    weight: float
    chunks: int


@dataclass(frozen=True, slots=True)
class Picture:
    """One document's graph.

    Args:
        found: for each chunk its mentions, with the places of what they name in `nodes`.
        cuts: for each cut between neighbouring chunks the entities that both sides name.
    """

    document: Document
    chunks: Sequence[Chunk]
    nodes: Sequence[PictureNode]
    edges: Sequence[Edge]
    found: Sequence[Sequence[tuple[Entity, int]]]
    cuts: Sequence[Sequence[int]]

    def to_json(self) -> dict[str, Any]:
        """Nodes name each other by their place in `nodes`; spans are of the document."""
        return {
            "document": {"id": self.document.id, "source": self.document.source, "title": self.document.title},
            "chunks": [
                {
                    "start": chunk.span.start,
                    "end": chunk.span.end,
                    "token_count": chunk.token_count,
                    "heading_path": list(chunk.heading_path),
                    "context": chunk.context,
                    "entities": [
                        {"node": node, "text": entity.text, "start": entity.span.start, "end": entity.span.end}
                        for entity, node in found
                    ],
                }
                for chunk, found in zip(self.chunks, self.found, strict=True)
            ],
            "cuts": [
                {"at": after.span.start, "shared": list(shared)}
                for after, shared in zip(self.chunks[1:], self.cuts, strict=True)
            ],
            "nodes": [
                {"name": n.name, "label": n.label, "display": n.display, "chunks": n.chunks, "mentions": n.mentions}
                for n in self.nodes
            ],
            "edges": [
                {"kind": e.kind, "source": e.source, "target": e.target, "weight": e.weight, "chunks": e.chunks}
                for e in self.edges
            ],
        }


def picture_of(document: Document, chunks: Mapping[int, Chunk]) -> Picture:
    """The picture of a document and its chunks by key. Linear; the weights are those of this document alone."""
    keys, pieces = list(chunks), list(chunks.values())
    counts = document_graph(document.text, pieces, keys)
    graph = EntityGraph.from_counts([counts])
    named = named_in(document.text, pieces)
    place = {node: index for index, node in enumerate(graph.nodes)}
    found = [[(entity, place[node]) for entity, node in mentions] for mentions in named.chunks]
    times = np.asarray(graph.mentions.sum(axis=0)).ravel()
    nodes = [
        PictureNode(node.name, node.label, named.displays.get(node, node.name), int(chunks_), int(mentions))
        for node, chunks_, mentions in zip(graph.nodes, graph.frequency, times, strict=True)
    ]
    weights = (
        np.asarray(graph.links[counts.links[:, 0], counts.links[:, 1]]).ravel().tolist() if len(counts.links) else []
    )
    near = [
        Edge("near", a, b, round(weight, 4), count)
        for (a, b, count), weight in zip(counts.links.tolist(), weights, strict=True)
    ]
    same = [Edge("alias", a, b, 1.0, 0) for a, b in counts.aliases.tolist()]
    sets = [{node for _, node in mentions} for mentions in found]
    return Picture(document, pieces, nodes, [*near, *same], found, [sorted(a & b) for a, b in pairwise(sets)])
