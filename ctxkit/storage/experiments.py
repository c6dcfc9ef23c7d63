"""Experiments: definitions, the units that take part, and outcomes, each recorded once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Select, func

from ctxkit.checking import check_number
from ctxkit.errors import ConflictError, NotFoundError
from ctxkit.storage.checks import checked_name, checked_text, decoded, encoded
from ctxkit.storage.clock import moment, now
from ctxkit.storage.database import Database
from ctxkit.storage.experiment_tables import experiment_metrics, experiment_outcomes, experiment_units, experiments
from ctxkit.storage.tenancy import Scope

__all__ = ["ExperimentRecord", "ExperimentRecords", "MetricValues", "Recorded"]

NAME_LIMIT = 128

Recorded = Literal["recorded", "known", "not exposed", "stopped"]


@dataclass(frozen=True, slots=True)
class ExperimentRecord:
    """An experiment as it is stored; `definition` is what it was started with, but for the coverage."""

    name: str
    seed: str
    coverage: float
    definition: Mapping[str, Any]
    started_at: datetime
    stopped_at: datetime | None = None
    winner: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class MetricValues:
    """The outcomes of one metric: for each arm a float64 array, one value a unit, the mean of that unit's outcomes."""

    metric: str
    kind: str
    values: Mapping[str, NDArray[np.float64]]


