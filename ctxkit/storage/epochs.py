"""One number a tenant that grows whenever a template's name may mean another version: what caches are checked by."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from sqlalchemy import func, select

from ctxkit.errors import StorageError
from ctxkit.storage import tables
from ctxkit.storage.database import Database
from ctxkit.storage.tenancy import Scope

__all__ = ["bump", "notifications", "read"]


def bump(scope: Scope) -> None:
    """Count a change, and tell who listens, once the transaction commits."""
    # Last in its transaction: on PostgreSQL this row is held until the commit, and every writer of a tenant needs it.
    table = tables.template_epochs
    scope.upsert(table, {"epoch": 1}, epoch=table.c.epoch + 1)
    if scope.kind == "postgresql":
        scope.execute(select(func.pg_notify(_channel(scope.tenant), "")))


def read(scope: Scope) -> int:
    """The number; 0 for a tenant without any template."""
    row = scope.first(scope.select(tables.template_epochs.c.epoch))
    return int(row[0]) if row else 0


def notifications(database: Database, tenant: str, timeout: float) -> Iterator[bool]:
    """After each change of the tenant's templates True, after `timeout` seconds without one False; never ends.

    Holds a connection of its own. Raises `StorageError` where the database is not PostgreSQL or goes away.
    """
    if database.kind != "postgresql":
        raise StorageError("SQLite sends no notifications", subject=database.shown, remedy="Poll the epoch.")
    with database.own_connection() as connection:
        connection.autocommit = True
        connection.execute(f'LISTEN "{_channel(tenant)}"')
        yield False  # from here on nothing is missed
        while True:
            yield any(True for _ in connection.notifies(timeout=timeout, stop_after=1))


def _channel(tenant: str) -> Any:
    # Channels are not under row-level security: a tenant's name must not be read off one, and none has to be escaped.
    return f"ctxkit_templates_{hashlib.sha256(tenant.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
