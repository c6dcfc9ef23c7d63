"""Experiments as an application uses them: definitions, assignment, records."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxkit import ContextEngine
from ctxkit.errors import ConfigError, ConflictError, CtxkitError, NotFoundError, StorageError
from ctxkit.rollout import Arm, Experiment, Experiments
from tests.rollout.making import ARMS, experiment

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
