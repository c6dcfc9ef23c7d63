"""Which entities of a picture are drawn, and where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ctxkit.graph.picture import Edge, Picture
from ctxkit.settings import require

__all__ = ["Drawn", "choose"]

WIDTH, HEIGHT, MARGIN, SIDE = 960, 600, 60, 80

_LINES = 4
"""Lines for each entity, at most on average: the strongest."""

_GRAVITY = 0.15
_LINE = 38  # the height of a circle with its name


@dataclass(frozen=True, slots=True)
class Drawn:
    """Entities and ties, by their places in the picture; coordinates are whole numbers in a field of this size."""

    nodes: Sequence[int]
    edges: Sequence[Edge]
    places: Mapping[int, tuple[int, int]]
    radius: Mapping[int, int]
    width: int = WIDTH
    height: int = HEIGHT


def choose(picture: Picture, most: int) -> Drawn:
    """The entities that most chunks name, and the strongest ties among them; the same each time.

    The layout is networkx's force-directed one (Fruchterman and Reingold 1991) from a fixed seed. An unseen node that
    pulls at all keeps what is not connected from flying apart.
    """
    used = [index for index, node in enumerate(picture.nodes) if node.chunks]
    nodes = sorted(used, key=lambda index: (-picture.nodes[index].chunks, -picture.nodes[index].mentions, index))[:most]
    inside = set(nodes)
    edges = [edge for edge in picture.edges if edge.source in inside and edge.target in inside]
    near = [edge for edge in edges if edge.kind == "near" and edge.weight > 0]
    near.sort(key=lambda edge: (-edge.weight * edge.chunks, edge.source, edge.target))
    edges = [*near[: _LINES * len(nodes)], *(edge for edge in edges if edge.kind == "alias")]
    largest = max((picture.nodes[node].chunks for node in nodes), default=1)
    radius = {node: round(5 + 13 * (picture.nodes[node].chunks / largest) ** 0.5) for node in nodes}
    widths = {node: max(40, 7 * min(len(picture.nodes[node].display), 22)) for node in nodes}
    return Drawn(nodes, edges, _apart(_places(nodes, edges), widths), radius)


def _places(nodes: Sequence[int], edges: Sequence[Edge]) -> dict[int, tuple[int, int]]:
    networkx = require("networkx", extra="nlp")
    if not nodes:
        return {}
    graph = networkx.Graph()
    graph.add_nodes_from(nodes)
    graph.add_weighted_edges_from((edge.source, edge.target, edge.weight * edge.chunks**0.5 + 0.1) for edge in edges)
    graph.add_weighted_edges_from(("centre", node, _GRAVITY) for node in nodes)
    found = networkx.spring_layout(graph, k=2.2 / len(nodes) ** 0.5, iterations=300, seed=7)
    del found["centre"]
    xs, ys = zip(*found.values(), strict=True)
    left, top = min(xs), min(ys)
    wide, high = max(xs) - left or 1.0, max(ys) - top or 1.0
    return {
        node: (
            round(SIDE + (x - left) / wide * (WIDTH - 2 * SIDE)) if len(nodes) > 1 else WIDTH // 2,
            round(MARGIN / 2 + (y - top) / high * (HEIGHT - 1.2 * MARGIN)) if len(nodes) > 1 else HEIGHT // 2,
        )
        for node, (x, y) in found.items()
    }


def _apart(places: Mapping[int, tuple[int, int]], widths: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """The places with names moved off each other: each pair that overlaps gives way, up and down, a few times."""
    moved = {node: [float(x), float(y)] for node, (x, y) in places.items()}
    order = sorted(moved)
    for _ in range(80):
        for index, one in enumerate(order):
            for other in order[index + 1 :]:
                (x1, y1), (x2, y2) = moved[one], moved[other]
                across = (widths[one] + widths[other]) / 2 - abs(x1 - x2)
                down = _LINE - abs(y1 - y2)
                if across <= 0 or down <= 0:
                    continue
                way = 1 if y1 <= y2 else -1
                moved[one][1] -= way * down / 4
                moved[other][1] += way * down / 4
    low, high = MARGIN // 2, HEIGHT - MARGIN // 2 - 8
    return {node: (round(x), round(min(max(y, low), high))) for node, (x, y) in moved.items()}
