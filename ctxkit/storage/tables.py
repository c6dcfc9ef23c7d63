"""The tables, as the newest migration leaves them; a test compares the two on both databases.

The tenant is the first column of every primary key, unique constraint and foreign key of a tenant's data (law 10).
Times are ISO 8601 text, so that an offset comes back as it went in. JSON is kept as the exact text that was put: JSONB
would turn 1e16 into an integer and -0.0 into 0, and a payload could not be replayed byte for byte. On PostgreSQL a
generated JSONB column beside it carries the GIN index.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, LargeBinary, Sequence, Table, UniqueConstraint

from ctxkit.storage.columns import NAMING, Vector, metadata
from ctxkit.storage.columns import key as _key
from ctxkit.storage.columns import tenant as _tenant
from ctxkit.storage.columns import text as _text
from ctxkit.storage.columns import vector as _vector
from ctxkit.storage.columns import within as _within
from ctxkit.storage.experiment_tables import (
    experiment_metrics,
    experiment_outcomes,
    experiment_units,
    experiments,
)
from ctxkit.storage.release_tables import (
    blobs,
    label_protections,
    payload_versions,
    run_blobs,
    runs,
    template_epochs,
    template_events,
    template_includes,
)
from ctxkit.storage.session_tables import (
    archived_messages,
    message_vectors,
    messages,
    session_branches,
    sessions,
)

__all__ = [
    "CHUNK_KEYS",
    "NAMING",
    "TENANT_TABLES",
    "Vector",
    "archived_messages",
    "blobs",
    "chunks",
    "counters",
    "document_graphs",
    "documents",
    "embeddings",
    "entities",
    "experiment_metrics",
    "experiment_outcomes",
    "experiment_units",
    "experiments",
    "label_history",
    "label_protections",
    "message_vectors",
    "messages",
    "metadata",
    "payload_keys",
    "payload_versions",
    "payloads",
    "run_blobs",
    "runs",
    "session_branches",
    "sessions",
    "stores",
    "template_epochs",
    "template_events",
    "template_includes",
    "template_labels",
    "template_versions",
    "templates",
    "tenants",
    "vector_spaces",
]

CHUNK_KEYS = Sequence("chunk_keys", metadata=metadata)
"""PostgreSQL's source of chunk keys; SQLite counts in `counters`, since its sequences need a one-column key."""

stores = Table(
    "stores",
    metadata,
    _key("id"),
    Column("created_at", _text, nullable=False),
)

counters = Table(
    "counters",
    metadata,
    _key("name"),
    Column("value", BigInteger, nullable=False),
)

tenants = Table(
    "tenants",
    metadata,
    _tenant(),
    Column("revision", BigInteger, nullable=False),
)

# The long text is last: SQLite then reads the other columns of a row without its overflow pages.
documents = Table(
    "documents",
    metadata,
    _tenant(),
    _key("id"),
    Column("source", _text, nullable=False),
    Column("title", _text, nullable=False),
    Column("created_at", _text),
    Column("updated_at", _text, nullable=False),
    Column("content_hash", _text, nullable=False),
    Column("recipe", _text, nullable=False),
    Column("chunk_count", Integer, nullable=False),
    Column("metadata", _text, nullable=False),
    Column("text", _text, nullable=False),
)

