"""A book, a note, and a prompt of them: what the tests of assembly share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ctxkit.assembly import assemble
from ctxkit.documents import Candidate, Chunk, Document, Query, Span
from ctxkit.history import TailWindow
from ctxkit.messages import Message
from ctxkit.models import OpenAIChatCounter
from ctxkit.prompts import Budget, Prompt
from ctxkit.templates import DEFAULT_TEMPLATE

COUNTER = OpenAIChatCounter("gpt-4o")
BOOK = Document("book", "".join(f"Sentence number {number} of the book. " for number in range(400)), source="book.md")
NOTE = Document("note", "The key is rotated every month by the operator.", source="note.md")


def candidate(document: Document, start: int, end: int, score: float, kept: Sequence[Span] | None = None) -> Candidate:
    span = Span(start, min(end, len(document.text)))
    chunk = Chunk.of(document, span, 1)
    chunk = Chunk(chunk.id, chunk.document_id, span, chunk.text, 1, metadata={"source": document.source})
    found = Candidate(chunk, {"final": score})
    return found if kept is None else found.keeping(kept)


def build(question: str = "How often is the key rotated?", **changes: Any) -> Prompt:
    arguments: dict[str, Any] = {
        "template": DEFAULT_TEMPLATE,
        "payload": {},
        "history": (),
        "candidates": (),
        "budget": Budget(2_000),
        "counter": COUNTER,
        "window": TailWindow(),
        **changes,
    }
    query = arguments.pop("query", None) or Query(question)
    return assemble(query, **arguments)


def contexts(prompt: Prompt) -> list[tuple[str, list[Span]]]:
    return [
        (segment.sources[0].document_id, [source.span for source in segment.sources])
        for segment in prompt.segments
        if segment.sources
    ]


def dialogue(turns: int, words: int = 20) -> list[Message]:
    return [
        Message("user" if at % 2 == 0 else "assistant", f"turn {at} " + "word " * words, id=f"m{at}")
        for at in range(turns)
    ]
