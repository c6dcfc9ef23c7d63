"""Entities and the graph of what is named together: extractors, aliases, building, walking."""

from ctxkit.graph.entity_graph import EntityGraph
from ctxkit.graph.nodes import Node

__all__ = ["EntityGraph", "Node"]
