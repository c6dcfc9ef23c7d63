"""The schema: migrations and tables agree, the tenant comes first everywhere, PostgreSQL guards each table."""

from __future__ import annotations

from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import ForeignKeyConstraint, PrimaryKeyConstraint, UniqueConstraint, inspect, text

from ctxkit.storage import Store, tables
from ctxkit.storage.migrate import HEAD, VERSION_TABLE, script_location


def test_the_head_is_the_newest_script() -> None:
    assert ScriptDirectory(str(script_location())).get_current_head() == HEAD


@pytest.mark.filterwarnings("ignore:Did not recognize type 'vector'")
def test_the_migrations_lead_to_the_tables(store: Store) -> None:
    def ours(item: Any, name: str, kind: str, reflected: bool, other: Any) -> bool:
        # PostgreSQL alone has generated columns for its GIN indexes.
        return not (reflected and other is None and str(name).endswith("_index"))

    with store._database._engine.connect() as connection:
        options = {"version_table": VERSION_TABLE, "include_object": ours, "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, tables.metadata) == []


@pytest.mark.filterwarnings("ignore:Did not recognize type 'vector'")
def test_both_databases_have_the_same_columns(sqlite_url: str, store: Store) -> None:
    def columns(which: Store) -> dict[str, list[tuple[str, bool]]]:
        found = inspect(which._database._engine)
        return {
            name: [(c["name"], c["nullable"]) for c in found.get_columns(name) if not c["name"].endswith("_index")]
            for name in found.get_table_names()
        }

    with Store.open(sqlite_url + ".other") as sqlite:
        assert columns(store) == columns(sqlite)


@pytest.mark.parametrize("table", tables.TENANT_TABLES, ids=lambda table: table.name)
def test_the_tenant_is_first_in_every_key(table: Any) -> None:
    assert table.name in {t.name for t in tables.metadata.sorted_tables}
    for constraint in table.constraints:
        if isinstance(constraint, PrimaryKeyConstraint | UniqueConstraint | ForeignKeyConstraint):
            assert next(iter(constraint.columns)).name == "tenant", constraint
        if isinstance(constraint, ForeignKeyConstraint):
            assert constraint.elements[0].column.name == "tenant"
    for index in table.indexes:
        assert next(iter(index.columns)).name == "tenant", index


def test_only_what_belongs_to_no_tenant_has_no_tenant() -> None:
    without = {table.name for table in tables.metadata.sorted_tables} - {t.name for t in tables.TENANT_TABLES}
    assert without == {"stores", "counters"}


@pytest.mark.postgres
class TestPostgreSQL:
    def test_row_level_security_is_forced_with_one_policy_on_each_table(self, postgres_url: str) -> None:
        with Store.open(postgres_url) as store, store._database._engine.connect() as connection:
            guarded = connection.execute(
                text("SELECT relname FROM pg_class WHERE relrowsecurity AND relforcerowsecurity")
            ).scalars()
            assert set(guarded) == {table.name for table in tables.TENANT_TABLES}
            policies = connection.execute(text("SELECT tablename, qual, with_check FROM pg_policies")).all()
            assert {row[0] for row in policies} == {table.name for table in tables.TENANT_TABLES}
            assert len({row[1] for row in policies}) == len({row[2] for row in policies}) == 1
            assert policies[0][1] == policies[0][2]

    def test_json_has_a_gin_index(self, postgres_url: str) -> None:
        with Store.open(postgres_url) as store, store._database._engine.connect() as connection:
            found = connection.execute(
                text("SELECT tablename FROM pg_indexes WHERE indexdef LIKE '%USING gin%jsonb_path_ops%'")
            ).scalars()
            assert set(found) == {"documents", "payloads"}

    def test_text_sorts_by_code_point_whatever_the_locale(self, postgres_url: str) -> None:
        with Store.open(postgres_url) as store, store._database._engine.connect() as connection:
            other = connection.execute(
                text(
                    "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public' "
                    "AND data_type = 'text' AND collation_name IS DISTINCT FROM 'C' AND table_name <> :version"
                ),
                {"version": VERSION_TABLE},
            ).all()
            assert other == []


class TestSQLite:
    def test_every_connection_is_configured(self, sqlite_url: str) -> None:
        with Store.open(sqlite_url) as store:
            for _ in range(3):
                with store._database._engine.connect() as connection:
                    assert connection.execute(text("PRAGMA foreign_keys")).scalar() == 1
                    assert connection.execute(text("PRAGMA busy_timeout")).scalar() == 30_000
                    assert connection.execute(text("PRAGMA synchronous")).scalar() == 2
                    assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"

    def test_the_file_says_what_it_is(self, sqlite_url: str) -> None:
        with Store.open(sqlite_url) as store, store._database._engine.connect() as connection:
            assert connection.execute(text("PRAGMA application_id")).scalar() == 0x4378746B
