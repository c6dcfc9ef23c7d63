"""Recognises a store, makes a new one, and brings an old one up to date: once, however many processes open it.

The lock is the database's own: BEGIN IMMEDIATE on SQLite, a transaction's advisory lock on PostgreSQL. Everything a
revision does is in that one transaction, so a process killed half-way leaves the store as it was. A revision that needs
CREATE INDEX CONCURRENTLY must run it after this transaction, since it would wait for the lock's own holder.
"""

from __future__ import annotations

import threading
from pathlib import Path

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from ctxkit.errors import StorageError, StoreFormatError, StoreVersionError

__all__ = ["HEAD", "VERSION_TABLE", "bring_up_to_date", "is_current", "script_location"]

HEAD = "0008"
"""The newest revision. Kept here so that opening a current store does not import Alembic."""

VERSION_TABLE = "ctxkit_version"

_LOCK_KEY = 0x6374786B6974  # "ctxkit"
_running = threading.Lock()  # Alembic's environment is global to the process

_POSTGRESQL_TABLES = """
SELECT relname FROM pg_catalog.pg_class AS c
WHERE c.relnamespace = to_regnamespace(quote_ident(current_schema())) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_depend AS d WHERE d.objid = c.oid AND d.deptype = 'e')
"""
_SQLITE_TABLES = (
    "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
)


def script_location() -> Path:
    """The folder of Alembic's scripts."""
    return Path(__file__).parent / "migrations"


def revision_of(connection: Connection, subject: str) -> str | None:
    """The revision of a store, None for an empty database. Raises `StoreFormatError` for somebody else's."""
    postgresql = connection.dialect.name == "postgresql"
    names = {row[0] for row in connection.execute(text(_POSTGRESQL_TABLES if postgresql else _SQLITE_TABLES))}
    if not names:
        return None
    if VERSION_TABLE not in names:
        shown = ", ".join(sorted(names)[:5])
        raise StoreFormatError(
            f"this database is not a ctxkit store: it has other tables ({shown})",
            subject=subject,
            remedy="Give the store a database (or, on PostgreSQL, a schema) of its own.",
        )
    return connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608


def is_current(connection: Connection, subject: str, *, create: bool) -> bool:
    """Whether the store can be used as it is; False where `bring_up_to_date` has work to do."""
    found = revision_of(connection, subject)
    if found is None and not create:
        raise StorageError(
            "there is no store here",
            subject=subject,
            remedy="Check the address, or make one: ctxkit ingest PATH, or create=True.",
        )
    if found is not None and found != HEAD and found not in _known_revisions():
        raise StoreVersionError(
            f"the store has revision {found}, this ctxkit knows up to {HEAD}",
            subject=subject,
            remedy="Upgrade: pip install --upgrade ctxkit-sdk.",
        )
    return found == HEAD


def bring_up_to_date(connection: Connection, subject: str, *, create: bool) -> None:
    """Create or upgrade the store in the connection's open transaction, which the caller commits."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL lock_timeout = '120s'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
    # Another process may have done the work while this one waited for the lock.
    if is_current(connection, subject, create=create):
        return
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(script_location()).replace("%", "%%"))
    config.attributes["connection"] = connection
    with _running:
        try:
            command.upgrade(config, "head")
        except DBAPIError as error:
            if "vector" in str(error.orig) and "extension" in str(error.orig):
                raise StorageError(
                    f"the PostgreSQL extension pgvector cannot be enabled ({str(error.orig).strip()})",
                    subject=subject,
                    remedy="Install pgvector on the server, then let a superuser run in this database: "
                    "CREATE EXTENSION vector;",
                ) from error
            raise


def _known_revisions() -> set[str]:
    from alembic.script import ScriptDirectory

    return {script.revision for script in ScriptDirectory(str(script_location())).walk_revisions()}
