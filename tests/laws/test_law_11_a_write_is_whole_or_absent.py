"""Law 11 as a property: a write that dies at any statement, or at its commit, leaves the store as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, event

from ctxkit.chunking import RecursiveChunker
from ctxkit.documents import Document, Entity
from ctxkit.graph.building import document_graph
from ctxkit.storage import Store
from ctxkit.testing import HashEmbedder
from tests.strategies import stored_texts

chunker = RecursiveChunker(max_tokens=8)
embedder = HashEmbedder()


class Crash(BaseException):
    """The process dies: nothing that expects errors may catch it."""


@contextmanager
def dying_at(moment: int) -> Iterator[None]:
    """Raise at the statement of this number; the commit counts as one."""
    left = [moment]

    def tick(*arguments: Any) -> None:
        if left[0] == 0:
            raise Crash
        left[0] -= 1

    for name in ("before_cursor_execute", "commit"):
        event.listen(Engine, name, tick)
    try:
        yield
    finally:
        for name in ("before_cursor_execute", "commit"):
            event.remove(Engine, name, tick)


def put(store: Store, document: Document) -> None:
    chunks = [replace(chunk, entities=(Entity(chunk.text, "NAME", chunk.span),)) for chunk in chunker.chunk(document)]
    vectors = embedder.embed([chunk.text for chunk in chunks])
    graph = document_graph(document.text, chunks)
    store.documents.put(document, chunks, recipe="r", fingerprint=embedder.fingerprint, vectors=vectors, graph=graph)


def contents(store: Store, document: Document) -> tuple[Any, ...]:
    keys = store.documents.keys()
    chunks = store.documents.chunks(keys)
    vectors = store.documents.vectors(embedder.fingerprint)[0]
    assert sorted(vectors.tolist()) == sorted(chunks), "chunks and vectors differ"
    assert [key for part in store.graph.load() for key in part.keys.tolist()] in ([], sorted(chunks)), "an old graph"
    spans = sorted(chunk.span for chunk in chunks.values() if chunk.document_id == document.id)
    return store.documents.get(document.id).text, spans


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    # A file: a connection that dies takes a database in memory along.
    with Store.open(f"sqlite:///{tmp_path_factory.mktemp('law11') / 'store.db'}") as store:
        yield store


@given(old=stored_texts, new=stored_texts, moment=st.integers(0, 16))
def test_a_write_that_dies_anywhere_is_whole_or_absent(opened: Store, old: str, new: str, moment: int) -> None:
    before, after = (Document.from_text(text, source="the document") for text in (old, new))
    put(opened, before)
    was = contents(opened, before)
    died = False
    with dying_at(moment):
        try:
            put(opened, after)
        except Crash:
            died = True
    found = contents(opened, before)
    assert found == (was if died else (new, sorted(chunk.span for chunk in chunker.chunk(after))))
    put(opened, after)
    assert contents(opened, after) == (new, sorted(chunk.span for chunk in chunker.chunk(after)))
