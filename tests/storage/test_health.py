"""What a store says of itself, and what it notices when something is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from ctxkit.messages import Message
from ctxkit.storage import Store
from ctxkit.storage.migrate import HEAD
from tests.storage.making import document, pieces, unit_vectors


def fill(store: Store) -> None:
    store.documents.put(document(), pieces(document()), recipe="r", fingerprint="f", vectors=unit_vectors(3))
    store.sessions.append("s", [Message("user", "a"), Message("user", "b")])
    store.templates.push("t", {"a": 1})
    store.payloads.put("k", {"a": 1})


def change(store: Store, *statements: str) -> None:
    with store._database._engine.begin() as connection:
        if store.kind == "postgresql":
            connection.execute(text("SELECT set_config('ctxkit.tenant', :tenant, true)"), {"tenant": store.tenant})
        for statement in statements:
            connection.execute(text(statement))


def test_statistics_are_this_tenants(store: Store) -> None:
    fill(store)
    fill(store.for_tenant("other"))
    said = store.statistics()
    size = said.pop("bytes")
    assert size > 10_000
    assert said == {
        "kind": store.kind,
        "schema": HEAD,
        "tenant": "default",
        "revision": 1,
        "documents": 1,
        "chunks": 3,
        "entities": 3,
        "document_graphs": 0,
        "sessions": 1,
        "messages": 2,
        "templates": 1,
        "template_versions": 1,
        "payloads": 1,
        "embeddings": {"f": {"dimension": 8, "count": 3}},
    }


def test_in_memory_too() -> None:
    with Store.open("sqlite://") as store:
        fill(store)
        assert store.statistics()["bytes"] > 10_000
        assert store.check() == []


def test_a_sound_store_has_no_problems(store: Store) -> None:
    fill(store)
    fill(store.for_tenant("other"))
    assert store.check() == []


def test_a_lost_chunk_and_a_lost_message_are_noticed(store: Store) -> None:
    fill(store)
    change(
        store,
        "DELETE FROM chunks WHERE tenant = 'default' AND ordinal = 1",
        "DELETE FROM messages WHERE tenant = 'default' AND sequence = 1",
    )
    problems = store.check()
    assert [line.split(":")[0] for line in problems] == [
        f"document {document().id} has 2 chunks of 3",
        "session s has 1 messages, but its sequence is at 2",
    ]
    assert store.for_tenant("other").check() == []
    store.documents.put(document(), pieces(document()), recipe="r")
    assert len(store.check()) == 1, "ingesting again repairs the document"


def test_a_row_that_points_nowhere_is_noticed(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store:
        fill(store)
        import sqlite3

        with sqlite3.connect(str(store.path)) as connection:
            connection.execute("DELETE FROM documents")
        connection.close()
        assert any("points at a row of documents that is gone" in line for line in store.check())


@pytest.mark.postgres
def test_a_role_that_bypasses_row_level_security_is_noticed(postgresql: Any) -> None:
    name = postgresql.create()
    try:
        with Store.open(postgresql.url(name, role="postgres")) as store:
            assert [line for line in store.check() if "bypasses row-level security" in line]
    finally:
        postgresql.drop(name)


@pytest.mark.postgres
def test_a_table_without_row_level_security_is_noticed(postgres_url: str) -> None:
    with Store.open(postgres_url) as store:
        change(store, "ALTER TABLE messages NO FORCE ROW LEVEL SECURITY")
        (line,) = store.check()
        assert "messages" in line