chunks = Table(
    "chunks",
    metadata,
    _tenant(),
    Column("key", BigInteger, primary_key=True, autoincrement=False),
    Column("document_id", _text, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("id", _text, nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("end", BigInteger, nullable=False),
    Column("token_count", BigInteger, nullable=False),
    Column("heading_path", _text, nullable=False),
    Column("metadata", _text, nullable=False),
    Column("text", _text, nullable=False),
    Column("context", _text, nullable=False, server_default=""),
    _within("documents", ["document_id"], ["id"]),
    UniqueConstraint("tenant", "document_id", "ordinal"),
)

entities = Table(
    "entities",
    metadata,
    _tenant(),
    Column("key", BigInteger, primary_key=True, autoincrement=False),
    Column("ordinal", Integer, primary_key=True, autoincrement=False),
    Column("start", BigInteger, nullable=False),
    Column("end", BigInteger, nullable=False),
    Column("label", _text, nullable=False),
    Column("text", _text, nullable=False),
    _within("chunks", ["key"], ["key"]),
)

# One row a document, its numbers packed: see docs/decisions/0011.
document_graphs = Table(
    "document_graphs",
    metadata,
    _tenant(),
    _key("document_id"),
    Column("nodes", _text, nullable=False),
    Column("keys", LargeBinary, nullable=False),
    Column("mentions", LargeBinary, nullable=False),
    Column("links", LargeBinary, nullable=False),
    Column("aliases", LargeBinary, nullable=False),
    _within("documents", ["document_id"], ["id"]),
)

vector_spaces = Table(
    "vector_spaces",
    metadata,
    _tenant(),
    _key("fingerprint"),
    Column("dimension", Integer, nullable=False),
)

embeddings = Table(
    "embeddings",
    metadata,
    _tenant(),
    Column("key", BigInteger, primary_key=True, autoincrement=False),
    _key("fingerprint"),
    Column("vector", _vector, nullable=False),
    _within("chunks", ["key"], ["key"]),
    _within("vector_spaces", ["fingerprint"], ["fingerprint"]),
)

templates = Table(
    "templates",
    metadata,
    _tenant(),
    _key("name"),
    Column("last_version", Integer, nullable=False),
    Column("updated_at", _text, nullable=False),
    Column("archived_at", _text),
)

template_versions = Table(
    "template_versions",
    metadata,
    _tenant(),
    _key("name"),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("hash", _text, nullable=False),
    Column("message", _text, nullable=False),
    Column("created_at", _text, nullable=False),
    Column("author", _text, nullable=False, server_default=""),
    Column("archived_at", _text),
    Column("content", _text, nullable=False),
    # What a search compares with, case-folded by Python so that both databases find the same: names a line, and text.
    Column("slots", _text, nullable=False, server_default=""),
    Column("folded", _text, nullable=False, server_default=""),
    _within("templates", ["name"], ["name"]),
    UniqueConstraint("tenant", "name", "hash"),
)

template_labels = Table(
    "template_labels",
    metadata,
    _tenant(),
    _key("name"),
    _key("label"),
    Column("version", Integer, nullable=False),
    _within("template_versions", ["name", "version"], ["name", "version"]),
)

label_history = Table(
    "label_history",
    metadata,
    _tenant(),
    _key("name"),
    _key("label"),
    Column("ordinal", Integer, primary_key=True, autoincrement=False),
    Column("previous", Integer),
    Column("version", Integer, nullable=False),
    Column("moved_at", _text, nullable=False),
    Column("action", _text, nullable=False, server_default="move"),
    Column("author", _text, nullable=False, server_default=""),
    Column("message", _text, nullable=False, server_default=""),
    Column("forced", Integer, nullable=False, server_default="0"),
    # The move that a rollback from here returns to: rolling back twice goes further back, not to where it was.
    Column("origin", Integer),
    _within("templates", ["name"], ["name"]),
)

payloads = Table(
    "payloads",
    metadata,
    _tenant(),
    _key("hash"),
    Column("created_at", _text, nullable=False),
    Column("content", _text, nullable=False),
)

payload_keys = Table(
    "payload_keys",
    metadata,
    _tenant(),
    _key("key"),
    Column("hash", _text, nullable=False),
    Column("updated_at", _text, nullable=False),
    Column("version", Integer, nullable=False, server_default="0"),
    Column("last_version", Integer, nullable=False, server_default="0"),
    _within("payloads", ["hash"], ["hash"]),
)

TENANT_TABLES = tuple(table for table in metadata.sorted_tables if "tenant" in table.c)
