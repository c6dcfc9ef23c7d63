"""Documents with entities, and graphs compared, for the tests of the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from ctxkit.documents import Chunk, Document, Entity, Span
from ctxkit.graph import EntityGraph
from ctxkit.storage import Store

fewer = settings(max_examples=max(20, settings().max_examples // 10))
"""For properties of whole graphs, which are made of many small cases each."""

NAMES = ["Tim Cook", "Cook", "Ada", "Ada Lovelace", "WHO", "World Health Organization", "Paris", "巴黎", "three", "x"]
LABELS = ["NAME", "PERSON", "ORG", "CARDINAL"]

mentions = st.tuples(st.sampled_from(NAMES), st.sampled_from(LABELS))
chunk_mentions = st.lists(st.lists(mentions, max_size=12), max_size=5)
"""For each chunk of a document what it names."""


def named(chunks: list[list[tuple[str, str]]], name: str = "d") -> tuple[Document, list[Chunk]]:
    """A document whose chunks name these, a word after the other."""
    text = ""
    spans: list[Span] = []
    found: list[list[Entity]] = []
    for words in chunks:
        start, entities = len(text), []
        for word, label in words:
            entities.append(Entity(word, label, Span(len(text), len(text) + len(word))))
            text += word + ", "
        text += "end.\n"
        spans.append(Span(start, len(text)))
        found.append(entities)
    document = Document(name, text, source=name)
    return document, [
        Chunk.of(document, span, 1, entities=tuple(entities)) for span, entities in zip(spans, found, strict=True)
    ]


def names(*words: str) -> list[tuple[str, str]]:
    return [(word, "NAME") for word in words]


def arrays(graph: EntityGraph) -> dict[str, Any]:
    """Everything that a graph holds, for a comparison bit by bit."""
    found: dict[str, Any] = {"nodes": graph.nodes, "keys": (graph.keys.dtype, graph.keys.tolist())}
    for part in ("mentions", "links", "aliases"):
        matrix = getattr(graph, part)
        found[part] = (
            matrix.shape,
            matrix.dtype,
            matrix.indptr.tolist(),
            matrix.indices.tolist(),
            matrix.data.tobytes(),
        )
    return found


def loaded(store: Store) -> EntityGraph:
    return EntityGraph.from_counts(store.graph.load())


def rebuilt(store: Store) -> EntityGraph:
    """The graph of everything that is stored, made from the chunks as if no graph were."""
    return EntityGraph.from_chunks(store.documents.chunks(store.documents.keys()))


def dense(matrix: Any) -> Any:
    return np.asarray(matrix.toarray())
