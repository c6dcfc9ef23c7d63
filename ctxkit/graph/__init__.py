"""Entities and the graph of what is named together: extractors, aliases, building, walking."""

from ctxkit.graph.aliases import Resolution, resolve
from ctxkit.graph.auto import AutoExtractor
from ctxkit.graph.entity_graph import EntityGraph
from ctxkit.graph.jieba_extractor import JiebaExtractor
from ctxkit.graph.light import LightExtractor
from ctxkit.graph.names import normalise, query_names
from ctxkit.graph.nodes import Node
from ctxkit.graph.spacy_extractor import SpacyExtractor

__all__ = [
    "AutoExtractor",
    "EntityGraph",
    "JiebaExtractor",
    "LightExtractor",
    "Node",
    "Resolution",
    "SpacyExtractor",
    "normalise",
    "query_names",
    "resolve",
]