class ExperimentRecords:
    """The experiments of one tenant: `store.experiments`."""

    def __init__(self, database: Database, tenant: str) -> None:
        self._database = database
        self._tenant = tenant

    def create(self, name: str, seed: str, coverage: float, definition: Mapping[str, Any]) -> ExperimentRecord:
        """Store a new experiment. Raises `ConflictError` where its name or its seed is taken; nothing changes then."""
        checked_name(name, "the experiment's name", limit=NAME_LIMIT)
        checked_name(seed, "the seed")
        text = encoded(definition, f"the experiment {name!r}")
        table = experiments

        def work(scope: Scope) -> ExperimentRecord:
            row = {
                "name": name,
                "seed": seed,
                "coverage": coverage,
                "started_at": now(),
                "reason": "",
                "definition": text,
            }
            # Whichever of the two is taken, a conflict inserts nothing, and a rival's commit is waited for.
            if not scope.insert_missing(table, row):
                other = scope.first(scope.select(table.c.name).where(table.c.seed == seed))
                if other is not None and other[0] != name:
                    raise ConflictError(
                        f"the experiment {other[0]!r} has this seed",
                        subject=name,
                        remedy="Give no seed and one is drawn: with the same one, both would split the units alike.",
                    )
                raise ConflictError(
                    "there is an experiment of this name",
                    subject=name,
                    remedy="A name is used once, so that its record stays true: choose another.",
                )
            return _to_record(_existing(scope, name))

        return self._database.write(self._tenant, work)

    def get(self, name: str) -> ExperimentRecord:
        """The experiment of a name. Raises `NotFoundError`."""
        checked_text(name, "the experiment's name")
        return self._database.read(self._tenant, lambda scope: _to_record(_existing(scope, name)))

    def list(self) -> list[ExperimentRecord]:
        """The experiments, oldest first."""
        statement = (experiments.c.started_at, experiments.c.name)

        def work(scope: Scope) -> Any:
            return [_to_record(row) for row in scope.all(scope.select(experiments).order_by(*statement))]

        found: list[ExperimentRecord] = self._database.read(self._tenant, work)
        return found

    def set_coverage(self, name: str, coverage: float) -> ExperimentRecord:
        """Change the coverage. Raises `ConflictError` for a stopped experiment."""
        checked_text(name, "the experiment's name")

        def work(scope: Scope) -> ExperimentRecord:
            row = _existing(scope, name, lock="exclusive")
            if row.stopped_at is not None:
                raise ConflictError(
                    "the experiment is stopped",
                    subject=name,
                    remedy="Start another one: a stopped experiment never changes.",
                )
            mine = experiments.c.name == name
            scope.execute(scope.update(experiments).where(mine).values(coverage=coverage))
            return _to_record(_existing(scope, name))

        return self._database.write(self._tenant, work)

    def stop(self, name: str, *, winner: str | None = None, reason: str = "") -> ExperimentRecord:
        """Freeze an experiment. Doing it again with the same winner and reason changes nothing.

        Raises:
            ConflictError: it was stopped before with another winner or reason.
        """
        checked_text(name, "the experiment's name")
        checked_text(reason, "the reason")

        def work(scope: Scope) -> ExperimentRecord:
            row = _existing(scope, name, lock="exclusive")
            if row.stopped_at is None:
                values = {"stopped_at": now(), "winner": winner, "reason": reason}
                scope.execute(scope.update(experiments).where(experiments.c.name == name).values(**values))
            elif (row.winner, row.reason) != (winner, reason):
                said = f" with the winner {row.winner}" if row.winner else " without a winner"
                raise ConflictError(
                    f"the experiment is stopped already,{said}",
                    subject=name,
                    remedy="A stopped experiment never changes.",
                )
            return _to_record(_existing(scope, name))

        return self._database.write(self._tenant, work)

    def find(self, name: str, unit: str) -> tuple[ExperimentRecord, str | None]:
        """The experiment, and the arm that the unit has in it."""
        checked_text(name, "the experiment's name")
        checked_name(unit, "the unit")

        def work(scope: Scope) -> tuple[ExperimentRecord, str | None]:
            return _to_record(_existing(scope, name)), _arm(scope, name, unit)

        return self._database.read(self._tenant, work)

    def expose(self, name: str, unit: str, arm: str) -> str | None:
        """Give the unit this arm unless it has one, and say which it has; None where the experiment is stopped."""
        checked_name(unit, "the unit")

        def work(scope: Scope) -> str | None:
            if _existing(scope, name, lock="shared").stopped_at is not None:
                return None
            row = {"experiment": name, "unit": unit, "arm": arm, "exposed_at": now()}
            return arm if scope.insert_missing(experiment_units, row) else _arm(scope, name, unit)

        return self._database.write(self._tenant, work)

    def record(self, name: str, unit: str, metric: str, kind: str, value: float, *, id: str = "") -> Recorded:  # noqa: A002
        """Store an outcome once.

        An outcome is known by metric, unit and id. The same one again is `known`; one of a unit that was never exposed
        is `not exposed`, one of a stopped experiment `stopped`; none of the three changes anything.

        Raises:
            ConflictError: this outcome is stored with another value, or the metric is of another kind.
            ConfigError: the value is not finite.
            NotFoundError: there is no such experiment.
        """
        checked_text(name, "the experiment's name")
        checked_name(unit, "the unit")
        checked_name(metric, "the metric", limit=NAME_LIMIT)
        check_number(value, "the outcome", minimum=-math.inf)
        if id:
            checked_name(id, "the outcome's id")
        metrics, outcomes = experiment_metrics, experiment_outcomes

        def work(scope: Scope) -> Recorded:
            stopped = _existing(scope, name, lock="shared").stopped_at is not None
            if _arm(scope, name, unit) is None:
                return "not exposed"
            mine = scope.select(outcomes.c.value).where(
                outcomes.c.experiment == name,
                outcomes.c.metric == metric,
                outcomes.c.unit == unit,
                outcomes.c.id == id,
            )
            if stopped and scope.first(mine) is None:
                return "stopped"
            if not scope.insert_missing(metrics, {"experiment": name, "metric": metric, "kind": kind}):
                mine_too = scope.select(metrics.c.kind).where(metrics.c.experiment == name, metrics.c.metric == metric)
                known = scope.first(mine_too)[0]
                if known != kind:
                    raise ConflictError(
                        f"the metric {metric!r} holds {_KINDS[known]}, not {_KINDS[kind]}",
                        subject=name,
                        remedy="Give the other kind of outcome a metric of its own.",
                    )
            row = {"experiment": name, "metric": metric, "unit": unit, "id": id, "value": value, "recorded_at": now()}
            if scope.insert_missing(outcomes, row):
                return "recorded"
            stored = float(scope.first(mine)[0])
            if stored != value:
                raise ConflictError(
                    f"this outcome is stored with the value {stored:g}, not {value:g}",
                    subject=f"{name}/{metric}/{unit}" + (f"/{id}" if id else ""),
                    remedy="An outcome never changes: give a further one of the same unit an id of its own.",
                )
            return "known"

        return self._database.write(self._tenant, work)

    def exposures(self, name: str) -> dict[str, int]:
        """How many units each arm has, for the arms that have any."""
        units = experiment_units

        def work(scope: Scope) -> dict[str, int]:
            _existing(scope, name)
            counted = scope.select(units.c.arm, func.count()).where(units.c.experiment == name).group_by(units.c.arm)
            return {str(row[0]): int(row[1]) for row in scope.all(counted)}

        return self._database.read(self._tenant, work)

    def values(self, name: str) -> dict[str, MetricValues]:
        """The outcomes by metric. Reads every outcome of the experiment once."""
        units, outcomes, metrics = experiment_units, experiment_outcomes, experiment_metrics
        joined = outcomes.join(
            units,
            (units.c.tenant == outcomes.c.tenant)
            & (units.c.experiment == outcomes.c.experiment)
            & (units.c.unit == outcomes.c.unit),
        )

        def work(scope: Scope) -> dict[str, MetricValues]:
            _existing(scope, name)
            kinds = scope.all(scope.select(metrics).where(metrics.c.experiment == name).order_by(metrics.c.metric))
            # One value a unit: outcomes of one unit are alike, and units are what was assigned at random.
            grouped: Select[Any] = (
                scope.select(outcomes.c.metric, units.c.arm, func.avg(outcomes.c.value), source=joined)
                .where(outcomes.c.experiment == name)
                .group_by(outcomes.c.metric, outcomes.c.unit, units.c.arm)
                .order_by(outcomes.c.metric, outcomes.c.unit)
            )
            found: dict[str, dict[str, list[float]]] = {row.metric: {} for row in kinds}
            for metric, arm, value in scope.all(grouped):
                found[metric].setdefault(arm, []).append(float(value))
            return {
                row.metric: MetricValues(
                    row.metric, row.kind, {arm: np.array(each) for arm, each in found[row.metric].items()}
                )
                for row in kinds
            }

        return self._database.read(self._tenant, work)


