"""Experiments: shares and stickiness of assignments, and how often a false winner is named while somebody peeks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctxkit.evaluation.report import Bar, Report
from ctxkit.rollout.assignment import arm_at, uniform
from ctxkit.rollout.report import MISMATCH
from ctxkit.rollout.statistics import difference_variance, half_width, units_needed

__all__ = ["Cell", "false_winners", "run", "wilson"]

Values = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, int]], Values]

ALPHA = 0.05
PLANNED = 10_000
MINIMUM = 100
UNITS = 20_000
SEEDS = 40
_BLOCK = 50  # runs at once: a million units, which the cache of a processor half holds


@dataclass(frozen=True, slots=True)
class Cell:
    """Arms by weight, the control first, and the distribution of a unit's value in each arm."""

    name: str
    weights: tuple[float, ...]
    draws: tuple[Draw, ...]
    planned: int = PLANNED


def rate(p: float) -> Draw:
    """Successes with probability p."""
    return lambda rng, shape: (rng.random(shape) < p).astype(np.float64)


def exponential(rng: np.random.Generator, shape: tuple[int, int]) -> Values:
    return rng.exponential(1.0, shape)


def lognormal(rng: np.random.Generator, shape: tuple[int, int]) -> Values:
    """Like seconds or costs with a long tail: the mean is three times the median."""
    return rng.lognormal(0.0, 1.5, shape)


def same(name: str, weights: Sequence[float], draw: Draw, planned: int = PLANNED) -> Cell:
    """An experiment in which all arms are equal: every winner is a false one."""
    return Cell(name, tuple(weights), (draw,) * len(weights), planned)


Rule = Callable[..., Any]


def ours(n_a: Any, m_a: Any, v_a: Any, n_b: Any, m_b: Any, v_b: Any, *, progress: Any, alpha: float) -> Any:
    """The interval's half width that ships."""
    return half_width(difference_variance(n_a, m_a, v_a, n_b, m_b, v_b), progress, alpha)


def apart(n_a: Any, m_a: Any, v_a: Any, n_b: Any, m_b: Any, v_b: Any, *, progress: Any, alpha: float) -> Any:
    """The same mixture over the usual variance of a difference."""
    return half_width(v_a / n_a + v_b / n_b, progress, alpha)


def fixed(n_a: Any, m_a: Any, v_a: Any, n_b: Any, m_b: Any, v_b: Any, *, progress: Any, alpha: float) -> Any:
    """The interval of a test that was meant to be read once."""
    from statistics import NormalDist

    return NormalDist().inv_cdf(1 - alpha / 2) * np.sqrt(v_a / n_a + v_b / n_b)


RULES: Mapping[str, Rule] = {"ctxkit": ours, "variance apart": apart, "fixed horizon": fixed}


def false_winners(
    cell: Cell,
    *,
    runs: int,
    units: int = UNITS,
    rules: Mapping[str, Rule] = RULES,
    truth: Sequence[float] | None = None,
    seed: int = 0,
) -> dict[str, int]:
    """In how many runs each rule ever excludes the true difference, looking after every unit.

    Args:
        truth: the true difference of each treatment from the control; none, for equal arms, is 0.
    """
    rng = np.random.default_rng(seed)
    wrong = dict.fromkeys(rules, 0)
    steps = np.arange(1, units + 1, dtype=np.float64)
    alpha = ALPHA / (len(cell.weights) - 1)
    edges = np.cumsum(cell.weights)[:-1]
    for start in range(0, runs, _BLOCK):
        shape = (min(_BLOCK, runs - start), units)
        arm = np.searchsorted(edges, rng.random(shape))
        moments = [_moments(arm == index, draw(rng, shape), steps) for index, draw in enumerate(cell.draws)]
        ever = {name: np.zeros(shape[0], dtype=bool) for name in rules}
        for index, treatment in enumerate(moments[1:], 1):
            control = moments[0]
            share = cell.weights[0] + cell.weights[index]
            enough = (control[0] >= MINIMUM) & (treatment[0] >= MINIMUM)
            off = np.abs(treatment[1] - control[1] - (truth[index - 1] if truth else 0.0))
            with np.errstate(all="ignore"):
                progress = (control[0] + treatment[0]) / (cell.planned * share)
                for name, rule in rules.items():
                    width = rule(*control, *treatment, progress=progress, alpha=alpha)
                    ever[name] |= (enough & (off > width) & (width > 0)).any(axis=1)
        for name in rules:
            wrong[name] += int(ever[name].sum())
    return wrong


