"""What an experiment's report says: verdicts, intervals, how many units a change takes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxkit.evaluation.benchmarks.experiments import MINIMUM, ours
from ctxkit.rollout import Arm, Experiments
from ctxkit.rollout.report import metric_report, needed, verdict
from ctxkit.storage import Store
from tests.rollout.making import ARMS, experiment


def judged(
    control: Any, wide: Any, *, exposed: dict[str, int] | None = None, kind: str = "rate", **changes: Any
) -> tuple[str, str | None, str]:
    made = experiment(**changes)
    values = {"control": np.asarray(control, dtype=float), "wide": np.asarray(wide, dtype=float)}
    counts = exposed or {arm: len(each) for arm, each in values.items()}
    return verdict(made, counts, metric_report(made, "success", kind, counts, values))


def outcomes(n: int, rate: float) -> Any:
    return np.arange(n) < n * rate


@pytest.mark.parametrize(
    ("control", "wide", "changes", "expected"),
    [
        (outcomes(0, 0), outcomes(0, 0), {}, ("not enough data", None)),
        (outcomes(99, 0.1), outcomes(99, 0.9), {}, ("not enough data", None)),
        (outcomes(1000, 0.0), outcomes(1000, 0.0), {}, ("not enough data", None)),
        (outcomes(1000, 0.3), outcomes(1000, 0.3), {}, ("no winner yet", None)),
        (outcomes(1000, 0.3), outcomes(1000, 0.45), {}, ("winner", "wide")),
        (outcomes(1000, 0.45), outcomes(1000, 0.3), {}, ("winner", "control")),
        (outcomes(1000, 0.3), outcomes(1000, 0.45), {"goal": "lower"}, ("winner", "control")),
        (outcomes(1000, 0.45), outcomes(1000, 0.3), {"goal": "lower"}, ("winner", "wide")),
        (outcomes(1000, 0.3), outcomes(700, 0.45), {}, ("sample ratio mismatch", None)),
        (outcomes(1000, 0.0), outcomes(1000, 0.2), {}, ("winner", "wide")),
    ],
)
def test_the_verdict(control: Any, wide: Any, changes: dict[str, Any], expected: Any) -> None:
    found = judged(control, wide, **changes)
    assert found[:2] == expected
    assert found[2].endswith(".")


def test_the_reason_names_what_is_missing() -> None:
    assert "wide has 7 units with an outcome, 100 are needed" in judged(outcomes(9, 0.5), outcomes(7, 0.5))[2]
    assert "every outcome is the same" in judged(outcomes(900, 1), outcomes(900, 1))[2]


def test_exposures_without_outcomes_decide_the_sample_ratio() -> None:
    found = judged(outcomes(900, 0.3), outcomes(900, 0.5), exposed={"control": 4000, "wide": 3000})
    assert found[0] == "sample ratio mismatch" and "57.1 % for 50 %" in found[2]


def test_the_best_of_three_wins_and_the_control_only_against_all() -> None:
    made = experiment(arms={"control": 1, "a": 2, "b": 3})

    def found(*rates: float) -> Any:
        values = {
            arm: outcomes(1500, rate).astype(float) for arm, rate in zip(("control", "a", "b"), rates, strict=True)
        }
        counts = dict.fromkeys(values, 1500)
        return verdict(made, counts, metric_report(made, "success", "rate", counts, values))[:2]

    assert found(0.3, 0.45, 0.5) == ("winner", "b")
    assert found(0.5, 0.3, 0.3) == ("winner", "control")
    assert found(0.5, 0.3, 0.5) == ("no winner yet", None)
    assert found(0.3, 0.3, 0.3) == ("no winner yet", None)


@settings(max_examples=max(25, settings().max_examples // 5))
@given(st.floats(0.05, 0.95), st.floats(0.05, 0.95), st.integers(100, 2000), st.sampled_from(["higher", "lower"]))
def test_a_goal_mirrors_the_values(first: float, second: float, n: int, goal: str) -> None:
    """`lower` of x is `higher` of 1 - x; and swapping the arms swaps the winner."""
    other = {"higher": "lower", "lower": "higher"}[goal]
    control, wide = outcomes(n, first), outcomes(n, second)
    found = judged(control, wide, goal=goal)[:2]
    assert judged(~control, ~wide, goal=other)[:2] == found
    swap = {"control": "wide", "wide": "control", None: None}
    assert judged(wide, control, goal=goal)[:2] == (found[0], swap[found[1]])


@pytest.mark.parametrize("weights", [(0.5, 0.5), (0.8, 0.1, 0.1)])
def test_the_report_decides_as_the_simulation_does(weights: tuple[float, ...]) -> None:
    """The false winners of `ctxkit bench experiments` are those of this report: look by look, the same verdict."""
    names = ("control", "a", "b")[: len(weights)]
    made = experiment(
        arms={name: Arm(1, weight) for name, weight in zip(names, weights, strict=True)}, minimum=MINIMUM, planned=500
    )
    rng = np.random.default_rng(7)
    arms = rng.choice(len(weights), 4000, p=weights)
    values = (rng.random(4000) < np.where(arms == 1, 0.5, 0.35)).astype(float)
    won = []
    for look in range(100, 4001, 100):
        seen = {name: values[:look][arms[:look] == index] for index, name in enumerate(names)}
        counts = {name: len(each) for name, each in seen.items()}
        found = verdict(made, counts, metric_report(made, "success", "rate", counts, seen))[0]
        control = seen["control"]
        past = [
            min(len(each), len(control)) >= MINIMUM
            and each.mean() - control.mean()
            > ours(
                *(len(control), control.mean(), control.var(ddof=1)),
                *(len(each), each.mean(), each.var(ddof=1)),
                progress=(len(control) + len(each)) / (500 * (weights[0] + weights[index])),
                alpha=0.05 / (len(weights) - 1),
            )
            for index, each in enumerate(seen.values())
            if index
        ]
        assert (found == "winner") == any(past)
        won.append(any(past))
    assert True in won and False in won


def test_intervals_hold_the_estimates_and_shrink() -> None:
    rng = np.random.default_rng(5)
    widths = []
    for n in (200, 2000, 20_000):
        values = {arm: rng.exponential(2.0, n) for arm in ARMS}
        found = metric_report(experiment(), "seconds", "mean", dict.fromkeys(ARMS, n), values)
        for arm in found.arms:
            assert arm.estimate is not None and arm.interval is not None
            assert arm.interval[0] < arm.estimate < arm.interval[1]
        low, high = found.arms[1].difference_interval or (0, 0)
        assert low < (found.arms[1].difference or 0) < high
        widths.append(high - low)
    assert widths[0] > 2 * widths[1] > 4 * widths[2]


def test_a_report_says_how_many_units_a_change_takes(memory: Experiments) -> None:
    values = {"control": outcomes(1000, 0.5).astype(float)}
    assert 5000 < (needed(experiment(), "rate", values) or 0) < 7000, "10 % of 50 %; the benchmark simulates it"
    assert needed(experiment(), "rate", {}) is None
    assert needed(experiment(), "rate", {"control": outcomes(100, 1).astype(float)}) is None
    assert needed(experiment(), "mean", {"control": np.array([0.0, 0.0, 0.0])}) is None
    memory.start(experiment())
    assert memory.report("wide").units_needed is None


def test_the_report_of_a_whole_experiment(experiments: Experiments) -> None:
    experiments.start(experiment(minimum=10, planned=60))
    said = {}
    for number in range(60):
        arm = experiments.assign("wide", f"u{number}").arm
        said[f"u{number}"] = arm
        experiments.record("wide", f"u{number}", arm == "wide" or number % 5 == 0)
    report = experiments.report("wide")
    assert (report.verdict, report.winner) == ("winner", "wide")
    assert [arm.arm for arm in report.metrics[0].arms] == ["control", "wide"]
    assert sum(arm.units for arm in report.metrics[0].arms) == 60
    assert json.loads(json.dumps(report.to_json()))["verdict"] == "winner"
    again = Experiments(Store.open("sqlite://"))
    again.start(experiment())
    assert said == {unit: again.preview("wide", unit).arm for unit in said}, "the seed alone decides"
