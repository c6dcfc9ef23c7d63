"""Fakes for your tests, and one conformance class per protocol: inherit it, give it your stage, and run pytest.

from ctxkit.testing import ChunkerConformance

class TestMyChunker(ChunkerConformance):
    def make_chunker(self, max_tokens):
        return MyChunker(max_tokens=max_tokens)
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

_HOMES = {
    "ChatCounterConformance": "counters",
    "ChunkerConformance": "chunkers",
    "EchoModel": "models",
    "EmbedderConformance": "embedders",
    "EntityExtractorConformance": "extractors",
    "HashEmbedder": "embedders",
    "ModelConformance": "models",
    "ReaderConformance": "readers",
    "RetrieverConformance": "retrievers",
    "StageConformance": "stages",
    "TokenCounterConformance": "counters",
    "VectorIndexConformance": "embedders",
    "WindowConformance": "windows",
}

__all__ = sorted(_HOMES)


def _explain_asserts() -> None:
    """Let pytest show the values in a failed assert of ours, as it does for a test file of yours."""
    homes = sorted({f"{__name__}.{home}" for home in _HOMES.values()} - sys.modules.keys())
    if "pytest" in sys.modules and homes:
        sys.modules["pytest"].register_assert_rewrite(*homes)


_explain_asserts()


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"ctxkit.testing.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(_HOMES)
