"""Experiments: definitions, the units that take part, metrics and outcomes."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

TABLES = ("experiments", "experiment_units", "experiment_metrics", "experiment_outcomes")

text = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def column(name: str, type_: Any = text, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, type_, nullable=nullable)


def within(table: str, columns: list[str], target: list[str]) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["tenant", *columns], [f"{table}.tenant", *(f"{table}.{name}" for name in target)], ondelete="CASCADE"
    )


def upgrade() -> None:
    op.create_table(
        "experiments",
        column("tenant"),
        column("name"),
        column("seed"),
        column("coverage", sa.Double),
        column("started_at"),
        column("stopped_at", nullable=True),
        column("winner", nullable=True),
        column("reason"),
        column("definition"),
        sa.PrimaryKeyConstraint("tenant", "name"),
        sa.UniqueConstraint("tenant", "seed"),
    )
    op.create_table(
        "experiment_units",
        column("tenant"),
        column("experiment"),
        column("unit"),
        column("arm"),
        column("exposed_at"),
        sa.PrimaryKeyConstraint("tenant", "experiment", "unit"),
        within("experiments", ["experiment"], ["name"]),
    )
    op.create_table(
        "experiment_metrics",
        column("tenant"),
        column("experiment"),
        column("metric"),
        column("kind"),
        sa.PrimaryKeyConstraint("tenant", "experiment", "metric"),
        within("experiments", ["experiment"], ["name"]),
    )
    op.create_table(
        "experiment_outcomes",
        column("tenant"),
        column("experiment"),
        column("metric"),
        column("unit"),
        column("id"),
        column("value", sa.Double),
        column("recorded_at"),
        sa.PrimaryKeyConstraint("tenant", "experiment", "metric", "unit", "id"),
        within("experiment_metrics", ["experiment", "metric"], ["experiment", "metric"]),
        within("experiment_units", ["experiment", "unit"], ["experiment", "unit"]),
    )
    if op.get_bind().dialect.name == "postgresql":
        for table in TABLES:
            op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
            op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
            op.execute(
                f"CREATE POLICY tenant_isolation ON {table} "
                "USING (tenant = current_setting('ctxkit.tenant', true)) "
                "WITH CHECK (tenant = current_setting('ctxkit.tenant', true))"
            )
