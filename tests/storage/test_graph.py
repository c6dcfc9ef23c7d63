"""The graph in the store: exact, whole, of one tenant, always what its documents make of it; the second revision."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import create_engine, event, text

from ctxkit.documents import Chunk, Document, Span
from ctxkit.errors import NotFoundError, StorageError
from ctxkit.graph import EntityGraph
from ctxkit.graph.building import document_graph
from ctxkit.storage import Store
from ctxkit.storage.graph_rows import DocumentGraph, counts_of
from ctxkit.storage.migrate import script_location
from tests.graph.making import arrays, chunk_mentions, fewer, loaded, named, names, rebuilt
from tests.storage.making import shared, unit_vectors
from tests.strategies import stored_texts

FRESH = itertools.count()
"""A new tenant is an empty store."""


def put(store: Store, chunks: list[list[tuple[str, str]]], name: str = "d", **options: Any) -> Document:
    document, pieces = named(chunks, name)
    store.documents.put(document, pieces, recipe="r", graph=document_graph(document.text, pieces), **options)
    return document


def counts(graph: DocumentGraph) -> Any:
    return (graph.nodes, *(getattr(graph, part).tolist() for part in ("mentions", "links", "aliases", "keys")))


@pytest.fixture(scope="module")
def memory() -> Iterator[Store]:
    with Store.open("sqlite://") as store:
        yield store


class TestRoundTrip:
    def test_it_comes_back_exactly(self, store: Store) -> None:
        document, pieces = named([names("Tim Cook", "Cook", "巴黎"), names("Ada")])
        graph = document_graph(document.text, pieces)
        store.documents.put(document, pieces, recipe="r", graph=graph)
        keys = store.documents.keys()
        (found,) = store.graph.load()
        assert counts(found) == counts(replace(graph, keys=keys)) == counts(store.graph.get("d"))
        for part in ("mentions", "links", "aliases"):
            assert getattr(found, part).dtype == np.int32
        assert found.keys.dtype == np.int64

    @shared
    @given(
        stored_texts, stored_texts, st.lists(st.tuples(st.just(0), st.just(0), st.integers(0, 2**31 - 1)), max_size=2)
    )
    def test_any_name_and_any_count(self, memory: Store, name: str, label: str, mentions: Any) -> None:
        tenant = memory.for_tenant(str(next(FRESH)))
        document, pieces = named([[]])
        nodes = tuple(sorted({(name, label), (label, name)}))
        graph = replace(DocumentGraph.empty(), nodes=nodes, mentions=counts_of(mentions, 3))
        tenant.documents.put(document, pieces, recipe="r", graph=graph)
        assert counts(tenant.graph.get("d")) == counts(replace(graph, keys=tenant.documents.keys()))

    def test_of_a_document_that_names_nothing_or_is_not_there(self, store: Store) -> None:
        put(store, [[]])
        assert store.graph.load() == []
        assert not store.graph.get("d")
        assert len(store.graph.get("d").keys) == 0
        with pytest.raises(NotFoundError) as caught:
            store.graph.get("other")
        assert caught.value.subject == "other"

    def test_the_context_of_a_chunk_is_kept_and_indexed(self, store: Store) -> None:
        document, (chunk, other) = named([names("Ada"), names("Bob")])
        line = "Notes > Ada, near Bob"
        store.documents.put(document, [replace(chunk, context=line), other], recipe="r")
        keys = store.documents.keys()
        assert [found.context for found in store.documents.chunks(keys).values()] == [line, ""]
        assert [found.text for found in store.documents.chunks(keys).values()] == [chunk.text, other.text]
        assert [found for _, found in store.documents.index_texts(keys)] == [f"{line}\n{chunk.text}", other.text]
        with pytest.raises(StorageError, match="context"):
            store.documents.put(document, [replace(chunk, context="\0")], recipe="r")


steps = st.lists(
    st.tuples(st.sampled_from(["put", "put", "put", "delete", "bare"]), st.sampled_from("abc"), chunk_mentions),
    max_size=6,
)


def follow(store: Store, script: list[tuple[str, str, list[list[tuple[str, str]]]]]) -> None:
    for action, name, chunks in script:
        if action == "put":
            put(store, chunks, name)
        elif action == "bare":
            store.documents.put(Document(name, "nothing", source=name), [], recipe="r")
        else:
            store.documents.delete([name])


class TestIncremental:
    @fewer
    @given(steps)
    def test_it_is_what_the_stored_chunks_make(self, memory: Store, script: Any) -> None:
        store = memory.for_tenant(str(next(FRESH)))
        follow(store, script)
        assert arrays(loaded(store)) == arrays(rebuilt(store))

    @pytest.mark.postgres
    @pytest.mark.parametrize("seed", range(3))
    def test_on_postgresql_too(self, postgres_url: str, seed: int) -> None:
        rng = np.random.default_rng(seed)
        with Store.open(postgres_url) as store:
            for _ in range(12):
                words = [names(*map(str, rng.choice(["Ada", "Bob", "Cy", "Dan", "Cook"], 6))) for _ in range(3)]
                follow(store, [(str(rng.choice(["put", "put", "delete"])), str(rng.choice(list("abc"))), words)])
                assert arrays(loaded(store)) == arrays(rebuilt(store))
            assert store.check() == []

    def test_it_needs_neither_the_chunks_nor_an_extractor(self, store: Store) -> None:
        put(store, [names("Ada", "Bob")], "a")
        put(store, [names("Bob", "Cy")], "b")
        expected = arrays(rebuilt(store))
        reads: list[str] = []
        engine = store._database._engine
        event.listen(engine, "before_cursor_execute", lambda *arguments: reads.append(arguments[2]))
        graph = EntityGraph.from_counts(store.graph.load())
        assert len([read for read in reads if "FROM" in read]) == 1
        assert arrays(graph) == expected

    def test_a_put_that_fails_leaves_the_graph_as_it_was(self, store: Store) -> None:
        put(store, [names("Ada", "Bob")], fingerprint="f", vectors=unit_vectors(1, 8))
        before = arrays(loaded(store))
        with pytest.raises(StorageError, match="4 dimensions"):
            put(store, [names("Cy")], fingerprint="f", vectors=unit_vectors(1, 4))
        with pytest.raises(StorageError, match="4 dimensions"):
            put(store, [names("Cy")], "other", fingerprint="f", vectors=unit_vectors(1, 4))
        assert arrays(loaded(store)) == before == arrays(rebuilt(store))

    def test_tenants_do_not_meet(self, store: Store) -> None:
        other = store.for_tenant("other")
        put(store, [names("Ada", "Bob")])
        put(other, [names("Bob", "Cy")])
        assert [node.name for node in loaded(store).nodes] == ["ada", "bob"]
        assert [node.name for node in loaded(other).nodes] == ["bob", "cy"]
        assert not {*loaded(store).keys.tolist()} & {*loaded(other).keys.tolist()}
        other.documents.delete(["d"])
        assert len(loaded(other)) == 0
        assert len(loaded(store)) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"nodes": (("b", "X"), ("a", "X"))},
        {"nodes": (("a", "X"), ("a", "X"))},
        {"nodes": (("a\0", "X"),)},
        {"nodes": (("a", "\ud800"),)},
        {"mentions": counts_of([(5, 0, 1)], 3)},
        {"mentions": counts_of([(0, 2, 1)], 3)},
        {"mentions": counts_of([(-1, 0, 1)], 3)},
        {"mentions": counts_of([(0, 0, 1)], 3).astype(np.int64)},
        {"links": counts_of([(0, 2, 1)], 3)},
        {"links": counts_of([(0, 1)], 2)},
        {"aliases": counts_of([(0, 2)], 2)},
        {"aliases": counts_of([0, 1, 0], 1)},
    ],
    ids=str,
)
def test_a_graph_of_something_else_is_refused(memory: Store, change: dict[str, Any]) -> None:
    store = memory.for_tenant(str(next(FRESH)))
    document, pieces = named([names("Ada", "Bob")])
    graph = replace(document_graph(document.text, pieces), **change)
    with pytest.raises(StorageError) as caught:
        store.documents.put(document, pieces, recipe="r", graph=graph)
    assert caught.value.remedy
    assert store.documents.list() == []


class TestTheSecondRevision:
    def first(self, url: str) -> None:
        """A store of the first revision, with a document of two chunks and an entity."""
        from alembic import command
        from alembic.config import Config

        config = Config()
        config.set_main_option("script_location", str(script_location()))
        engine = create_engine(url)
        with engine.begin() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "0001")
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT set_config('ctxkit.tenant', 'default', true)"))
            connection.execute(text("INSERT INTO tenants VALUES ('default', 7)"))
            connection.execute(
                text(
                    "INSERT INTO documents (tenant, id, source, title, updated_at, content_hash, recipe, chunk_count, "
                    "metadata, text) VALUES ('default', 'old', 'old.md', 'Old', '2026-01-01T00:00:00+00:00', 'h', 'r', "
                    "2, '{}', 'Ada met Bob')"
                )
            )
            chunk = (
                "INSERT INTO chunks VALUES ('default', :key, 'old', :ordinal, :id, :start, :end, 1, '[]', '{}', :text)"
            )
            for key, (start, end) in enumerate([(0, 7), (7, 11)]):
                values = {"key": key + 1, "ordinal": key, "id": f"old:{key}", "start": start, "end": end}
                connection.execute(text(chunk), {**values, "text": "Ada met Bob"[start:end]})
            connection.execute(text("INSERT INTO entities VALUES ('default', 1, 0, 0, 3, 'NAME', 'Ada')"))
            keys = "SELECT setval('chunk_keys', 2)"
            if connection.dialect.name == "sqlite":
                keys = "UPDATE counters SET value = 2 WHERE name = 'chunk_keys'"
            connection.execute(text(keys))
        engine.dispose()

    def test_a_store_of_the_first_keeps_its_documents(self, store_url: str) -> None:
        self.first(store_url)
        with Store.open(store_url) as store:
            assert store.check() == []
            assert store.documents.get("old").text == "Ada met Bob"
            assert store.documents.revision() == 7
            chunks = store.documents.chunks(store.documents.keys())
            assert [(key, chunk.text, chunk.context) for key, chunk in chunks.items()] == [
                (1, "Ada met", ""),
                (2, " Bob", ""),
            ]
            assert chunks[1].entities[0].text == "Ada"
            assert [found for _, found in store.documents.index_texts([1])] == ["Old\nAda met"]
            assert store.graph.load() == []
            assert not store.graph.get("old")
            put(store, [names("Cy")], "new")
            assert store.documents.keys().tolist() == [1, 2, 3]
            assert loaded(store).keys.tolist() == [3]
            whole = Document("old", "Ada met Bob", source="old.md")
            store.documents.put(whole, [Chunk.of(whole, Span(0, 11), 3)], recipe="r2")
            assert store.documents.keys().tolist() == [3, 4]

    def test_a_migration_that_dies_leaves_the_first(self, store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        from alembic import command

        self.first(store_url)
        upgrade: Callable[..., None] = command.upgrade

        def dying(*arguments: Any) -> None:
            upgrade(*arguments)
            raise RuntimeError("the process dies before its commit")

        with monkeypatch.context() as patched:
            patched.setattr(command, "upgrade", dying)
            with pytest.raises(RuntimeError, match="dies"), closing(Store.open(store_url)):
                pass
        with Store.open(store_url) as store:
            assert store.documents.get("old").text == "Ada met Bob"
            assert store.check() == []
