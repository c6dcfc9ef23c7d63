"""ctxkit: documents, dialogue, templates and payloads in; one prompt that provably fits its token budget out.

    from ctxkit import Budget, ContextEngine

    engine = ContextEngine.open("sqlite:///notes.db")
    engine.ingest("docs/")
    prompt = engine.assemble("How do I rotate the key?", budget=Budget(8_000, reserve_output=512))
    print(prompt.explain())

Every public name loads its module when it is first used, so that `import ctxkit` stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ctxkit.answers import Answer, Citation
    from ctxkit.documents import Candidate, Chunk, Document, Entity, Query, Source, Span
    from ctxkit.engine import ContextEngine
    from ctxkit.errors import BudgetError, CtxkitError
    from ctxkit.ingest import IngestReport
    from ctxkit.messages import Message, Part, ToolCall
    from ctxkit.prompts import Budget, Completion, CompletionOptions, Prompt, Section, Segment
    from ctxkit.templates import Template
    from ctxkit.trace import Trace

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Budget",
    "BudgetError",
    "Candidate",
    "Chunk",
    "Citation",
    "Completion",
    "CompletionOptions",
    "ContextEngine",
    "CtxkitError",
    "Document",
    "Entity",
    "IngestReport",
    "Message",
    "Part",
    "Prompt",
    "Query",
    "Section",
    "Segment",
    "Source",
    "Span",
    "Template",
    "ToolCall",
    "Trace",
    "__version__",
]

_HOMES = {
    "ctxkit.documents": ("Candidate", "Chunk", "Document", "Entity", "Query", "Source", "Span"),
    "ctxkit.answers": ("Answer", "Citation"),
    "ctxkit.engine": ("ContextEngine",),
    "ctxkit.errors": ("BudgetError", "CtxkitError"),
    "ctxkit.ingest": ("IngestReport",),
    "ctxkit.messages": ("Message", "Part", "ToolCall"),
    "ctxkit.prompts": ("Budget", "Completion", "CompletionOptions", "Prompt", "Section", "Segment"),
    "ctxkit.templates": ("Template",),
    "ctxkit.trace": ("Trace",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ctxkit' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
