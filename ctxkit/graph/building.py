"""From chunks with their entities to the counts of the graph: linear, and the same every time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from ctxkit.documents import Chunk, Entity, Span
from ctxkit.graph.aliases import normalise, resolve
from ctxkit.graph.nodes import Node
from ctxkit.storage.graph_rows import DocumentGraph, counts_of

__all__ = ["GRAPH_VERSION", "NEAR", "UNNAMED", "Named", "document_graph", "graphs_of_chunks", "links_of", "named_in"]

NEAR = 8
"""An entity is linked to the last `NEAR` others that were named before it in its chunk.

All pairs would be quadratic in the entities of a chunk; up to nine entities this is all pairs too.
"""


GRAPH_VERSION = 1
"""Grows when the same chunks give another graph: an ingest then makes every document's again."""

UNNAMED = frozenset({"CARDINAL", "ORDINAL", "PERCENT", "QUANTITY", "TIME"})
"""Labels of what is counted rather than named: that two chunks say "three" does not connect them."""


def document_graph(text: str, chunks: Sequence[Chunk], keys: Sequence[int] = ()) -> DocumentGraph:
    """What a document adds to the graph: its chunks' entities under their canonical names. Linear.

    Args:
        text: the document's text.
        keys: of the chunks; the store fills them in. A document that names nothing has the empty graph.
    """
    if not any(chunk.entities for chunk in chunks):
        return DocumentGraph.empty()
    named = named_in(text, chunks)
    mentioned = (node for chunk in named.chunks for _, node in chunk)
    nodes = sorted({*mentioned, *(node for pair in named.aliases for node in pair)})
    place = {node: index for index, node in enumerate(nodes)}
    mentions: list[tuple[int, int, int]] = []
    links: Counter[tuple[int, int]] = Counter()
    for ordinal, chunk in enumerate(named.chunks):
        sequence = [place[node] for _, node in chunk]
        mentions += [(ordinal, node, times) for node, times in sorted(Counter(sequence).items())]
        links.update(links_of(sequence))
    aliases = sorted({(min(a, b), max(a, b)) for a, b in ((place[x], place[y]) for x, y in named.aliases) if a != b})
    return DocumentGraph(
        nodes=tuple((node.name, node.label) for node in nodes),
        mentions=counts_of(mentions, 3),
        links=counts_of([(*pair, times) for pair, times in sorted(links.items())], 3),
        aliases=counts_of(aliases, 2),
        keys=np.asarray(keys, dtype=np.int64),
    )


def links_of(sequence: Sequence[int], near: int = NEAR) -> set[tuple[int, int]]:
    """The pairs of different entities that stand close, the smaller first: O(len(sequence) * near).

    `recent` holds the last `near` + 1 different entities, the newest last, so that an entity named ten thousand times
    in a row does not push its neighbours out, and none looks further back than that.
    """
    found: set[tuple[int, int]] = set()
    recent: dict[int, None] = {}
    for node in sequence:
        recent.pop(node, None)
        for other in list(recent)[-near:]:
            found.add((other, node) if other < node else (node, other))
        recent[node] = None
        if len(recent) > near + 1:
            del recent[next(iter(recent))]
    return found


def graphs_of_chunks(chunks: Mapping[int, Chunk]) -> Iterator[DocumentGraph]:
    """The counts of each document that these chunks, by key, are of.

    A document's text is put together from its chunks, with a line end where one is not followed by the next.
    """
    by_document: dict[str, list[tuple[int, Chunk]]] = {}
    for key, chunk in chunks.items():
        by_document.setdefault(chunk.document_id, []).append((key, chunk))
    for found in by_document.values():
        found.sort(key=lambda item: (item[1].span, item[0]))
        yield document_graph(_pasted([chunk for _, chunk in found]), [c for _, c in found], [key for key, _ in found])


def _pasted(chunks: Sequence[Chunk]) -> str:
    """The text that the chunks are of, line ends where none is: every offset is as it was."""
    pieces: list[str] = []
    position = 0
    for chunk in chunks:
        if chunk.span.start > position:
            pieces.append("\n" * (chunk.span.start - position))
            position = chunk.span.start
        pieces.append(chunk.text[position - chunk.span.start :])
        position = max(position, chunk.span.end)
    return "".join(pieces)


class Named(NamedTuple):
    """Who is named where in a document.

    Args:
        chunks: for each chunk its mentions with what they name, in reading order.
        aliases: the pairs of nodes that are one thing.
        displays: how the document writes the name of each node.
    """

    chunks: list[list[tuple[Entity, Node]]]
    aliases: Sequence[tuple[Node, Node]]
    displays: Mapping[Node, str]


def named_in(text: str, chunks: Sequence[Chunk]) -> Named:
    """Find out what the entities of a document's chunks name. Linear."""
    ordered = [sorted(filter(_is_name, chunk.entities), key=_reading_order) for chunk in chunks]
    resolution = resolve([entity for found in ordered for entity in found], text)
    nodes = iter(resolution.nodes)
    pairs = [list(zip(found, islice(nodes, len(found)), strict=True)) for found in ordered]
    return Named(pairs, resolution.aliases, resolution.displays)


def _is_name(entity: Entity) -> bool:
    # A chunker may call anything an entity; what is blank names nothing, and is no reason to refuse a document.
    return entity.label not in UNNAMED and bool(normalise(entity.text))


def _reading_order(entity: Entity) -> tuple[Span, str]:
    return entity.span, entity.label
