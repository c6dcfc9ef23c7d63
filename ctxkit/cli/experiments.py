"""`ctxkit experiments start|status|assign|record|cover|stop`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from ctxkit.cli.opening import open_engine
from ctxkit.cli.output import JsonOption, StoreOption, TenantOption, emit, say, table
from ctxkit.errors import ConfigError

if TYPE_CHECKING:
    from ctxkit.rollout import ExperimentReport, ExperimentState, MetricReport

__all__ = ["app"]

app = typer.Typer(help="A/B experiments over template versions and settings.", no_args_is_help=True)

NAME = typer.Argument(..., help="The experiment's name.")
UNIT = typer.Argument(..., help="What is assigned: a session's name.")


@app.command()
def start(
    name: str = NAME,
    arm: list[str] = typer.Option(
        ..., help="ARM=TEMPLATE or ARM=JSON, with :PERCENT or for equal shares without; repeat for each arm."
    ),
    control: str = typer.Option("control", help="The arm of everybody who does not take part."),
    coverage: str = typer.Option("100%", help="How many units take part: 10% or 0.1."),
    metric: str = typer.Option("success", help="The outcome that decides."),
    goal: str = typer.Option("higher", help="Which is better: higher or lower."),
    minimum: int = typer.Option(100, help="Units with an outcome that each arm needs before a verdict."),
    planned: int = typer.Option(10_000, help="About how many units are expected; intervals are tightest there."),
    seed: str | None = typer.Option(None, help="The seed of the assignment. [default: a new one]"),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Start an experiment. Templates are pinned to their versions.

    Example: ctxkit experiments start brief --arm control=answer@2:50 --arm brief=answer@3:50 --coverage 10%
    """
    from ctxkit.rollout import Experiment

    given: dict[str, Any] = {} if seed is None else {"seed": seed}
    experiment = Experiment(
        name=name,
        arms=_arms(arm),
        control=control,
        coverage=_share(coverage, "coverage"),
        metric=metric,
        goal=goal,
        minimum=minimum,
        planned=planned,
        **given,
    )
    with open_engine(store, tenant) as engine:
        state = engine.experiments.start(experiment)
    if as_json:
        emit(_state(state))
        return
    say(f"{name} runs, seed {state.experiment.seed}, coverage {state.experiment.coverage * 100:g} %")
    say(table(_arm_rows(state)))


