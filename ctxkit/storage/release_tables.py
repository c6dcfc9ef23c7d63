"""The tables of releases: who moved what in the registry, versions of payloads, and the prompts that were recorded."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, Table, UniqueConstraint

from ctxkit.storage.columns import key, metadata, tenant, text, within

__all__ = [
    "blobs",
    "label_protections",
    "payload_versions",
    "run_blobs",
    "runs",
    "template_epochs",
    "template_events",
    "template_includes",
]

label_protections = Table(
    "label_protections",
    metadata,
    tenant(),
    key("name"),
    key("label"),
    Column("protected_at", text, nullable=False),
    Column("author", text, nullable=False),
    Column("message", text, nullable=False),
    within("templates", ["name"], ["name"]),
)

# What happened to a template but moves of its labels: `action` is protect, unprotect, archive or unarchive.
template_events = Table(
    "template_events",
    metadata,
    tenant(),
    key("name"),
    Column("ordinal", Integer, primary_key=True, autoincrement=False),
    Column("action", text, nullable=False),
    Column("label", text),
    Column("version", Integer),
    Column("author", text, nullable=False),
    Column("message", text, nullable=False),
    Column("happened_at", text, nullable=False),
    within("templates", ["name"], ["name"]),
)

template_epochs = Table("template_epochs", metadata, tenant(), Column("epoch", BigInteger, nullable=False))

template_includes = Table(
    "template_includes",
    metadata,
    tenant(),
    key("name"),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("ordinal", Integer, primary_key=True, autoincrement=False),
    Column("included", text, nullable=False),
    Column("hash", text, nullable=False),
    within("template_versions", ["name", "version"], ["name", "version"]),
    Index(None, "tenant", "included", "hash"),
)

payload_versions = Table(
    "payload_versions",
    metadata,
    tenant(),
    key("key"),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("hash", text, nullable=False),
    Column("author", text, nullable=False),
    Column("message", text, nullable=False),
    Column("created_at", text, nullable=False),
    within("payloads", ["hash"], ["hash"]),
    UniqueConstraint("tenant", "key", "hash"),
)

# Pieces of recorded prompts by the hash of their content: what many prompts have in common is there once.
blobs = Table(
    "blobs",
    metadata,
    tenant(),
    key("hash"),
    Column("content", text, nullable=False),
)

runs = Table(
    "runs",
    metadata,
    tenant(),
    key("fingerprint"),
    Column("created_at", text, nullable=False),
    Column("updated_at", text, nullable=False),
    Column("session", text),
    Column("template", text, nullable=False),
    Column("question", text, nullable=False),
    Column("content", text, nullable=False),
    Index(None, "tenant", "updated_at"),
)

run_blobs = Table(
    "run_blobs",
    metadata,
    tenant(),
    key("fingerprint"),
    key("hash"),
    within("runs", ["fingerprint"], ["fingerprint"]),
    within("blobs", ["hash"], ["hash"], on_delete=None),
    Index(None, "tenant", "hash"),
)