def _moments(mine: NDArray[np.bool_], values: Values, steps: Values) -> tuple[Values, Values, Values]:
    """Count, mean and variance of an arm after each unit."""
    count = np.cumsum(mine, axis=1, dtype=np.float64)
    total = np.cumsum(np.where(mine, values, 0.0), axis=1)
    squares = np.cumsum(np.where(mine, values * values, 0.0), axis=1)
    with np.errstate(all="ignore"):
        mean = total / count
        return count, mean, (squares - count * mean**2) / (count - 1)


def wilson(hits: int, runs: int) -> tuple[float, float]:
    """The 95 % interval of a simulated rate (Wilson 1927): the runs are counted once, so a fixed horizon is right."""
    z2 = 1.959964**2
    middle = (hits + z2 / 2) / (runs + z2)
    half = math.sqrt(hits * (runs - hits) / runs + z2 / 4) * math.sqrt(z2) / (runs + z2)
    return middle - half, middle + half


def run(data: Path, *, runs: int = 2000, units: int = 100_000) -> Report:
    """About three minutes on one core. No data is read: everything is simulated with fixed seeds.

    Args:
        runs: simulated experiments of each kind.
        units: assigned by hash to measure the shares.
    """
    report = Report("experiments", f"{units:,} units; {runs:,} runs of {UNITS:,} units, looked at after every unit")
    _assignments(report, units)
    _winners(report, runs)
    _coverage(report, runs)
    _ratio(report, runs)
    _power(report, runs)
    return report


def _assignments(report: Report, units: int) -> None:
    names = [f"session-{number}" for number in range(units)]
    positions = {seed: [uniform("default", seed, name) for name in names] for seed in map(str, range(SEEDS))}
    shares = {
        "50/50": {"a": 0.5, "b": 0.5},
        "90/10": {"a": 0.9, "b": 0.1},
        "three equal": {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3},
    }
    typical = 0.0
    for label, weights in shares.items():
        off = []
        for placed in positions.values():
            arms = [arm_at(position, weights, 1.0) for position in placed]
            off.append(100 * max(abs(arms.count(arm) / units - weight) for arm, weight in weights.items()))
        most = float(np.quantile(off, 0.95))
        typical = max(typical, most)
        # A hash is as good as a fair draw and no better: an unlucky seed in a few hundred misses by more.
        report.rows.append({"measured": f"error of a share, %: {label}, 95 % of {SEEDS} seeds below", "ctxkit": most})
        report.rows.append({"measured": f"error of a share, %: {label}, the worst seed", "ctxkit": max(off)})
    report.bars.append(Bar.at_most(f"error of a share, %, 95 % of {SEEDS} seeds", typical, 0.5))

    weights = {"a": 0.3, "b": 0.5, "c": 0.2}
    moved = 0
    for placed in positions.values():
        before: list[str | None] = [None] * units
        for coverage in (0.01, 0.05, 0.5, 1.0):
            after = [arm_at(position, weights, coverage) for position in placed]
            moved += sum(old is not None and old != new for old, new in zip(before, after, strict=True))
            before = after
    report.rows.append({"measured": f"units moved by coverage 1, 5, 50, 100 %, {SEEDS} seeds", "ctxkit": moved})
    report.bars.append(Bar.at_most("units moved by coverage", moved, 0))

    least = 1.0
    pairs = list(itertools.combinations(positions.values(), 2))
    for first, second in pairs:
        table = np.zeros((2, 2))
        np.add.at(table, ((np.array(first) >= 0.5).astype(int), (np.array(second) >= 0.5).astype(int)), 1)
        expected = table.sum(1, keepdims=True) * table.sum(0) / units
        least = min(least, math.erfc(math.sqrt(((table - expected) ** 2 / expected).sum() / 2)))  # chi-square, 1 df
    report.rows.append({"measured": f"independence of two experiments, least p of {len(pairs)} pairs", "ctxkit": least})
    report.bars.append(Bar.at_least(f"independence, least p of {len(pairs)}", least, 0.01 / len(pairs)))


CELLS = (
    same("A/A 50/50, rate 50 %", (0.5, 0.5), rate(0.5)),
    same("A/A 50/50, rate 5 %", (0.5, 0.5), rate(0.05)),
    same("A/A 50/50, rate 0.2 %", (0.5, 0.5), rate(0.002)),
    same("A/A 90/10, rate 50 %", (0.9, 0.1), rate(0.5)),
    same("A/A 90/10, rate 5 %", (0.9, 0.1), rate(0.05)),
    same("A/A 10/90, rate 95 %", (0.1, 0.9), rate(0.95)),
    same("A/A 90/10, rate 1 %", (0.9, 0.1), rate(0.01)),
    same("A/A 99/1, rate 0.2 %", (0.99, 0.01), rate(0.002)),
    same("A/A 90/10, rate 5 %, planned for 1,000", (0.9, 0.1), rate(0.05), planned=1000),
    same("A/A 50/50, rate 1 %, planned for 1,000", (0.5, 0.5), rate(0.01), planned=1000),
    same("A/A/A equal, rate 20 %", (1 / 3,) * 3, rate(0.2)),
    same("A/A/A 80/10/10, rate 5 %", (0.8, 0.1, 0.1), rate(0.05)),
    same("A/A 90/10, exponential", (0.9, 0.1), exponential),
    same("A/A 90/10, lognormal, sigma 1.5", (0.9, 0.1), lognormal),
)


