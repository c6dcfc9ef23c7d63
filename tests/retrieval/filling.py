"""Puts documents into a store, each as one chunk or cut at given places."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from ctxkit.documents import Chunk, Document, Span
from ctxkit.protocols import Embedder
from ctxkit.storage import Store, index_text


def put(store: Store, document: Document, cuts: Sequence[int] = (), *, embedder: Embedder | None = None) -> None:
    """Store a document in pieces that end at `cuts`, and at its end."""
    edges = [0, *cuts, len(document.text)]
    spans = [Span(start, end) for start, end in pairwise(edges)]
    put_spans(store, document, spans, embedder=embedder)


def put_spans(store: Store, document: Document, spans: Iterable[Span], *, embedder: Embedder | None = None) -> None:
    chunks = [Chunk.of(document, span, max(1, len(span.slice(document.text).split()))) for span in spans]
    if embedder is None:
        store.documents.put(document, chunks, recipe="test")
        return
    vectors = embedder.embed([index_text(document.title, chunk.heading_path, chunk.text) for chunk in chunks])
    store.documents.put(document, chunks, recipe="test", fingerprint=embedder.fingerprint, vectors=vectors)


def fill(store: Store, texts: Sequence[str], *, embedder: Embedder | None = None, prefix: str = "d") -> None:
    """Documents `d0`, `d1` … of one chunk each."""
    for number, text in enumerate(texts):
        put(store, Document(id=f"{prefix}{number}", text=text, source=f"{prefix}{number}.md"), embedder=embedder)
