"""The one query builder: every statement on a tenant's data carries the tenant's predicate (law 10).

On PostgreSQL row-level security says the same once more, for statements that somebody else writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    CursorResult,
    Delete,
    Executable,
    Select,
    Table,
    Update,
    any_,
    bindparam,
    delete,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.selectable import FromClause, Join
from sqlalchemy.sql.visitors import iterate

from ctxkit.storage.tables import TENANT_TABLES

__all__ = ["Scope"]

_GUARDED = frozenset(TENANT_TABLES)


class Scope:
    """One transaction of one tenant.

    `lock_timeout`: seconds that a statement waits for a lock on PostgreSQL; on SQLite the connection's own wait counts.
    """

    __slots__ = ("connection", "kind", "tenant")

    def __init__(self, connection: Connection, tenant: str, lock_timeout: float) -> None:
        self.connection = connection
        self.kind = connection.dialect.name
        self.tenant = tenant
        if self.kind == "postgresql":
            # true: until the end of this transaction, so that a pooled connection never carries it on.
            connection.execute(
                text("SELECT set_config('ctxkit.tenant', :tenant, true), set_config('lock_timeout', :timeout, true)"),
                {"tenant": tenant, "timeout": f"{lock_timeout * 1000:.0f}ms"},
            )

    def execute(self, statement: Executable, rows: Any = None) -> CursorResult[Any]:
        return self.connection.execute(statement, rows)

    def prepared(self, statement: Executable, **values: Any) -> CursorResult[Any]:
        """Run a statement that was built once, with its predicate: its parameter `of_tenant` is bound here."""
        return self.connection.execute(statement, {"of_tenant": self.tenant, **values})

    def select(self, *columns: Any, source: FromClause | None = None) -> Select[Any]:
        """SELECT with the predicate on every tenant's table that it reads from, joined ones included.

        A table on the optional side of an outer join is held to the tenant by the join's own condition.
        """
        statement = select(*columns)
        if source is not None:
            statement = statement.select_from(source)
        read = _tables(source) if source is not None else _tables_of(columns)
        for table in dict.fromkeys(read):
            if table in _GUARDED:
                statement = statement.where(table.c.tenant == self.tenant)
        return statement

    def all(self, statement: Select[Any]) -> Sequence[Any]:
        return self.execute(statement).all()

    def first(self, statement: Select[Any]) -> Any:
        return self.execute(statement).first()

    def update(self, table: Table) -> Update:
        return update(table).where(table.c.tenant == self.tenant)

    def delete(self, table: Table) -> Delete:
        return delete(table).where(table.c.tenant == self.tenant)

    def insert(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """One prepared statement for all rows."""
        if rows:
            self.execute(insert(table), [{"tenant": self.tenant, **row} for row in rows])

    def insert_from(self, table: Table, columns: Sequence[str], rows: Select[Any]) -> None:
        """Insert what a statement of this scope selects; the tenant is among the columns."""
        self.execute(insert(table).from_select(list(columns), rows))

    def insert_missing(self, table: Table, row: Mapping[str, Any]) -> bool:
        """Insert unless the primary key is taken; whether it was inserted."""
        build = postgresql.insert if self.kind == "postgresql" else sqlite.insert
        statement: Any = build(table).values(tenant=self.tenant, **row)
        # RETURNING, since not every driver counts the rows of an INSERT.
        return self.execute(statement.on_conflict_do_nothing().returning(table.c.tenant)).first() is not None

    def upsert(self, table: Table, row: Mapping[str, Any], **changes: Any) -> None:
        """Insert, or set `changes` where the primary key is taken."""
        build = postgresql.insert if self.kind == "postgresql" else sqlite.insert
        statement: Any = build(table).values(tenant=self.tenant, **row)
        self.execute(
            statement.on_conflict_do_update(
                index_elements=list(table.primary_key.columns), set_=changes, where=table.c.tenant == self.tenant
            )
        )

    def locked(self, statement: Select[Any]) -> Select[Any]:
        """Holds the rows until the transaction ends; on SQLite the transaction itself is the lock."""
        return statement.with_for_update() if self.kind == "postgresql" else statement

    def among(self, column: Column[Any], values: Iterable[Any]) -> ColumnElement[bool]:
        """`column IN values`, as one bound parameter however many values there are."""
        found = list(values)
        if self.kind == "postgresql":
            kind = postgresql.BIGINT if isinstance(column.type, BigInteger) else postgresql.TEXT(collation="C")
            return column == any_(bindparam(None, found, type_=postgresql.ARRAY(kind), unique=True))
        listed = func.json_each(json.dumps(found)).table_valued("value")
        return column.in_(select(listed.c.value))

    def allocate_keys(self, count: int) -> list[int]:
        """Keys that no chunk of any tenant ever had, in ascending order."""
        if self.kind == "postgresql":
            drawn = self.connection.execute(
                text("SELECT nextval('chunk_keys') FROM generate_series(1, :count)"), {"count": count}
            )
            return sorted(int(row[0]) for row in drawn)
        last = self.connection.execute(
            text("UPDATE counters SET value = value + :count WHERE name = 'chunk_keys' RETURNING value"),
            {"count": count},
        ).scalar_one()
        return list(range(last - count + 1, last + 1))


def _tables_of(columns: Iterable[Any]) -> Iterator[Any]:
    # Asking the finished statement for its tables would compile it a second time.
    for column in columns:
        if isinstance(column, Column):
            yield column.table
        elif isinstance(column, Table):
            yield column
        else:
            yield from (part.table for part in iterate(column) if isinstance(part, Column))


def _tables(part: FromClause) -> Iterator[Any]:
    if isinstance(part, Join):
        yield from _tables(part.left)
        if not part.isouter:
            yield from _tables(part.right)
    else:
        yield part
