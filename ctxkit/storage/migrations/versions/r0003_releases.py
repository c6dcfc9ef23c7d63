"""Releases: audit, protection and archive of templates; versions of payloads; recorded prompts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TABLES = (
    "label_protections",
    "template_events",
    "template_includes",
    "payload_versions",
    "blobs",
    "runs",
    "run_blobs",
)
FILLED = ("template_versions", "label_history", "payload_keys", "payload_versions")

text = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def column(name: str, type_: Any = text, *, nullable: bool = False, default: str | None = None) -> sa.Column[Any]:
    return sa.Column(name, type_, nullable=nullable, server_default=default)


def within(
    table: str, columns: list[str], target: list[str], *, on_delete: str | None = "CASCADE"
) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["tenant", *columns], [f"{table}.tenant", *(f"{table}.{name}" for name in target)], ondelete=on_delete
    )


def upgrade() -> None:
    # Neither database rewrites the table for a constant default.
    op.add_column("templates", column("archived_at", nullable=True))
    op.add_column("template_versions", column("author", default=""))
    op.add_column("template_versions", column("archived_at", nullable=True))
    op.add_column("template_versions", column("slots", default=""))
    op.add_column("template_versions", column("folded", default=""))
    op.add_column("label_history", column("action", default="move"))
    op.add_column("label_history", column("author", default=""))
    op.add_column("label_history", column("message", default=""))
    op.add_column("label_history", column("forced", sa.Integer, default="0"))
    op.add_column("label_history", column("origin", sa.Integer, nullable=True))
    op.add_column("payload_keys", column("version", sa.Integer, default="0"))
    op.add_column("payload_keys", column("last_version", sa.Integer, default="0"))
    op.create_table(
        "label_protections",
        column("tenant"),
        column("name"),
        column("label"),
        column("protected_at"),
        column("author"),
        column("message"),
        sa.PrimaryKeyConstraint("tenant", "name", "label"),
        within("templates", ["name"], ["name"]),
    )
    op.create_table(
        "template_events",
        column("tenant"),
        column("name"),
        column("ordinal", sa.Integer),
        column("action"),
        column("label", nullable=True),
        column("version", sa.Integer, nullable=True),
        column("author"),
        column("message"),
        column("happened_at"),
        sa.PrimaryKeyConstraint("tenant", "name", "ordinal"),
        within("templates", ["name"], ["name"]),
    )
    op.create_table(
        "template_includes",
        column("tenant"),
        column("name"),
        column("version", sa.Integer),
        column("ordinal", sa.Integer),
        column("included"),
        column("hash"),
        sa.PrimaryKeyConstraint("tenant", "name", "version", "ordinal"),
        within("template_versions", ["name", "version"], ["name", "version"]),
    )
    op.create_index("ix_template_includes_tenant_included_hash", "template_includes", ["tenant", "included", "hash"])
    op.create_table(
        "payload_versions",
        column("tenant"),
        column("key"),
        column("version", sa.Integer),
        column("hash"),
        column("author"),
        column("message"),
        column("created_at"),
        sa.PrimaryKeyConstraint("tenant", "key", "version"),
        within("payloads", ["hash"], ["hash"]),
        sa.UniqueConstraint("tenant", "key", "hash"),
    )
    op.create_table(
        "blobs", column("tenant"), column("hash"), column("content"), sa.PrimaryKeyConstraint("tenant", "hash")
    )
    op.create_table(
        "runs",
        column("tenant"),
        column("fingerprint"),
        column("created_at"),
        column("updated_at"),
        column("session", nullable=True),
        column("template"),
        column("question"),
        column("content"),
        sa.PrimaryKeyConstraint("tenant", "fingerprint"),
    )
    op.create_index("ix_runs_tenant_updated_at", "runs", ["tenant", "updated_at"])
    op.create_table(
        "run_blobs",
        column("tenant"),
        column("fingerprint"),
        column("hash"),
        sa.PrimaryKeyConstraint("tenant", "fingerprint", "hash"),
        within("runs", ["fingerprint"], ["fingerprint"]),
        within("blobs", ["hash"], ["hash"], on_delete=None),
    )
    op.create_index("ix_run_blobs_tenant_hash", "run_blobs", ["tenant", "hash"])
    guarded = op.get_bind().dialect.name == "postgresql"
    if guarded:
        for table in TABLES:
            op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
            op.execute(
                f"CREATE POLICY tenant_isolation ON {table} "
                "USING (tenant = current_setting('ctxkit.tenant', true)) "
                "WITH CHECK (tenant = current_setting('ctxkit.tenant', true))"
            )
        # A migration works for all tenants at once: until its transaction ends, the owner sees their rows.
        for table in FILLED:
            op.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
    fill()
    if guarded:
        for table in dict.fromkeys((*FILLED, *TABLES)):
            op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")


def fill() -> None:
    """What the new columns say of the rows that are there."""
    op.execute("UPDATE label_history SET origin = ordinal - 1 WHERE ordinal > 1")
    op.execute("UPDATE payload_keys SET version = 1, last_version = 1")
    op.execute(
        "INSERT INTO payload_versions (tenant, key, version, hash, author, message, created_at) "
        "SELECT tenant, key, 1, hash, '', '', updated_at FROM payload_keys"
    )
    connection = op.get_bind()
    update = sa.text(
        "UPDATE template_versions SET slots = :slots, folded = :folded "
        "WHERE tenant = :tenant AND name = :name AND version = :version"
    )
    names = connection.execute(sa.text("SELECT tenant, name, version FROM template_versions")).all()
    for tenant, name, version in names:
        found = {"tenant": tenant, "name": name, "version": version}
        content, message = connection.execute(
            sa.text(
                "SELECT content, message FROM template_versions "
                "WHERE tenant = :tenant AND name = :name AND version = :version"
            ),
            found,
        ).one()
        value = json.loads(content)
        texts = [message, *leaves(value)]
        slots = {match for text in texts for match in re.findall(r"\{\{\s*[#^]?\s*([^\W\d]\w*)", text)}
        slots |= set(value["slots"]) if isinstance(value.get("slots"), dict) else set()
        folded = "\n".join(texts).casefold()
        connection.execute(update, {**found, "slots": "\n".join(sorted(slots)).casefold(), "folded": folded})


def leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, item in value.items():
            if name != "role":
                yield from leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)
