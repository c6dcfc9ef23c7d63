"""Entities and the graph of what is named together: extractors, aliases, building, walking.

The names load on first use: the rules of the extractors take longer to compile than `ctxkit --help` may.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_HOMES = {
    "AutoExtractor": "auto",
    "EntityGraph": "entity_graph",
    "JiebaExtractor": "jieba_extractor",
    "LightExtractor": "light",
    "Node": "nodes",
    "Resolution": "aliases",
    "SpacyExtractor": "spacy_extractor",
    "normalise": "names",
    "query_names": "names",
    "resolve": "aliases",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"ctxkit.graph.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
