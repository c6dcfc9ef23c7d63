"""What an experiment shows so far, and the one verdict that may be drawn from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctxkit.rollout.experiment import Experiment
from ctxkit.rollout.statistics import (
    difference_variance,
    half_width,
    mean_interval,
    mismatch_evidence,
    rate_interval,
    units_needed,
)

__all__ = ["ArmReport", "ExperimentReport", "MetricReport", "metric_report", "verdict"]

MISMATCH = math.log(1000)
"""A sample ratio is called wrong when it is at odds of 1,000 to 1: falsely in one of 1,000 experiments at most."""

LIFT = 0.1
"""The relative change that `units_needed` of a report is about."""

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ArmReport:
    """One arm in one metric.

    Args:
        units: that have an outcome; `exposed` is how many take part.
        estimate: the mean of the units' values; for successes and failures, the rate. None without units.
        interval: a confidence sequence of the estimate, of this arm by itself.
        difference: from the control. None for the control, and below two units in either arm.
        difference_interval: a confidence sequence; all arms' hold together with probability 1 - alpha.
    """

    arm: str
    exposed: int
    units: int
    estimate: float | None = None
    interval: tuple[float, float] | None = None
    difference: float | None = None
    difference_interval: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class MetricReport:
    """A metric by arm; `kind` is `rate` (successes and failures) or `mean` (numbers)."""

    metric: str
    kind: str
    arms: tuple[ArmReport, ...]


@dataclass(frozen=True, slots=True)
class ExperimentReport:
    """What is known so far. True at every look: it may be read after each outcome.

    Args:
        verdict: `winner`, `no winner yet`, `not enough data` or `sample ratio mismatch`.
        winner: the arm, with the verdict `winner` alone.
        reason: the verdict in one sentence.
        metrics: the deciding one first. The others inform; no verdict rests on them.
        units_needed: about how many exposed units in all show a change of 10 % of the control's estimate with 80 %
            probability; None before there is an estimate, and where no number would do.
        stopped_with: the winner that was recorded when it was stopped.
    """

    name: str
    running: bool
    verdict: str
    winner: str | None
    reason: str
    metrics: tuple[MetricReport, ...]
    units_needed: int | None = None
    stopped_with: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def metric_report(
    experiment: Experiment, metric: str, kind: str, exposed: Mapping[str, int], values: Mapping[str, Values]
) -> MetricReport:
    """The arms of one metric, the control first. Linear in the values."""
    empty = np.zeros(0)
    total = sum(len(each) for each in values.values())
    control = values.get(experiment.control, empty)
    # Each treatment is compared with the control: together they may err with probability alpha (Bonferroni).
    alpha = experiment.alpha / (len(experiment.arms) - 1)
    arms = []
    for name in (experiment.control, *(arm for arm in experiment.arms if arm != experiment.control)):
        mine = values.get(name, empty)
        estimate = interval = difference = between = None
        if len(mine):
            estimate = float(mine.mean())
            if kind == "rate":
                interval = rate_interval(len(mine), estimate, experiment.alpha)
            elif len(mine) > 1:
                progress = total / experiment.planned
                interval = mean_interval(len(mine), estimate, float(mine.var(ddof=1)), progress, experiment.alpha)
        if name != experiment.control and min(len(mine), len(control)) > 1:
            difference, between = _difference(experiment, control, mine, name, alpha)
        arms.append(ArmReport(name, exposed.get(name, 0), len(mine), estimate, interval, difference, between))
    return MetricReport(metric, kind, tuple(arms))


def _difference(
    experiment: Experiment, control: Values, mine: Values, name: str, alpha: float
) -> tuple[float, tuple[float, float]]:
    moments = [(len(each), float(each.mean()), float(each.var(ddof=1))) for each in (control, mine)]
    variance = difference_variance(*moments[0], *moments[1])
    share = experiment.weights[experiment.control] + experiment.weights[name]
    progress = (len(control) + len(mine)) / (experiment.planned * share)
    width = float(half_width(variance, progress, alpha))
    difference = moments[1][1] - moments[0][1]
    return difference, (difference - width, difference + width)


def verdict(experiment: Experiment, exposed: Mapping[str, int], metric: MetricReport) -> tuple[str, str | None, str]:
    """The verdict, the winner if there is one, and the reason."""
    names = list(experiment.arms)
    counts = [exposed.get(name, 0) for name in names]
    if mismatch_evidence(counts, [experiment.weights[name] for name in names]) >= MISMATCH:
        seen = ", ".join(
            f"{name} {count / sum(counts) * 100:.1f} % for {experiment.weights[name] * 100:g} %"
            for name, count in zip(names, counts, strict=True)
        )
        return (
            "sample ratio mismatch",
            None,
            f"The arms are not seen as they were assigned ({seen}): find out first which exposures are lost.",
        )
    control, *others = metric.arms
    enough = [arm for arm in others if min(arm.units, control.units) >= experiment.minimum and _varies(arm)]
    if not enough:
        fewest = min(metric.arms, key=lambda arm: arm.units)
        if fewest.units < experiment.minimum:
            why = f"{fewest.arm} has {fewest.units:,} units with an outcome, {experiment.minimum:,} are needed"
        else:
            why = "every outcome is the same"
        return "not enough data", None, f"No verdict yet: {why}."
    sign = 1 if experiment.goal == "higher" else -1
    better = [arm for arm in enough if _low(arm, sign) > 0]
    if better:
        best = max(better, key=lambda arm: sign * (arm.difference or 0.0))
        return "winner", best.arm, f"{best.arm} beats {control.arm}: {_shown(best)}."
    if len(enough) == len(others) and all(_low(arm, -sign) > 0 for arm in others):
        shown = ", ".join(f"{arm.arm} {_shown(arm)}" for arm in others)
        return "winner", control.arm, f"{control.arm} beats every other arm: {shown}."
    return "no winner yet", None, "The intervals of the differences hold 0: the arms may be equal."


def needed(experiment: Experiment, kind: str, values: Mapping[str, Values]) -> int | None:
    """The units that `LIFT` takes between control and the arm with the smallest weight."""
    control = values.get(experiment.control, np.zeros(0))
    if len(control) < 2 or not (base := float(control.mean())):
        return None
    spread = float(control.var())
    effect = LIFT * base if experiment.goal == "higher" else -LIFT * base
    after = (base + effect) * (1 - base - effect) if kind == "rate" else spread
    if after < 0:
        return None
    weights = experiment.weights
    other = min(weight for name, weight in weights.items() if name != experiment.control)
    return units_needed(
        effect,
        variances=(spread, after),
        weights=(weights[experiment.control], other),
        planned=experiment.planned,
        alpha=experiment.alpha / (len(weights) - 1),
    )


def _varies(arm: ArmReport) -> bool:
    return arm.difference_interval is not None and arm.difference_interval[0] < arm.difference_interval[1]


def _low(arm: ArmReport, sign: int) -> float:
    """The lower end of the interval, or of its mirror image."""
    low, high = arm.difference_interval or (-math.inf, math.inf)
    return low if sign > 0 else -high


def _shown(arm: ArmReport) -> str:
    low, high = arm.difference_interval or (-math.inf, math.inf)
    return f"{arm.difference:+.4g} (between {low:+.4g} and {high:+.4g})"
