"""The first schema."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql
from sqlalchemy.types import UserDefinedType

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

APPLICATION_ID = 0x4378746B  # "Cxtk": what `file` and PRAGMA application_id show of a SQLite store

TENANT_TABLES = (
    "tenants",
    "documents",
    "chunks",
    "entities",
    "vector_spaces",
    "embeddings",
    "sessions",
    "messages",
    "templates",
    "template_versions",
    "template_labels",
    "label_history",
    "payloads",
    "payload_keys",
)


class Vector(UserDefinedType[Any]):
    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "vector"


text = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")
vector = sa.LargeBinary().with_variant(Vector(), "postgresql")


def column(name: str, type_: Any = text, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, type_, nullable=nullable)


def primary(*columns: str) -> sa.PrimaryKeyConstraint:
    return sa.PrimaryKeyConstraint(*columns)


def within(table: str, columns: list[str], target: list[str]) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["tenant", *columns], [f"{table}.tenant", *(f"{table}.{name}" for name in target)], ondelete="CASCADE"
    )


def upgrade() -> None:
    op.create_table("stores", column("id"), column("created_at"), primary("id"))
    op.create_table("counters", column("name"), column("value", sa.BigInteger), primary("name"))
    op.create_table("tenants", column("tenant"), column("revision", sa.BigInteger), primary("tenant"))
    op.create_table(
        "documents",
        column("tenant"),
        column("id"),
        column("source"),
        column("title"),
        column("created_at", nullable=True),
        column("updated_at"),
        column("content_hash"),
        column("recipe"),
        column("chunk_count", sa.Integer),
        column("metadata"),
        column("text"),
        primary("tenant", "id"),
    )
    op.create_table(
        "chunks",
        column("tenant"),
        column("key", sa.BigInteger),
        column("document_id"),
        column("ordinal", sa.Integer),
        column("id"),
        column("start", sa.BigInteger),
        column("end", sa.BigInteger),
        column("token_count", sa.BigInteger),
        column("heading_path"),
        column("metadata"),
        column("text"),
        primary("tenant", "key"),
        within("documents", ["document_id"], ["id"]),
        sa.UniqueConstraint("tenant", "document_id", "ordinal"),
    )
    op.create_table(
        "entities",
        column("tenant"),
        column("key", sa.BigInteger),
        column("ordinal", sa.Integer),
        column("start", sa.BigInteger),
        column("end", sa.BigInteger),
        column("label"),
        column("text"),
        primary("tenant", "key", "ordinal"),
        within("chunks", ["key"], ["key"]),
    )
    op.create_table(
        "vector_spaces",
        column("tenant"),
        column("fingerprint"),
        column("dimension", sa.Integer),
        primary("tenant", "fingerprint"),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute("CREATE EXTENSION IF NOT EXISTS vector")
    op.create_table(
        "embeddings",
        column("tenant"),
        column("key", sa.BigInteger),
        column("fingerprint"),
        column("vector", vector),
        primary("tenant", "key", "fingerprint"),
        within("chunks", ["key"], ["key"]),
        within("vector_spaces", ["fingerprint"], ["fingerprint"]),
    )
    op.create_table(
        "sessions",
        column("tenant"),
        column("id"),
        column("last_sequence", sa.BigInteger),
        column("created_at"),
        column("updated_at"),
        primary("tenant", "id"),
    )
    op.create_table(
        "messages",
        column("tenant"),
        column("session_id"),
        column("sequence", sa.BigInteger),
        column("id"),
        column("role"),
        column("name", nullable=True),
        column("tool_call_id", nullable=True),
        column("created_at", nullable=True),
        column("tool_calls"),
        column("content"),
        primary("tenant", "session_id", "sequence"),
        within("sessions", ["session_id"], ["id"]),
        sa.UniqueConstraint("tenant", "session_id", "id"),
    )
    op.create_table(
        "templates",
        column("tenant"),
        column("name"),
        column("last_version", sa.Integer),
        column("updated_at"),
        primary("tenant", "name"),
    )
    op.create_table(
        "template_versions",
        column("tenant"),
        column("name"),
        column("version", sa.Integer),
        column("hash"),
        column("message"),
        column("created_at"),
        column("content"),
        primary("tenant", "name", "version"),
        within("templates", ["name"], ["name"]),
        sa.UniqueConstraint("tenant", "name", "hash"),
    )
    op.create_table(
        "template_labels",
        column("tenant"),
        column("name"),
        column("label"),
        column("version", sa.Integer),
        primary("tenant", "name", "label"),
        within("template_versions", ["name", "version"], ["name", "version"]),
    )
    op.create_table(
        "label_history",
        column("tenant"),
        column("name"),
        column("label"),
        column("ordinal", sa.Integer),
        column("previous", sa.Integer, nullable=True),
        column("version", sa.Integer),
        column("moved_at"),
        primary("tenant", "name", "label", "ordinal"),
        within("templates", ["name"], ["name"]),
    )
    op.create_table(
        "payloads", column("tenant"), column("hash"), column("created_at"), column("content"), primary("tenant", "hash")
    )
    op.create_table(
        "payload_keys",
        column("tenant"),
        column("key"),
        column("hash"),
        column("updated_at"),
        primary("tenant", "key"),
        within("payloads", ["hash"], ["hash"]),
    )
    if op.get_bind().dialect.name == "postgresql":
        _postgresql()
    else:
        op.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        op.execute("INSERT INTO counters (name, value) VALUES ('chunk_keys', 0)")
    op.execute(
        sa.text("INSERT INTO stores (id, created_at) VALUES (:id, :now)").bindparams(
            id=str(uuid.uuid4()), now=datetime.now(UTC).isoformat()
        )
    )


def _postgresql() -> None:
    op.execute("CREATE SEQUENCE chunk_keys AS bigint")
    for table, name in (("documents", "metadata"), ("payloads", "content")):
        op.execute(f"ALTER TABLE {table} ADD COLUMN {name}_index jsonb GENERATED ALWAYS AS ({name}::jsonb) STORED")
        op.execute(f"CREATE INDEX ix_{table}_{name}_index ON {table} USING gin ({name}_index jsonb_path_ops)")
    for table in TENANT_TABLES:
        # FORCE: the application's role usually owns the tables, and an owner is exempt without it. A missing setting
        # is NULL, or '' after an earlier transaction's; no tenant has either name, so nothing is seen.
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(
            f"CREATE POLICY tenant_isolation ON {table} "
            "USING (tenant = current_setting('ctxkit.tenant', true)) "
            "WITH CHECK (tenant = current_setting('ctxkit.tenant', true))"
        )