@app.command()
def status(
    name: str | None = typer.Argument(None, help="The experiment's name; without one, all are listed."),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Show what an experiment has found so far. It may be read as often as one likes.

    Example: ctxkit experiments status brief
    """
    with open_engine(store, tenant) as engine:
        if name is None:
            states = engine.experiments.list()
            emit([_state(state) for state in states]) if as_json else say(table([_summary(state) for state in states]))
            return
        state, report = engine.experiments.get(name), engine.experiments.report(name)
    if as_json:
        emit({**_state(state), "report": report.to_json()})
        return
    _show(state, report)


@app.command()
def assign(
    name: str = NAME,
    unit: str = UNIT,
    expose: bool = typer.Option(False, "--expose", help="Put it on record, so that outcomes count."),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Show which arm a unit gets; with --expose it is on record, as after an application's own assign().

    Example: ctxkit experiments assign brief alice --expose
    """
    with open_engine(store, tenant) as engine:
        found = (engine.experiments.assign if expose else engine.experiments.preview)(name, unit)
    part = "takes part" if found.exposed else "takes no part"
    emit(asdict(found)) if as_json else say(f"{unit}: {found.arm} ({part})  {_setting(found.setting)}")


@app.command(context_settings={"ignore_unknown_options": True})  # else -1.5 is taken for an option
def record(
    name: str = NAME,
    unit: str = UNIT,
    value: str = typer.Argument(..., help="success, failure, or a number."),
    metric: str | None = typer.Option(None, help="The metric. [default: the one that decides]"),
    outcome_id: str = typer.Option("", "--id", help="Tells several outcomes of one unit apart."),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Record an outcome of a unit that takes part. Recording the same one again changes nothing.

    Example: ctxkit experiments record brief alice success
    """
    with open_engine(store, tenant) as engine:
        said = engine.experiments.record(name, unit, _outcome(value), metric=metric, id=outcome_id)
    emit({"name": name, "unit": unit, "outcome": said}) if as_json else say(f"{unit}: {said}")


@app.command()
def cover(
    name: str = NAME,
    coverage: str = typer.Argument(..., help="How many units take part: 50% or 0.5."),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Change how many units take part. Whoever takes part already keeps the arm.

    Example: ctxkit experiments cover brief 50%
    """
    with open_engine(store, tenant) as engine:
        state = engine.experiments.cover(name, _share(coverage, "coverage"))
    emit(_state(state)) if as_json else say(f"{name}: coverage {state.experiment.coverage * 100:g} %")


@app.command()
def stop(
    name: str = NAME,
    winner: str | None = typer.Option(None, help="The arm that won, for the record; no label moves."),
    reason: str = typer.Option("", help="Why, for the record."),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """End an experiment: everybody gets the control, and nothing more is recorded.

    Example: ctxkit experiments stop brief --winner brief
    """
    with open_engine(store, tenant) as engine:
        state = engine.experiments.stop(name, winner=winner, reason=reason)
    if as_json:
        emit(_state(state))
        return
    said = f"; winner on record: {winner}" if winner else ""
    say(f"{name} is stopped, everybody gets {state.experiment.control}{said}")


def _arms(values: Sequence[str]) -> dict[str, Any]:
    from ctxkit.rollout import Arm

    found: dict[str, Any] = {}
    for value in values:
        arm, separator, text = value.partition("=")
        if not separator or not arm or not text:
            remedy = "Write --arm NAME=TEMPLATE:PERCENT, such as brief=answer@3:50."
            raise ConfigError("an arm needs a name and a setting", subject=value, remedy=remedy)
        if arm in found:
            raise ConfigError("two arms have this name", subject=arm, remedy="Give each arm a name of its own.")
        weight = None
        # A weight is at most 100, so the digits of a hash or the end of a JSON object are not taken for one.
        if match := re.fullmatch(r"(.+):(\d{1,3}(?:\.\d+)?)%?", text, re.DOTALL):
            text, weight = match[1], float(match[2]) / 100
        found[arm] = Arm(_parsed(text, arm), weight)
    return found


def _parsed(text: str, arm: str) -> Any:
    """A setting as JSON where it is an object, a list or a number; else it is a template's reference."""
    if text[0] not in "{[-0123456789":
        return text
    from ctxkit.storage import parse_json

    return parse_json(text, what=f"the setting of arm {arm}")


def _share(text: str, what: str) -> float:
    number = text.strip().removesuffix("%")
    try:
        value = float(number)
    except ValueError as error:
        raise ConfigError(f"{what} is not a number", subject=text, remedy="Write 10% or 0.1.") from error
    return value / 100 if text.strip().endswith("%") else value


def _outcome(text: str) -> bool | float:
    known = {"success": True, "true": True, "failure": False, "false": False}
    if text.lower() in known:
        return known[text.lower()]
    try:
        return float(text)
    except ValueError as error:
        raise ConfigError("not an outcome", subject=text, remedy="Give success, failure, or a number.") from error


def _state(state: ExperimentState) -> dict[str, Any]:
    stopped = state.stopped_at.isoformat() if state.stopped_at else None
    return {
        **state.experiment.to_json(),
        "running": state.running,
        "started_at": state.started_at.isoformat(),
        "stopped_at": stopped,
        "winner": state.winner,
        "reason": state.reason,
    }


def _summary(state: ExperimentState) -> dict[str, Any]:
    return {
        "name": state.experiment.name,
        "status": "running" if state.running else "stopped",
        "coverage": f"{state.experiment.coverage * 100:g} %",
        "arms": ", ".join(state.experiment.arms),
        "metric": state.experiment.metric,
        "started": state.started_at,
        "winner": state.winner or "",
    }


def _arm_rows(state: ExperimentState) -> list[dict[str, Any]]:
    return [
        {"arm": name, "share": f"{(arm.weight or 0) * 100:.4g} %", "setting": _setting(arm.setting)}
        for name, arm in state.experiment.arms.items()
    ]


def _setting(setting: Any) -> str:
    return setting if isinstance(setting, str) else json.dumps(setting, ensure_ascii=False)


def _show(state: ExperimentState, report: ExperimentReport) -> None:
    experiment = state.experiment
    told = "running" if state.running else "stopped" + (f", winner on record: {state.winner}" if state.winner else "")
    say(f"{experiment.name}: {told}; coverage {experiment.coverage * 100:g} %, seed {experiment.seed}")
    say(table(_arm_rows(state)))
    say(f"\nverdict: {report.verdict.upper()}. {report.reason}")
    if report.units_needed is not None:
        say(f"About {report.units_needed:,} units in all show a change of 10 % with 80 % probability.")
    for metric in report.metrics:
        say()
        say(f"{metric.metric} ({'successes' if metric.kind == 'rate' else 'mean'})")
        say(table(_metric_rows(metric)))


def _metric_rows(metric: MetricReport) -> list[dict[str, Any]]:
    def between(interval: tuple[float, float] | None, sign: str = "") -> str:
        return "" if interval is None else f"{interval[0]:{sign}.4g} to {interval[1]:{sign}.4g}"

    return [
        {
            "arm": arm.arm,
            "exposed": arm.exposed,
            "with outcome": arm.units,
            "estimate": "" if arm.estimate is None else f"{arm.estimate:.4g}",
            "interval": between(arm.interval),
            "difference": "" if arm.difference is None else f"{arm.difference:+.4g}",
            "its interval": between(arm.difference_interval, "+"),
        }
        for arm in metric.arms
    ]
