"""A prompt and its candidates as JSON, with every long part a piece by the hash of its content; and back again.

Two prompts that share a message, a template or a chunk then share the piece.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ctxkit.assembly.identity import unsaid_gap
from ctxkit.documents import Candidate, Chunk, Source, Span, content_hash
from ctxkit.messages import Message, Part, ToolCall
from ctxkit.prompts import Budget, Prompt, Section, Segment
from ctxkit.trace import Dropped, StageRecord, Trace

__all__ = ["Piece", "candidate_form", "candidate_of", "prompt_form", "prompt_of"]

Piece = Callable[[Any], str]
"""Keeps a JSON value as a piece, and gives its hash."""


def prompt_form(prompt: Prompt, piece: Piece) -> dict[str, Any]:
    """The prompt as JSON. Linear in it."""
    return {
        "hashes": dict(prompt.hashes),
        "messages": [piece(_turn(turn)) for turn in prompt.turns],
        "sent": content_hash(prompt.messages),
        "segments": _segments(prompt),
        "dropped": [
            [item.section, item.item, item.token_count, item.reason, _sources(item.sources)] for item in prompt.dropped
        ],
        "token_count": prompt.token_count,
        "stable_prefix_tokens": prompt.stable_prefix_tokens,
        "counter": prompt.counter,
        "exact": prompt.exact,
        "budget": {
            "max_tokens": prompt.budget.max_tokens,
            "reserve_output": prompt.budget.reserve_output,
            "sections": {
                name: [limits.min, limits.max, limits.share, limits.priority]
                for name, limits in prompt.budget.sections.items()
            },
        },
        "tools": [piece(dict(tool)) for tool in prompt.tools],
    }


def prompt_of(fingerprint: str, form: Mapping[str, Any], pieces: Mapping[str, Any]) -> Prompt:
    """The prompt of its form. The trace has one record, with what was dropped."""
    limits = form["budget"]
    turns = tuple(_to_turn(pieces[digest]) for digest in form["messages"])
    trace = Trace()
    dropped = [
        Dropped(section, item, token_count, reason, _to_sources(sources))
        for section, item, token_count, reason, sources in form["dropped"]
    ]
    trace.records.append(StageRecord("recorded", dropped=dropped))
    return Prompt(
        turns=turns,
        segments=tuple(_to_segments(form["segments"], turns)),
        token_count=form["token_count"],
        budget=Budget(
            limits["max_tokens"],
            reserve_output=limits["reserve_output"],
            sections={name: Section(*values) for name, values in limits["sections"].items()},
        ),
        stable_prefix_tokens=form["stable_prefix_tokens"],
        fingerprint=fingerprint,
        hashes=form["hashes"],
        counter=form["counter"],
        exact=form["exact"],
        tools=tuple(pieces[digest] for digest in form["tools"]),
        trace=trace,
    )


def candidate_form(candidate: Candidate, piece: Piece) -> dict[str, Any]:
    """The candidate as JSON, without its entities."""
    chunk = candidate.chunk
    return {
        "id": chunk.id,
        "document_id": chunk.document_id,
        "span": list(chunk.span),
        "text": piece(chunk.text),
        "token_count": chunk.token_count,
        "heading_path": list(chunk.heading_path),
        "context": chunk.context,
        "metadata": dict(chunk.metadata),
        "kept": None if candidate.kept is None else [list(span) for span in candidate.kept],
        **({} if candidate.gap == unsaid_gap(candidate.kept is not None) else {"gap": candidate.gap}),
        "scores": {name: _score(float(score)) for name, score in candidate.scores.items()},
    }


def _score(score: float) -> float | str:
    return score if math.isfinite(score) else repr(score)  # JSON has no NaN


def candidate_of(value: Mapping[str, Any], pieces: Mapping[str, Any]) -> Candidate:
    """The candidate of its form."""
    chunk = Chunk(
        id=value["id"],
        document_id=value["document_id"],
        span=Span(*value["span"]),
        text=pieces[value["text"]],
        token_count=value["token_count"],
        heading_path=tuple(value["heading_path"]),
        context=value["context"],
        metadata=value["metadata"],
    )
    kept = None if value["kept"] is None else tuple(Span(*span) for span in value["kept"])
    scores = {name: float(score) for name, score in value["scores"].items()}
    return Candidate(chunk, scores, kept, gap=value.get("gap", unsaid_gap(kept is not None)))


def _turn(turn: Message) -> dict[str, Any]:
    content: Any = turn.content
    if not isinstance(content, str):
        content = [[part.kind, part.text, dict(part.data)] for part in content]
    fields = {
        "name": turn.name,
        "tool_call_id": turn.tool_call_id,
        "tool_calls": [[call.id, call.name, call.arguments] for call in turn.tool_calls],
        "id": turn.id,
        "sequence": turn.sequence,
        "created_at": turn.created_at.isoformat() if turn.created_at else None,
    }
    return {"role": turn.role, "content": content, **{name: value for name, value in fields.items() if value}}


def _to_turn(value: Mapping[str, Any]) -> Message:
    content = value["content"]
    return Message(
        role=value["role"],
        content=content if isinstance(content, str) else tuple(Part(*part) for part in content),
        tool_calls=tuple(ToolCall(*call) for call in value.get("tool_calls", ())),
        tool_call_id=value.get("tool_call_id"),
        name=value.get("name"),
        id=value.get("id", ""),
        sequence=value.get("sequence", 0),
        created_at=datetime.fromisoformat(value["created_at"]) if "created_at" in value else None,
    )


def _segments(prompt: Prompt) -> list[list[Any]]:
    """The segments, each with the length of its text in its message, or with the text where it stands elsewhere."""
    texts = [turn.visible for turn in prompt.turns]
    offsets = [0] * len(texts)
    found = []
    for segment in prompt.segments:
        at = offsets[segment.message]
        end = offsets[segment.message] = at + len(segment.text)
        same = texts[segment.message][at:end] == segment.text
        found.append(
            [
                segment.section,
                segment.role,
                len(segment.text) if same else segment.text,
                segment.token_count,
                segment.trust,
                segment.message,
                segment.template,
                segment.message_id,
                _sources(segment.sources),
                *([] if segment.gap == unsaid_gap(len(segment.sources) > 1) else [segment.gap]),
            ]
        )
    return found


def _to_segments(rows: Sequence[Sequence[Any]], turns: Sequence[Message]) -> list[Segment]:
    texts = [turn.visible for turn in turns]
    offsets = [0] * len(texts)
    found = []
    for section, role, text, token_count, trust, message, template, message_id, sources, *gap in rows:
        length = text if isinstance(text, int) else len(text)
        at = offsets[message]
        end = offsets[message] = at + length
        shown = texts[message][at:end] if isinstance(text, int) else text
        spans = _to_sources(sources)
        mark = gap[0] if gap else unsaid_gap(len(spans) > 1)
        found.append(Segment(section, role, shown, token_count, trust, message, template, message_id, spans, mark))
    return found


def _sources(sources: Sequence[Source]) -> list[list[Any]]:
    return [[source.document_id, source.source, *source.span] for source in sources]


def _to_sources(rows: Sequence[Sequence[Any]]) -> tuple[Source, ...]:
    return tuple(Source(document, source, Span(start, end)) for document, source, start, end in rows)
