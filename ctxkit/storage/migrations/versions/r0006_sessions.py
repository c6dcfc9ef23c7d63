"""Branches of sessions, archived messages, retention, and the key that a message is encrypted with."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

TABLES = ("archived_messages", "session_branches")

text = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def column(name: str, type_: Any = text, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, type_, nullable=nullable)


def within(column_: str, *, name: str, on_delete: str | None = None) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["tenant", column_], ["sessions.tenant", "sessions.id"], name=name, ondelete=on_delete
    )


def upgrade() -> None:
    for name in ("fork", "pinned", "archived_through", "deleted_through"):
        op.add_column("sessions", sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("sessions", sa.Column("encrypted", sa.Integer, nullable=False, server_default="0"))
    op.add_column("messages", column("key_id", nullable=True))
    op.create_table(
        "archived_messages",
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
        column("key_id", nullable=True),
        column("archived_at"),
        sa.PrimaryKeyConstraint("tenant", "session_id", "sequence"),
        sa.UniqueConstraint("tenant", "session_id", "id"),
        within("session_id", name="fk_archived_messages_sessions", on_delete="CASCADE"),
    )
    op.create_table(
        "session_branches",
        column("tenant"),
        column("session_id"),
        column("parent"),
        column("replaces", nullable=True),
        column("lineage"),
        sa.PrimaryKeyConstraint("tenant", "session_id"),
        within("session_id", name="fk_session_branches_sessions", on_delete="CASCADE"),
        within("parent", name="fk_session_branches_sessions_parent"),
    )
    op.create_index("ix_session_branches_tenant_parent", "session_branches", ["tenant", "parent"])
    if op.get_bind().dialect.name == "postgresql":
        for table in TABLES:
            op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
            op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
            op.execute(
                f"CREATE POLICY tenant_isolation ON {table} "
                "USING (tenant = current_setting('ctxkit.tenant', true)) "
                "WITH CHECK (tenant = current_setting('ctxkit.tenant', true))"
            )
