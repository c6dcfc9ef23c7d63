"""The hashes that name a prompt: the same hashes give the same prompt, byte for byte (law 6)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

from ctxkit.documents import GAP, OLD_GAP, Candidate, content_hash
from ctxkit.messages import Message, history_hash
from ctxkit.prompts import Budget

__all__ = ["context_hash", "described", "fingerprint", "request_hashes", "unsaid_gap"]


def request_hashes(
    *,
    template: str,
    payload: Mapping[str, Any],
    history: Sequence[Message],
    question: str,
    tools: Sequence[Mapping[str, Any]],
    budget: Budget,
    counter: str,
    window: object,
) -> dict[str, str]:
    """What a prompt is made of, by name; `context` is added when the candidates are known."""
    limits = {
        name: [section.min, section.max, section.share, section.priority] for name, section in budget.sections.items()
    }
    return {
        "template": template,
        "payload": content_hash(dict(payload)),
        "history": history_hash(history),
        "question": content_hash(question),
        "tools": content_hash(list(tools)),
        "budget": content_hash([budget.max_tokens, budget.reserve_output, limits]),
        "counter": counter,
        "window": content_hash(described(window, nested=True)),
    }


def unsaid_gap(gapped: bool) -> str:
    """The mark that is not written down: of what has gaps the one before today's, so that old records mean the same."""
    return OLD_GAP if gapped else GAP


def context_hash(candidates: Sequence[Candidate]) -> str:
    """SHA-256 over the candidates in order: documents, spans, texts, scores and sources. Linear in the texts."""
    digest = hashlib.sha256()
    heads = [
        [
            candidate.chunk.id,
            candidate.chunk.document_id,
            candidate.chunk.span,
            candidate.kept,
            float(candidate.score),
            str(candidate.chunk.metadata.get("source", "")),
            len(candidate.chunk.text),
            *([] if candidate.gap == unsaid_gap(candidate.kept is not None) else [candidate.gap]),
        ]
        for candidate in candidates
    ]
    digest.update(json.dumps(heads, default=str).encode("ascii"))
    digest.update("".join([candidate.chunk.text for candidate in candidates]).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def fingerprint(hashes: Mapping[str, str]) -> str:
    return content_hash(dict(hashes))


def described(stage: object, *, nested: bool = False) -> list[Any]:
    """A stage by its class and its parameters; never by its `repr`, which may hold an address.

    `nested`: with the parts that it is made of, as a window in a window is.
    """
    kind = type(stage)
    described: list[Any] = [f"{kind.__module__}.{kind.__qualname__}"]
    if is_dataclass(stage):
        described += [
            [field.name, value]
            for field in fields(stage)
            if isinstance(value := getattr(stage, field.name), str | int | float | bool | None)
        ]
        if nested:
            parts = ((field.name, getattr(stage, field.name)) for field in fields(stage) if field.init)
            described += [[name, part] for name, value in parts if (part := _part(value)) is not None]
    return described


def _part(value: object) -> Any:
    """A parameter that is itself made of something: as JSON, or None for what is no part of a result."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple | list):
        return [item if isinstance(item, str | int | float | bool | None) else _part(item) for item in value]
    for name in ("fingerprint", "name"):  # an embedder, a model, a counter
        if isinstance(identity := getattr(value, name, None), str):
            return identity
    if is_dataclass(value) and not isinstance(value, type):
        return described(value, nested=True)
    return None
