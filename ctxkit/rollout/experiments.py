"""The experiments of a tenant: start, assign, record, report, stop."""

from __future__ import annotations

import asyncio
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ctxkit.checking import check_kind, check_number, shown
from ctxkit.errors import ConfigError
from ctxkit.rollout.assignment import arm_at, uniform
from ctxkit.rollout.experiment import Assignment, Experiment, check_coverage, check_named, template_of

if TYPE_CHECKING:
    from ctxkit.rollout.report import ExperimentReport
    from ctxkit.storage import Store
    from ctxkit.storage.experiments import ExperimentRecord, Recorded

__all__ = ["ExperimentState", "Experiments"]


@dataclass(frozen=True, slots=True)
class ExperimentState:
    """An experiment with its present coverage, and when it ran. `winner` and `reason` are what `stop` was told."""

    experiment: Experiment
    started_at: datetime
    stopped_at: datetime | None = None
    winner: str | None = None
    reason: str = ""

    @property
    def running(self) -> bool:
        return self.stopped_at is None


class Experiments:
    """The experiments of one tenant: `engine.experiments`. Safe to use from several threads and processes.

    Example:
        >>> from ctxkit.storage import Store
        >>> experiments = Experiments(Store.open("sqlite://"))
        >>> started = experiments.start(
        ...     Experiment(name="wide", arms={"control": {"candidates": 20}, "wide": {"candidates": 40}}, seed="s1")
        ... )
        >>> experiments.assign("wide", "alice")
        Assignment(arm='wide', setting={'candidates': 40}, exposed=True)
        >>> experiments.record("wide", "alice", True)
        'recorded'
        >>> experiments.report("wide").verdict
        'not enough data'
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    def start(self, experiment: Experiment) -> ExperimentState:
        """Start an experiment. Every template is looked up and pinned to its version, so that no label moves an arm.

        Raises:
            ConflictError: its name or its seed is taken.
            NotFoundError: a template does not exist.
        """
        check_kind(experiment, Experiment, "the experiment", remedy="Give an Experiment.")
        for name, arm in experiment.arms.items():
            reference = template_of(arm.setting)
            if reference is not None:
                pinned = self._pinned(reference)
                setting = {**arm.setting, "template": pinned} if isinstance(arm.setting, Mapping) else pinned
                experiment = experiment.with_setting(name, setting)
        definition = experiment.to_json()
        return _state(self.store.experiments.create(experiment.name, experiment.seed, experiment.coverage, definition))

    def _pinned(self, reference: str) -> str:
        from ctxkit.templates import TemplateRegistry

        template = TemplateRegistry(self.store).get(reference)
        return f"{template.name}@{template.version}"

    def get(self, name: str) -> ExperimentState:
        """Raises `NotFoundError`."""
        return _state(self.store.experiments.get(name))

    def list(self) -> list[ExperimentState]:
        """All of them, oldest first."""
        return [_state(record) for record in self.store.experiments.list()]

    def cover(self, name: str, coverage: float) -> ExperimentState:
        """Let another share of the units take part. Whoever takes part already keeps the arm, up or down.

        Raises:
            ConflictError: it is stopped.
        """
        return _state(self.store.experiments.set_coverage(name, check_coverage(coverage)))

    def assign(self, name: str, unit: str | None) -> Assignment:
        """The arm of a unit, such as a session's name; call it where the arm is about to be used.

        The first call puts the unit on record with its arm, which is then its arm for as long as the experiment runs.
        The control, without a record, is for a missing unit (None or empty), for one outside of the coverage, and for
        everybody once the experiment is stopped.

        Raises:
            NotFoundError: there is no such experiment.
        """
        return self._assign(name, unit, write=True)

    def preview(self, name: str, unit: str | None) -> Assignment:
        """What `assign` would give, without putting the unit on record."""
        return self._assign(name, unit, write=False)

    def _assign(self, name: str, unit: str | None, *, write: bool) -> Assignment:
        _check_unit(unit)
        if not unit:
            return _outside(_state(self.store.experiments.get(name)))
        record, arm = self.store.experiments.find(name, unit)
        state = _state(record)
        experiment = state.experiment
        if not state.running:
            return _outside(state)
        if arm is None:
            position = uniform(self.store.tenant, experiment.seed, unit)
            arm = arm_at(position, experiment.weights, experiment.coverage)
            if arm is not None and write:
                arm = self.store.experiments.expose(name, unit, arm)  # None: stopped this moment
        if arm is None:
            return _outside(state)
        return Assignment(arm, experiment.arms[arm].setting, True)

    def record(
        self,
        name: str,
        unit: str,
        value: bool | float,
        *,
        metric: str | None = None,
        id: str = "",  # noqa: A002
    ) -> Recorded:
        """Record an outcome of a unit: True or False for a success or a failure, or a number.

        Safe to repeat: an outcome is known by its metric, unit and `id`. Give ids where a unit has several outcomes of
        one metric; the report then takes their mean.

        Args:
            metric: by default the one that decides.

        Returns:
            `recorded`; `known` for one that was there; `not exposed` for a unit that takes no part, and `stopped`
            after the end: both of these are not counted, and no error, so that an application may record everything.

        Raises:
            ConfigError: the value is no finite number.
            ConflictError: the outcome is known with another value, or the metric holds the other kind of values.
        """
        kind = "rate" if isinstance(value, bool) else "mean"
        if kind == "mean":
            check_number(value, "the outcome", minimum=-1e100, maximum=1e100)  # squares stay finite
        _check_unit(unit)
        if not unit:
            return "not exposed"
        if metric is None:
            metric = _state(self.store.experiments.get(name)).experiment.metric
        check_named(metric, "the metric")
        return self.store.experiments.record(name, unit, metric, kind, float(value), id=id)

    def report(self, name: str) -> ExperimentReport:
        """What is known so far; true at every look. Reads every outcome of the experiment once."""
        from ctxkit.rollout.report import ExperimentReport, metric_report, needed, verdict

        state = self.get(name)
        experiment = state.experiment
        exposed = self.store.experiments.exposures(name)
        found = self.store.experiments.values(name)
        deciding = found.get(experiment.metric)
        kind, values = (deciding.kind, deciding.values) if deciding else ("rate", {})
        first = metric_report(experiment, experiment.metric, kind, exposed, values)
        said, winner, reason = verdict(experiment, exposed, first)
        others = tuple(
            metric_report(experiment, metric, each.kind, exposed, each.values)
            for metric, each in found.items()
            if metric != experiment.metric
        )
        return ExperimentReport(
            name=name,
            running=state.running,
            verdict=said,
            winner=winner,
            reason=reason,
            metrics=(first, *others),
            units_needed=needed(experiment, kind, values),
            stopped_with=state.winner,
        )

    def stop(self, name: str, *, winner: str | None = None, reason: str = "") -> ExperimentState:
        """End an experiment: everybody gets the control from now on, and nothing more is recorded.

        A winner is only put on record; moving a label to its template is the registry's `label`.

        Raises:
            ConfigError: the winner is none of the arms.
            ConflictError: it was stopped before with another winner or reason.
        """
        arms = self.get(name).experiment.arms
        if winner is not None and winner not in list(arms):
            raise ConfigError(
                f"the winner {shown(winner)} is none of the arms", subject=name, remedy=f"Arms: {', '.join(arms)}."
            )
        return _state(self.store.experiments.stop(name, winner=winner, reason=reason))

    # Async twins: the work is the database's, so each runs in a thread.

    async def astart(self, experiment: Experiment) -> ExperimentState:
        return await asyncio.to_thread(self.start, experiment)

    async def aget(self, name: str) -> ExperimentState:
        return await asyncio.to_thread(self.get, name)

    async def alist(self) -> Any:
        return await asyncio.to_thread(self.list)

    async def acover(self, name: str, coverage: float) -> ExperimentState:
        return await asyncio.to_thread(self.cover, name, coverage)

    async def aassign(self, name: str, unit: str | None) -> Assignment:
        return await asyncio.to_thread(self.assign, name, unit)

    async def apreview(self, name: str, unit: str | None) -> Assignment:
        return await asyncio.to_thread(self.preview, name, unit)

    async def arecord(self, name: str, unit: str, value: bool | float, **options: Any) -> Recorded:
        return await asyncio.to_thread(self.record, name, unit, value, **options)

    async def areport(self, name: str) -> ExperimentReport:
        return await asyncio.to_thread(self.report, name)

    async def astop(self, name: str, **options: Any) -> ExperimentState:
        return await asyncio.to_thread(self.stop, name, **options)


def _state(record: ExperimentRecord) -> ExperimentState:
    experiment = Experiment.from_json({**record.definition, "coverage": record.coverage})
    return ExperimentState(experiment, record.started_at, record.stopped_at, record.winner, record.reason)


def _outside(state: ExperimentState) -> Assignment:
    experiment = state.experiment
    return Assignment(experiment.control, experiment.arms[experiment.control].setting, False)


def _check_unit(unit: Any) -> None:
    if unit is not None and not isinstance(unit, str):
        remedy = f'Give its text: "{unit}".' if isinstance(unit, numbers.Number) else "Give a text, or None."
        raise ConfigError(f"the unit is a {type(unit).__name__}", subject=shown(unit), remedy=remedy)
