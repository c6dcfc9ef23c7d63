"""The tables of experiments: their definitions, who takes part, and what came out."""

from __future__ import annotations

from sqlalchemy import Column, Double, Table, UniqueConstraint

from ctxkit.storage.columns import key, metadata, tenant, text, within

__all__ = ["experiment_metrics", "experiment_outcomes", "experiment_units", "experiments"]

experiments = Table(
    "experiments",
    metadata,
    tenant(),
    key("name"),
    Column("seed", text, nullable=False),
    Column("coverage", Double, nullable=False),
    Column("started_at", text, nullable=False),
    Column("stopped_at", text),
    Column("winner", text),
    Column("reason", text, nullable=False),
    Column("definition", text, nullable=False),
    # Two experiments of one seed would give every unit the same place in both.
    UniqueConstraint("tenant", "seed"),
)

experiment_units = Table(
    "experiment_units",
    metadata,
    tenant(),
    key("experiment"),
    key("unit"),
    Column("arm", text, nullable=False),
    Column("exposed_at", text, nullable=False),
    within("experiments", ["experiment"], ["name"]),
)

experiment_metrics = Table(
    "experiment_metrics",
    metadata,
    tenant(),
    key("experiment"),
    key("metric"),
    Column("kind", text, nullable=False),
    within("experiments", ["experiment"], ["name"]),
)

experiment_outcomes = Table(
    "experiment_outcomes",
    metadata,
    tenant(),
    key("experiment"),
    key("metric"),
    key("unit"),
    key("id"),
    Column("value", Double, nullable=False),
    Column("recorded_at", text, nullable=False),
    within("experiment_metrics", ["experiment", "metric"], ["experiment", "metric"]),
    within("experiment_units", ["experiment", "unit"], ["experiment", "unit"]),
)
