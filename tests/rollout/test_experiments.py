"""Experiments as an application uses them: definitions, assignment, records and verdicts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxkit import ContextEngine
from ctxkit.errors import ConfigError, ConflictError, CtxkitError, NotFoundError, StorageError
from ctxkit.evaluation.benchmarks.experiments import MINIMUM, ours
from ctxkit.rollout import Arm, Experiment, Experiments
from ctxkit.rollout.report import metric_report, needed, verdict
from ctxkit.storage import Store

ARMS = {"control": {"candidates": 20}, "wide": {"candidates": 40}}


def experiment(**changes: Any) -> Experiment:
    return Experiment(**{"name": "wide", "arms": ARMS, "seed": "s1", **changes})


@pytest.fixture
def experiments(store: Store) -> Experiments:
    return Experiments(store)


@pytest.fixture
def memory() -> Iterator[Experiments]:
    with Store.open("sqlite://") as store:
        yield Experiments(store)


# The definition.


def test_equal_shares_without_weights_and_the_order_is_kept() -> None:
    made = experiment(arms={"b": 1, "control": 2, "a": 3})
    assert list(made.weights) == ["b", "control", "a"]
    assert set(made.weights.values()) == {1 / 3}
    assert experiment().seed == "s1" and Experiment(name="x", arms=ARMS).seed != Experiment(name="x", arms=ARMS).seed


names = st.sampled_from(["control", "a", "b", "c-1", "D.x_9"])
settings_json = st.recursive(
    st.booleans() | st.integers(-5, 5) | st.floats(-1, 1) | st.text("ab猫 \n", min_size=1, max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=max(25, settings().max_examples // 5))
@given(st.dictionaries(names, settings_json, min_size=1, max_size=4), st.floats(0.001, 1), st.data())
def test_a_definition_comes_back_from_json(arms: dict[str, Any], coverage: float, data: st.DataObject) -> None:
    arms = {"control": "x", **arms, "z": 0}
    raw = data.draw(st.lists(st.integers(1, 9), min_size=len(arms), max_size=len(arms)))
    weighted = {name: Arm(arm, weight / sum(raw)) for (name, arm), weight in zip(arms.items(), raw, strict=True)}
    made = experiment(arms=weighted, coverage=coverage)
    again = Experiment.from_json(json.loads(json.dumps(made.to_json())))
    assert again == made
    assert list(again.arms) == list(made.arms)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "a\x07b"}, "name is"),
        ({"name": "а"}, "name is"),  # Cyrillic, looks like a Latin letter
        ({"name": ""}, "name is"),
        ({"name": "x" * 129}, "name is"),
        ({"name": "a\n"}, "name is"),
        ({"metric": "two words"}, "metric is"),
        ({"arms": {"control": "x"}}, "there are 1 arms"),
        ({"arms": {f"a{index}": index for index in range(21)}, "control": "a0"}, "there are 21 arms"),
        ({"arms": ["control", "b"]}, "arms is a list|the arms is"),
        ({"arms": {"control": "x", "\u202eb": "y"}}, "an arm's name"),
        ({"arms": {"control": "x", "b": ""}}, "no setting"),
        ({"arms": {"control": "x", "b": None}}, "no setting"),
        ({"arms": {"a": "x", "b": "y"}}, "none of the arms"),
        ({"arms": {"control": Arm("x", 0.5), "b": Arm("y", 0.4)}}, "sum to 90 %"),
        ({"arms": {"control": Arm("x", 0.5), "b": Arm("y")}}, "has no weight"),
        ({"arms": {"control": Arm("x", 1.0), "b": Arm("y", 0.0)}}, "weight is 0"),
        ({"arms": {"control": Arm("x", 1.5), "b": Arm("y", -0.5)}}, "weight of arm"),
        ({"arms": {"control": Arm("x", math.nan), "b": Arm("y", 0.5)}}, "weight of arm"),
        ({"arms": {"control": Arm("x", True), "b": Arm("y", 0.5)}}, "weight of arm"),
        ({"coverage": 0}, "coverage is 0"),
        ({"coverage": 10}, "0.1 is 10 %"),
        ({"coverage": 101}, "coverage is 101"),
        ({"coverage": -0.1}, "coverage is"),
        ({"coverage": math.nan}, "coverage is"),
        ({"coverage": "10%"}, "coverage is"),
        ({"goal": "up"}, "higher or lower"),
        ({"minimum": 1}, "minimum is 1"),
        ({"planned": 0}, "planned is 0"),
        ({"alpha": 0.9}, "alpha is"),
        ({"seed": 7}, "the seed"),
    ],
)
def test_a_wrong_definition_is_refused_with_a_remedy(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        experiment(**changes)
    assert caught.value.remedy


@pytest.mark.parametrize("setting", [math.nan, {"x": math.inf}, {1: 2}, "a\x00", {"k": "\ud800"}, object()])
def test_a_setting_that_is_not_json_is_refused(setting: Any) -> None:
    with pytest.raises(StorageError) as caught:
        experiment(arms={"control": 1, "b": setting})
    assert caught.value.remedy


# Assignment.


def test_a_unit_keeps_its_arm_and_the_report_counts_it_once(experiments: Experiments) -> None:
    experiments.start(experiment())
    first = experiments.assign("wide", "alice")
    assert first == experiments.assign("wide", "alice") == experiments.preview("wide", "alice")
    assert first.exposed and first.setting == ARMS[first.arm]
    assert sum(arm.exposed for arm in experiments.report("wide").metrics[0].arms) == 1


@pytest.mark.parametrize("unit", [None, ""])
def test_a_missing_unit_gets_the_control_and_is_not_counted(memory: Experiments, unit: str | None) -> None:
    memory.start(experiment())
    for _ in range(20):
        found = memory.assign("wide", unit)
        assert (found.arm, found.exposed) == ("control", False)
    assert memory.store.experiments.exposures("wide") == {}
    assert memory.record("wide", unit or "", True) == "not exposed"


def test_coverage_up_and_down_moves_nobody_who_is_in(memory: Experiments) -> None:
    experiments = memory
    experiments.start(experiment(coverage=0.05))
    units = [f"u{number}" for number in range(40)]
    before: dict[str, str] = {}
    for coverage in (0.05, 0.5, 1.0, 0.01):
        assert experiments.cover("wide", coverage).experiment.coverage == coverage
        found = {unit: experiments.assign("wide", unit) for unit in units}
        assert all(found[unit].arm == arm and found[unit].exposed for unit, arm in before.items())
        before |= {unit: each.arm for unit, each in found.items() if each.exposed}
    assert len(before) == 40, "at 1.0 everybody is in, and stays at 0.01"
    assert experiments.assign("wide", "new").exposed is (experiments.preview("wide", "new").exposed)
    assert sum(experiments.store.experiments.exposures("wide").values()) in (40, 41)


def test_outside_of_the_coverage_is_the_control_without_a_record(memory: Experiments) -> None:
    memory.start(experiment(coverage=0.2))
    found = [memory.assign("wide", f"u{number}") for number in range(300)]
    outside = [each for each in found if not each.exposed]
    assert 200 < len(outside) < 270
    assert {each.arm for each in outside} == {"control"}
    assert sum(memory.store.experiments.exposures("wide").values()) == 300 - len(outside)


def test_the_arm_on_record_wins_over_what_the_weights_say(memory: Experiments) -> None:
    memory.start(experiment())
    computed = memory.preview("wide", "alice").arm
    other = next(arm for arm in ARMS if arm != computed)
    memory.store.experiments.expose("wide", "alice", other)
    assert memory.assign("wide", "alice").arm == memory.preview("wide", "alice").arm == other


def test_a_preview_writes_nothing(memory: Experiments) -> None:
    memory.start(experiment())
    assert memory.preview("wide", "alice").exposed
    assert memory.store.experiments.exposures("wide") == {}
    assert memory.record("wide", "alice", True) == "not exposed"


def test_tenants_have_experiments_of_their_own(memory: Experiments) -> None:
    one, other = (Experiments(memory.store.for_tenant(tenant)) for tenant in ("acme", "other"))
    one.start(experiment())
    with pytest.raises(NotFoundError):
        other.assign("wide", "alice")
    other.start(experiment())
    units = [f"u{number}" for number in range(40)]
    assert [one.assign("wide", unit).arm for unit in units] != [other.assign("wide", unit).arm for unit in units]
    one.stop("wide")
    assert other.get("wide").running and not one.get("wide").running


# Templates.


def test_templates_are_pinned_when_it_starts_and_used_by_assembly() -> None:
    with ContextEngine.open("sqlite://", embedder=None) as engine:
        for tone in ("calm", "brief"):
            engine.templates.push("answer", f"Be {tone}.\n\n{{{{context}}}}\n\n{{{{question}}}}")
        engine.templates.label("answer", "production", 1)
        arms = {"control": "answer@production", "brief": {"template": "answer", "candidates": 5}}
        started = engine.experiments.start(Experiment(name="tone", arms=arms, seed="s1")).experiment
        assert started.arms["control"].setting == "answer@1"
        assert started.arms["brief"].setting == {"template": "answer@2", "candidates": 5}
        engine.templates.label("answer", "production", 2)
        said = set()
        for session in ("alice", "bob", "carol", "dave", "eve"):
            arm = engine.experiments.assign("tone", session)
            prompt = engine.assemble("Why?", session=session, template=arm.template)
            assert ("Be calm." if arm.arm == "control" else "Be brief.") in json.dumps(prompt.messages)
            said.add(arm.arm)
        assert said == {"control", "brief"}


def test_a_template_that_is_not_there_stops_the_start(memory: Experiments) -> None:
    with pytest.raises(NotFoundError):
        memory.start(experiment(arms={"control": "answer@2", "b": 3}))
    assert memory.list() == []


def test_an_arm_without_a_template_says_so(memory: Experiments) -> None:
    memory.start(experiment())
    with pytest.raises(ConfigError, match="sets no template"):
        _ = memory.assign("wide", "alice").template


# Outcomes.


def test_outcomes_are_of_two_kinds(memory: Experiments) -> None:
    memory.start(experiment())
    memory.assign("wide", "alice")
    assert memory.record("wide", "alice", True) == "recorded"
    assert memory.record("wide", "alice", np.float64(2.5), metric="seconds") == "recorded"
    assert memory.record("wide", "alice", 3, metric="seconds", id="second") == "recorded"
    with pytest.raises(ConflictError, match="successes and failures, not numbers"):
        memory.record("wide", "alice", 1.0, id="x")
    assert [(each.metric, each.kind) for each in memory.report("wide").metrics] == [
        ("success", "rate"),
        ("seconds", "mean"),
    ]


@pytest.mark.parametrize("value", [math.nan, math.inf, "1", None, 10**400, 1e200, [1]])
def test_an_outcome_that_is_no_number_is_refused(memory: Experiments, value: Any) -> None:
    memory.start(experiment())
    memory.assign("wide", "alice")
    with pytest.raises(ConfigError, match="the outcome") as caught:
        memory.record("wide", "alice", value)
    assert caught.value.remedy
    assert memory.report("wide").metrics[0].arms[0].units == 0


@pytest.mark.parametrize("unit", [7, 1.5, b"alice", ["alice"]])
def test_a_unit_is_a_text(memory: Experiments, unit: Any) -> None:
    memory.start(experiment())
    for call in (lambda: memory.assign("wide", unit), lambda: memory.record("wide", unit, True)):
        with pytest.raises(ConfigError, match="the unit is a"):
            call()


def test_after_the_stop_everybody_gets_the_control_and_nothing_is_recorded(experiments: Experiments) -> None:
    experiments.start(experiment())
    units = [f"u{number}" for number in range(20)]
    assert {experiments.assign("wide", unit).arm for unit in units} == set(ARMS)
    with pytest.raises(ConfigError, match="none of the arms"):
        experiments.stop("wide", winner="other")
    state = experiments.stop("wide", winner="wide", reason="enough seen")
    assert (state.running, state.winner, state.reason) == (False, "wide", "enough seen")
    before = experiments.report("wide")
    assert {(each.arm, each.exposed) for each in (experiments.assign("wide", unit) for unit in units)} == {
        ("control", False)
    }
    assert experiments.assign("wide", "new").exposed is False
    assert experiments.record("wide", "u1", True) == "stopped"
    assert experiments.report("wide") == before
    assert before.stopped_with == "wide" and not before.running
    with pytest.raises(ConflictError):
        experiments.cover("wide", 1.0)


# Verdicts.


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


# Async twins.


async def test_the_async_twins_do_the_same(memory: Experiments) -> None:
    await memory.astart(experiment())
    assert await memory.aassign("wide", "alice") == await memory.apreview("wide", "alice")
    assert await memory.arecord("wide", "alice", True, id="1") == "recorded"
    assert (await memory.acover("wide", 0.5)).experiment.coverage == 0.5
    assert await memory.areport("wide") == memory.report("wide")
    assert await memory.aget("wide") == memory.get("wide") and await memory.alist() == memory.list()
    assert (await memory.astop("wide", reason="done")).reason == "done"


def test_every_call_has_an_async_twin() -> None:
    calls = {name for name, value in vars(Experiments).items() if callable(value) and name[0] != "_"}
    assert {name for name in calls if f"a{name}" not in calls and name[1:] not in calls} == set()


def test_no_call_leaks_a_foreign_error(memory: Experiments) -> None:
    memory.start(experiment())
    calls: list[Callable[[], Any]] = [
        lambda: memory.start("wide"),  # type: ignore[arg-type]
        lambda: memory.assign("x\x00", "u"),
        lambda: memory.assign("wide", "u\x00"),
        lambda: memory.assign("wide", "u\ud800"),
        lambda: memory.assign("wide", "u" * 600),
        lambda: memory.record("wide", "u", True, metric="a b"),
        lambda: memory.cover("wide", math.nan),
        lambda: memory.stop("wide", winner=[]),  # type: ignore[arg-type]
        lambda: memory.stop("wide", reason="\x00"),
    ]
    for call in calls:
        with pytest.raises(CtxkitError) as caught:
            call()
        assert caught.value.remedy
    assert memory.get("wide").running
