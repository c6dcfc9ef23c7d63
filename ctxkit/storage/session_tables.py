"""The tables of dialogues: sessions, messages, what was archived of them, and what branched from what."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, ForeignKeyConstraint, Index, Integer, Table, UniqueConstraint

from ctxkit.storage.columns import key, metadata, tenant, text, vector, within

__all__ = ["archived_messages", "message_vectors", "messages", "session_branches", "sessions"]


def _number(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default="0")


def _message() -> tuple[Any, ...]:
    return (
        tenant(),
        key("session_id"),
        Column("sequence", BigInteger, primary_key=True, autoincrement=False),
        Column("id", text, nullable=False),
        Column("role", text, nullable=False),
        Column("name", text),
        Column("tool_call_id", text),
        Column("created_at", text),
        Column("tool_calls", text, nullable=False),
        Column("content", text, nullable=False),
        # The key that `content` is encrypted with, calls included; None where both columns are plain JSON.
        Column("key_id", text),
    )


sessions = Table(
    "sessions",
    metadata,
    tenant(),
    key("id"),
    Column("last_sequence", BigInteger, nullable=False),
    Column("created_at", text, nullable=False),
    Column("updated_at", text, nullable=False),
    # Messages up to here are those of the sessions it branched from.
    _number("fork"),
    # Messages up to `deleted_through` are gone, those up to `archived_through` are archived, but the first `pinned`.
    _number("pinned"),
    _number("archived_through"),
    _number("deleted_through"),
    Column("encrypted", Integer, nullable=False, server_default="0"),
)

messages = Table(
    "messages",
    metadata,
    *_message(),
    within("sessions", ["session_id"], ["id"]),
    UniqueConstraint("tenant", "session_id", "id"),
)

# What was embedded is named by a digest: a unit that grew by a late result is embedded again.
message_vectors = Table(
    "message_vectors",
    metadata,
    tenant(),
    key("session_id"),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    key("fingerprint"),
    Column("digest", text, nullable=False),
    Column("vector", vector, nullable=False),
    within("messages", ["session_id", "sequence"], ["session_id", "sequence"]),
)

archived_messages = Table(
    "archived_messages",
    metadata,
    *_message(),
    Column("archived_at", text, nullable=False),
    within("sessions", ["session_id"], ["id"]),
    UniqueConstraint("tenant", "session_id", "id"),
)

# `lineage` is the JSON of [[session, last sequence taken from it], …], the oldest first: a read walks nothing up.
session_branches = Table(
    "session_branches",
    metadata,
    tenant(),
    key("session_id"),
    Column("parent", text, nullable=False),
    Column("replaces", text),
    Column("lineage", text, nullable=False),
    within("sessions", ["session_id"], ["id"]),
    ForeignKeyConstraint(
        ["tenant", "parent"], ["sessions.tenant", "sessions.id"], name="fk_session_branches_sessions_parent"
    ),
    Index(None, "tenant", "parent"),
)