def _winners(report: Report, runs: int) -> None:
    worst = 0.0
    for cell in CELLS:
        hits = false_winners(cell, runs=runs)
        low, high = wilson(hits["ctxkit"], runs)
        worst = max(worst, high)
        report.rows.append(
            {
                "measured": f"false winners, %: {cell.name}",
                "ctxkit": 100 * hits["ctxkit"] / runs,
                "from": 100 * low,
                "to": 100 * high,
                **{name: 100 * hits[name] / runs for name in hits if name != "ctxkit"},
            }
        )
    report.bars.append(Bar.at_most("false winners, %, upper end of the worst", 100 * worst, 5))


def _coverage(report: Report, runs: int) -> None:
    worst = 0.0
    for name, weights, low_rate, high_rate in (
        ("50/50, 20 and 25 %", (0.5, 0.5), 0.2, 0.25),
        ("90/10, 5 and 20 %", (0.9, 0.1), 0.05, 0.2),
        ("90/10, 20 and 5 %", (0.9, 0.1), 0.2, 0.05),
        ("90/10, 50 and 98 %", (0.9, 0.1), 0.5, 0.98),
    ):
        cell = Cell(name, weights, (rate(low_rate), rate(high_rate)))
        missed = false_winners(cell, runs=runs, rules={"ctxkit": ours}, truth=[high_rate - low_rate], seed=1)["ctxkit"]
        low, high = wilson(missed, runs)
        worst = max(worst, high)
        report.rows.append(
            {
                "measured": f"interval ever misses the difference, %: {name}",
                "ctxkit": 100 * missed / runs,
                "from": 100 * low,
                "to": 100 * high,
            }
        )
    report.bars.append(Bar.at_most("missed differences, %, upper end of the worst", 100 * worst, 5))


def mismatches(weights: tuple[float, float], seen: float, *, runs: int, units: int, seed: int = 0) -> list[int | None]:
    """After how many units each run calls its sample ratio wrong; the first arm is seen with probability `seen`."""
    rng = np.random.default_rng(seed)
    found: list[int | None] = []
    for start in range(0, runs, _BLOCK):
        first = rng.random((min(_BLOCK, runs - start), units)) < seen
        # The mixture's e-value, one unit after another: what each unit was predicted with over what it was drawn with.
        before = np.arange(units)
        count: Values = np.cumsum(first, axis=1) - first.astype(np.float64)
        share = np.where(first, weights[0], weights[1])
        mine = np.where(first, count, before - count)
        evidence = np.cumsum(np.log((100 * share + mine) / (100 + before) / share), axis=1)
        over = evidence >= MISMATCH
        found += [int(row.argmax()) + 1 if row.any() else None for row in over]
    return found


def _ratio(report: Report, runs: int) -> None:
    false = sum(found is not None for found in mismatches((0.5, 0.5), 0.5, runs=runs, units=UNITS))
    report.rows.append({"measured": "false sample ratio mismatches, %", "ctxkit": 100 * false / runs})
    for seen in (0.55, 0.52):
        found = mismatches((0.5, 0.5), seen, runs=max(50, runs // 10), units=5 * UNITS, seed=2)
        units = sorted(each or 10**9 for each in found)
        report.rows.append(
            {
                "measured": f"units until 50/50 seen as {100 * seen:g} % is found, median",
                "ctxkit": units[len(units) // 2],
            }
        )
    report.bars.append(Bar.at_most("false sample ratio mismatches, %", 100 * false / runs, 0.5))


def _power(report: Report, runs: int) -> None:
    least = 1.0
    for base in (0.5, 0.2):
        lifted = base * 1.1
        units = units_needed(
            lifted - base,
            variances=(base * (1 - base), lifted * (1 - lifted)),
            weights=(0.5, 0.5),
            planned=PLANNED,
            alpha=ALPHA,
        )
        cell = Cell("", (0.5, 0.5), (rate(base), rate(lifted)))
        tries = max(100, runs // 4)
        found = false_winners(cell, runs=tries, units=int(units or 0), rules={"ctxkit": ours}, seed=3)["ctxkit"] / tries
        least = min(least, found)
        report.rows.append(
            {"measured": f"a lift of 10 % of {100 * base:g} % is found in {units:,} units, %", "ctxkit": 100 * found}
        )
    report.bars.append(Bar.at_least("power at the expected units, %", 100 * least, 75))
