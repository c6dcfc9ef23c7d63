"""What is in a store, and what is wrong with it: for statistics and for `ctxkit doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import func, text

from ctxkit.storage import tables
from ctxkit.storage.migrate import HEAD
from ctxkit.storage.tenancy import Scope

__all__ = ["problems", "statistics"]

_COUNTED = (
    tables.documents,
    tables.chunks,
    tables.entities,
    tables.document_graphs,
    tables.sessions,
    tables.messages,
    tables.templates,
    tables.template_versions,
    tables.payloads,
)


def statistics(scope: Scope, path: Path | None) -> dict[str, Any]:
    """Counts of one tenant's rows, and the whole store's size in bytes (of all tenants)."""

    def count(table: Any) -> int:
        return int(scope.first(scope.select(func.count(), source=table))[0])

    spaces, vectors = tables.vector_spaces, tables.embeddings
    by_fingerprint = scope.select(vectors.c.fingerprint, func.count()).group_by(vectors.c.fingerprint)
    counts = {str(row[0]): int(row[1]) for row in scope.all(by_fingerprint)}
    revision = scope.first(scope.select(tables.tenants.c.revision))
    return {
        "kind": scope.kind,
        "schema": HEAD,
        "tenant": scope.tenant,
        "revision": int(revision[0]) if revision else 0,
        **{table.name: count(table) for table in _COUNTED},
        "embeddings": {
            row.fingerprint: {"dimension": row.dimension, "count": counts.get(row.fingerprint, 0)}
            for row in scope.all(scope.select(spaces).order_by(spaces.c.fingerprint))
        },
        "bytes": _size(scope, path),
    }


def _size(scope: Scope, path: Path | None) -> int:
    if scope.kind == "postgresql":
        return int(scope.connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())
    if path is None:
        pages, size = (
            scope.connection.execute(text(f"PRAGMA {name}")).scalar_one() for name in ("page_count", "page_size")
        )
        return int(pages) * int(size)
    files = [path, path.with_name(path.name + "-wal")]
    return sum(file.stat().st_size for file in files if file.exists())


def problems(scope: Scope) -> Iterator[str]:
    """One line for each thing that is wrong; none for a sound store. Reads every row of the tenant's keys once."""
    yield from _postgresql(scope) if scope.kind == "postgresql" else _sqlite(scope)
    documents, chunks = tables.documents, tables.chunks
    joined = documents.outerjoin(
        chunks, (chunks.c.tenant == documents.c.tenant) & (chunks.c.document_id == documents.c.id)
    )
    counted = (
        scope.select(documents.c.id, documents.c.chunk_count, func.count(chunks.c.key), source=joined)
        .group_by(documents.c.id, documents.c.chunk_count)
        .having(func.count(chunks.c.key) != documents.c.chunk_count)
    )
    for id_, expected, found in scope.all(counted):
        yield f"document {id_} has {found} chunks of {expected}: ingest it again"
    sessions = tables.sessions
    found_rows: dict[str, tuple[int, int]] = {}
    for table in (tables.messages, tables.archived_messages):
        joined = sessions.outerjoin(
            table,
            (table.c.tenant == sessions.c.tenant)
            & (table.c.session_id == sessions.c.id)
            & (table.c.sequence > sessions.c.deleted_through),
        )
        newest = func.coalesce(func.max(table.c.sequence), 0)
        counted = scope.select(sessions.c.id, func.count(table.c.sequence), newest, source=joined)
        for id_, count, last in scope.all(counted.group_by(sessions.c.id)):
            earlier = found_rows.get(id_, (0, 0))
            found_rows[id_] = (earlier[0] + count, max(earlier[1], last))
    heads = scope.select(sessions.c.id, sessions.c.last_sequence, sessions.c.fork, sessions.c.deleted_through)
    for id_, last, fork, deleted in scope.all(heads.order_by(sessions.c.id)):
        expected = last - max(fork, deleted)
        count, newest_found = found_rows.get(id_, (0, 0))
        if count != expected or (expected and newest_found != last):
            yield f"session {id_} has {count} messages, but its sequence is at {last}: restore a backup of it"


def _sqlite(scope: Scope) -> Iterator[str]:
    for row in scope.connection.execute(text("PRAGMA quick_check(10)")):
        if row[0] != "ok":
            yield f"SQLite finds damage: {row[0]}: restore a backup"
    for row in scope.connection.execute(text("PRAGMA foreign_key_check")):
        yield f"a row of {row[0]} points at a row of {row[2]} that is gone: ingest again"


def _postgresql(scope: Scope) -> Iterator[str]:
    bypasses = text("SELECT rolname FROM pg_roles WHERE rolname = current_user AND (rolsuper OR rolbypassrls)")
    for (role,) in scope.connection.execute(bypasses):
        yield (
            f"the role {role} bypasses row-level security, so only ctxkit's own predicates keep tenants apart: "
            "connect as a role with NOSUPERUSER NOBYPASSRLS"
        )
    protected = text(
        "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(quote_ident(current_schema())) "
        "AND relrowsecurity AND relforcerowsecurity"
    )
    found = {row[0] for row in scope.connection.execute(protected)}
    for table in tables.TENANT_TABLES:
        if table.name not in found:
            yield f"row-level security is off on {table.name}: ALTER TABLE {table.name} FORCE ROW LEVEL SECURITY"
