"""`ctxkit experiments`: the life of one, what is printed, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ctxkit.storage import Store

ARMS = ("--arm", 'control={"candidates": 20}:50', "--arm", 'wide={"candidates": 40}:50')


def start(ctxkit: Any, *more: str, name: str = "wide") -> Any:
    return ctxkit("experiments", "start", name, *(more or ARMS), "--seed", f"seed of {name}", "--json")


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("experiments") / "store.db"
    Store.open(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def store(ctxkit: Any, tmp_path: Path, empty: Path) -> Path:
    """An empty store at the default place."""
    (tmp_path / ".ctxkit").mkdir()
    shutil.copy(empty, tmp_path / ".ctxkit" / "store.db")
    return tmp_path


def test_the_life_of_an_experiment(ctxkit: Any, store: Path) -> None:
    for text in ("Be calm. {{question}}", "Be brief. {{question}}"):
        (store / "t.txt").write_text(text)
        assert ctxkit("templates", "push", "answer", "t.txt").code == 0
    given = ("--arm", "control=answer@1:50", "--arm", "brief=answer@2:50", "--coverage", "10%", "--minimum", "5")
    started = start(ctxkit, *given, name="brief")
    assert started.code == 0, started.err
    assert started.json["coverage"] == 0.1 and started.json["running"] is True
    assert started.json["arms"][1] == {"name": "brief", "weight": 0.5, "setting": "answer@2"}

    cover = ctxkit("experiments", "cover", "brief", "100%", "--json")
    assert cover.json["coverage"] == 1.0
    assert ctxkit("experiments", "record", "brief", "u1", "success", "--json").json["outcome"] == "not exposed"
    with Store.open(f"sqlite:///{store}/.ctxkit/store.db") as opened:
        from ctxkit.rollout import Experiments

        arms = {f"u{number}": Experiments(opened).assign("brief", f"u{number}").arm for number in range(8)}
    for unit, arm in arms.items():
        assert ctxkit("experiments", "assign", "brief", unit, "--json").json["arm"] == arm
    assert ctxkit("experiments", "assign", "brief", "u8").code == 0
    assert ctxkit("experiments", "record", "brief", "u8", "success").out == "u8: not exposed\n", "it was only shown"
    assert ctxkit("experiments", "assign", "brief", "u8", "--expose").code == 0
    assert ctxkit("experiments", "record", "brief", "u8", "success").out == "u8: recorded\n"
    for unit in arms:
        if unit in ("u0", "u1"):
            said = ctxkit("experiments", "record", "brief", unit, "-1.5", "--metric", "score", "--json")
            assert said.json == {"name": "brief", "unit": unit, "outcome": "recorded"}
    again = ctxkit("experiments", "record", "brief", "u0", "-1.5", "--metric", "score")
    assert again.out == "u0: known\n"

    status = ctxkit("experiments", "status", "brief", "--json").json
    assert status["report"]["verdict"] == "not enough data"
    assert [metric["metric"] for metric in status["report"]["metrics"]] == ["success", "score"]
    shown = ctxkit("experiments", "status", "brief").out
    assert "NOT ENOUGH DATA" in shown and "answer@2" in shown and "score (mean)" in shown

    stopped = ctxkit("experiments", "stop", "brief", "--winner", "brief", "--reason", "seen enough")
    assert stopped.out == "brief is stopped, everybody gets control; winner on record: brief\n"
    (row,) = ctxkit("experiments", "status", "--json").json
    assert (row["name"], row["running"], row["winner"], row["reason"]) == ("brief", False, "brief", "seen enough")
    assert ctxkit("experiments", "assign", "brief", "u0").out == "u0: control (takes no part)  answer@1\n"
    assert "stopped" in ctxkit("experiments", "status").out


def test_a_winner_is_shown(ctxkit: Any, store: Path) -> None:
    start(ctxkit, *ARMS, "--minimum", "10", "--planned", "60")
    with Store.open(f"sqlite:///{store}/.ctxkit/store.db") as opened:
        from ctxkit.rollout import Experiments

        for number in range(60):
            arm = Experiments(opened).assign("wide", f"u{number}").arm
            opened.experiments.record("wide", f"u{number}", "success", "rate", float(arm == "wide"))
    shown = ctxkit("experiments", "status", "wide").out
    assert "verdict: WINNER. wide beats control: +1 (between" in shown
    assert "About" not in shown, "10 % of nothing is nothing"
    assert ctxkit("experiments", "status", "wide", "--json").json["report"]["winner"] == "wide"


def test_equal_shares_and_text_as_a_setting(ctxkit: Any, store: Path) -> None:
    found = start(ctxkit, "--arm", "control=1", "--arm", "b=2.5", "--arm", 'c={"template_of": "x:50"}').json
    assert [arm["weight"] for arm in found["arms"]] == [1 / 3] * 3
    assert [arm["setting"] for arm in found["arms"]] == [1, 2.5, {"template_of": "x:50"}]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--arm", "control={}:50", "--arm", "b={}:40"), 2, "sum to 90 %"),
        (("--arm", "control={}:50", "--arm", "b={}"), 2, "has no weight"),
        (("--arm", "control={}:50", "--arm", "control={}:50"), 2, "two arms have this name"),
        (("--arm", "control={}"), 2, "1 arms"),
        (("--arm", "a={}", "--arm", "b={}"), 2, "none of the arms"),
        (("--arm", "control", "--arm", "b={}"), 2, "needs a name and a setting"),
        (("--arm", "control={}", "--arm", "=x"), 2, "needs a name and a setting"),
        (("--arm", "control={}", "--arm", "b="), 2, "needs a name and a setting"),
        (("--arm", "control={}", "--arm", 'b={"x": 1, "x": 2}'), 1, "twice in one object"),
        (("--arm", "control={}", "--arm", 'b={"x": NaN}'), 1, "NaN"),
        (("--arm", "control={}", "--arm", "b={"), 1, "cannot be parsed"),
        (("--arm", "control={}", "--arm", "b=answer@3"), 1, "there is no such template"),
        (("--arm", "control={}", "--arm", "b\x1b={}"), 2, "an arm's name"),
        ((*ARMS, "--coverage", "0%"), 2, "coverage is 0"),
        ((*ARMS, "--coverage", "101%"), 2, "coverage is 1.01"),
        ((*ARMS, "--coverage", "ten"), 2, "coverage is not a number"),
        ((*ARMS, "--coverage", "nan"), 2, "coverage is nan"),
        ((*ARMS, "--coverage", "10"), 2, "0.1 is 10 %"),
        ((*ARMS, "--goal", "up"), 2, "the goal is"),
        ((*ARMS, "--minimum", "0"), 2, "minimum is 0"),
    ],
)
def test_a_wrong_start_is_refused_in_one_line(
    ctxkit: Any, store: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    result = start(ctxkit, *arguments)
    assert (result.code, result.out) == (code, "")
    assert said in result.err and result.err.count("\n") == 1
    assert ctxkit("experiments", "status", "--json").json == []


@pytest.mark.parametrize("name", ["a b", "a\x07", "аnswer", "", "x" * 200])
def test_a_wrong_name_is_refused(ctxkit: Any, store: Path, name: str) -> None:
    result = start(ctxkit, name=name)
    assert result.code == 2 and "the experiment's name" in result.err
    assert "\x07" not in result.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("start", "wide", *ARMS), 1, "there is an experiment of this name"),
        (("start", "other", *ARMS, "--seed", "seed of wide"), 1, "has this seed"),
        (("status", "none"), 1, "no such experiment"),
        (("assign", "none", "u"), 1, "no such experiment"),
        (("assign", "wide", "u\x00"), 1, "NUL"),
        (("record", "wide", "u", "perhaps"), 2, "not an outcome"),
        (("record", "wide", "u", "nan"), 2, "the outcome is nan"),
        (("record", "wide", "u", "1", "--metric", "two words"), 2, "the metric"),
        (("record", "wide", "u", "1", "--unknown"), 2, "--unknown"),
        (("cover", "wide", "200%"), 2, "coverage is 2"),
        (("stop", "wide", "--winner", "brief"), 2, "none of the arms"),
        (("stop", "none"), 1, "Known: wide"),
    ],
)
def test_wrong_use_says_what_to_do(ctxkit: Any, store: Path, arguments: tuple[str, ...], code: int, said: str) -> None:
    assert start(ctxkit).code == 0
    result = ctxkit("experiments", *arguments)
    assert result.code == code, result.err
    assert said in result.err
    assert ctxkit("experiments", "status", "--json").json[0]["running"] is True


def test_a_status_is_json_without_nan(ctxkit: Any, store: Path) -> None:
    start(ctxkit)

    def refuse(name: str) -> None:
        raise AssertionError(name)

    json.loads(ctxkit("experiments", "status", "wide", "--json").out, parse_constant=refuse)


def test_there_is_no_store_to_look_into(ctxkit: Any) -> None:
    result = ctxkit("experiments", "status")
    assert result.code == 1 and "there is no store here" in result.err