_KINDS = {"rate": "successes and failures", "mean": "numbers"}


def _existing(scope: Scope, name: str, *, lock: Literal["shared", "exclusive"] | None = None) -> Any:
    """The experiment's row. Whoever exposes or records shares it, so that `stop` waits for them and they for it."""
    statement = scope.select(experiments).where(experiments.c.name == name)
    if lock is not None and scope.kind == "postgresql":
        statement = statement.with_for_update(read=lock == "shared")
    row = scope.first(statement)
    if row is None:
        names = [
            found[0] for found in scope.all(scope.select(experiments.c.name).order_by(experiments.c.name).limit(10))
        ]
        known = f"Known: {', '.join(names)}." if names else "There are none yet: start one."
        raise NotFoundError("there is no such experiment", subject=name, remedy=known)
    return row


def _arm(scope: Scope, name: str, unit: str) -> str | None:
    units = experiment_units
    row = scope.first(scope.select(units.c.arm).where(units.c.experiment == name, units.c.unit == unit))
    return None if row is None else str(row[0])


def _to_record(row: Any) -> ExperimentRecord:
    return ExperimentRecord(
        name=row.name,
        seed=row.seed,
        coverage=row.coverage,
        definition=decoded(row.definition),
        started_at=moment(row.started_at),
        stopped_at=moment(row.stopped_at) if row.stopped_at else None,
        winner=row.winner,
        reason=row.reason,
    )
