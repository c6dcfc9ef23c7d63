"""Experiments in the store: everything once, nothing lost, nothing after the end; on both databases."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.exc import OperationalError

from ctxkit.errors import ConfigError, ConflictError, NotFoundError, StorageError
from ctxkit.storage import Store, tables
from tests.storage.making import Workers, shared


def create(store: Store, name: str = "e", seed: str = "s", coverage: float = 0.5) -> Any:
    return store.experiments.create(name, seed, coverage, {"arms": [name, "中文", 1.5, None]})


def test_what_is_created_comes_back(store: Store) -> None:
    made = create(store)
    assert made == store.experiments.get("e") == store.experiments.list()[0]
    assert made.definition == {"arms": ["e", "中文", 1.5, None]}
    assert (made.coverage, made.stopped_at, made.winner, made.reason) == (0.5, None, None, "")


def test_a_name_and_a_seed_are_used_once(store: Store) -> None:
    made = create(store)
    with pytest.raises(ConflictError, match="of this name"):
        create(store, seed="other")
    with pytest.raises(ConflictError, match="'e' has this seed"):
        create(store, name="other")
    store.experiments.stop("e")
    with pytest.raises(ConflictError, match="of this name"):
        create(store, seed="other")
    assert [found.name for found in store.experiments.list()] == ["e"]
    assert store.experiments.get("e").seed == made.seed


def test_the_first_arm_of_a_unit_stays(store: Store) -> None:
    create(store)
    assert store.experiments.find("e", "u") == (store.experiments.get("e"), None)
    assert store.experiments.expose("e", "u", "a") == "a"
    assert store.experiments.expose("e", "u", "b") == "a"
    assert store.experiments.find("e", "u")[1] == "a"
    assert store.experiments.exposures("e") == {"a": 1}


def test_an_outcome_counts_once(store: Store) -> None:
    create(store)
    record = store.experiments.record
    assert record("e", "u", "m", "mean", 1.5) == "not exposed"
    store.experiments.expose("e", "u", "a")
    assert record("e", "u", "m", "mean", 1.5) == "recorded"
    assert record("e", "u", "m", "mean", 1.5) == "known"
    with pytest.raises(ConflictError, match=r"value 1\.5, not 2"):
        record("e", "u", "m", "mean", 2.0)
    assert record("e", "u", "m", "mean", 4.5, id="second") == "recorded"
    with pytest.raises(ConflictError, match="holds numbers, not successes"):
        record("e", "u", "m", "rate", 1.0, id="third")
    found = store.experiments.values("e")
    assert list(found) == ["m"] and found["m"].kind == "mean"
    assert {arm: values.tolist() for arm, values in found["m"].values.items()} == {"a": [3.0]}, "one value a unit"


def test_what_is_stopped_stays_as_it_is(store: Store) -> None:
    create(store)
    store.experiments.set_coverage("e", 0.75)
    store.experiments.expose("e", "u", "a")
    store.experiments.record("e", "u", "m", "rate", 1.0)
    stopped = store.experiments.stop("e", winner="a", reason="enough")
    assert stopped.stopped_at is not None
    assert (stopped.winner, stopped.reason, stopped.coverage) == ("a", "enough", 0.75)
    assert store.experiments.stop("e", winner="a", reason="enough") == stopped, "again, the same"
    for changed in ({"winner": "b"}, {"winner": "a", "reason": "other"}, {}):
        with pytest.raises(ConflictError, match="stopped already"):
            store.experiments.stop("e", **changed)
    with pytest.raises(ConflictError, match="stopped"):
        store.experiments.set_coverage("e", 1.0)
    assert store.experiments.expose("e", "v", "a") is None
    assert store.experiments.record("e", "u", "m", "rate", 1.0) == "known"
    assert store.experiments.record("e", "u", "n", "rate", 1.0) == "stopped"
    assert store.experiments.record("e", "u", "m", "rate", 0.0, id="2") == "stopped"
    assert store.experiments.get("e") == stopped
    assert store.experiments.exposures("e") == {"a": 1}
    assert store.experiments.values("e")["m"].values["a"].tolist() == [1.0]
    assert list(store.experiments.values("e")) == ["m"]


def test_a_missing_experiment_is_named_with_those_there_are(store: Store) -> None:
    create(store, name="known")
    for call in (
        lambda: store.experiments.get("x"),
        lambda: store.experiments.find("x", "u"),
        lambda: store.experiments.expose("x", "u", "a"),
        lambda: store.experiments.record("x", "u", "m", "rate", 1.0),
        lambda: store.experiments.values("x"),
        lambda: store.experiments.exposures("x"),
        lambda: store.experiments.stop("x"),
        lambda: store.experiments.set_coverage("x", 1.0),
    ):
        with pytest.raises(NotFoundError, match="Known: known"):
            call()


def test_what_no_database_holds_is_refused(store: Store) -> None:
    create(store)
    store.experiments.expose("e", "u", "a")
    for bad in ("a\x00b", "a\ud800", "", "x" * 600):
        for call in (
            lambda bad=bad: create(store, name=bad, seed="t"),
            lambda bad=bad: create(store, name="f", seed=bad),
            lambda bad=bad: store.experiments.expose("e", bad, "a"),
            lambda bad=bad: store.experiments.record("e", bad, "m", "rate", 1.0),
            lambda bad=bad: store.experiments.record("e", "u", bad, "rate", 1.0),
        ):
            with pytest.raises(StorageError):
                call()
    for number in (float("nan"), float("inf"), -float("inf")):
        with pytest.raises(ConfigError):
            store.experiments.record("e", "u", "m", "mean", number)
    assert [found.name for found in store.experiments.list()] == ["e"]
    assert store.experiments.exposures("e") == {"a": 1}
    assert store.experiments.values("e") == {}


def test_writers_at_once_lose_nothing_and_count_nothing_twice(workers: Workers, store_url: str) -> None:
    with Store.open(store_url) as store:
        create(store)
    said = workers.together(
        """
    store = Store.open(url)
    go()
    for turn in range(2):
        print(store.experiments.expose("e", f"shared-{turn}", f"arm{me}"))
        store.experiments.expose("e", f"mine-{me}-{turn}", "a")
        store.experiments.record("e", f"shared-{turn}", "m", "rate", 1.0)
        store.experiments.record("e", f"shared-{turn}", "m", "rate", 0.0, id=str(me))
        store.experiments.record("e", f"mine-{me}-{turn}", "m", "rate", 1.0)
    store.close()
""",
        url=store_url,
    )
    told = [answer.split() for answer in said]
    assert all(each == told[0] for each in told), "everybody is told the same arm of a unit"
    with Store.open(store_url) as store:
        expected = Counter(told[0])
        expected["a"] += 10
        assert store.experiments.exposures("e") == dict(expected)
        values = np.concatenate(list(store.experiments.values("e")["m"].values.values()))
        assert sorted(values.tolist()) == [pytest.approx(1 / 6)] * 2 + [1.0] * 10


def test_of_many_who_start_or_stop_one_wins(workers: Workers, store_url: str) -> None:
    Store.open(store_url).close()
    won = workers.together(
        """
    store = Store.open(url)
    go()
    try:
        store.experiments.create("e", f"seed {me}", 1.0, {})
        print("started")
    except ConflictError:
        pass
    try:
        store.experiments.stop("e", winner=str(me))
        print("stopped")
    except ConflictError:
        pass
    store.close()
""",
        url=store_url,
    )
    assert Counter(" ".join(won).split()) == {"started": 1, "stopped": 1}


def test_nothing_is_counted_after_the_end_even_by_a_rival(workers: Workers, store_url: str) -> None:
    with Store.open(store_url) as store:
        create(store)
    said = workers.together(
        """
    store = Store.open(url)
    go()
    if me == 0:
        store.experiments.stop("e")
    else:
        done = [store.experiments.expose("e", f"{me}-{turn}", "a") for turn in range(10)]
        print(sum(arm is not None for arm in done))
    store.close()
""",
        url=store_url,
    )
    with Store.open(store_url) as store:
        assert store.experiments.exposures("e").get("a", 0) == sum(int(answer) for answer in said if answer)


def test_a_write_that_dies_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A metric's first outcome writes two rows; killed between them, neither is there."""
    from ctxkit.storage.tenancy import Scope

    create(store)
    store.experiments.expose("e", "u", "a")
    insert = Scope.insert_missing

    def dying(self: Scope, table: Any, row: Any) -> bool:
        if table is tables.experiment_outcomes:
            raise OperationalError("INSERT", {}, Exception("the server is gone"))
        return insert(self, table, row)

    with monkeypatch.context() as patch:
        patch.setattr(Scope, "insert_missing", dying)
        with pytest.raises(StorageError):
            store.experiments.record("e", "u", "m", "rate", 1.0)
    assert store.experiments.values("e") == {}
    assert store.experiments.record("e", "u", "m", "mean", 1.0) == "recorded", "the kind was not fixed either"


FRESH = itertools.count()


@pytest.fixture(scope="module")
def memory() -> Any:
    with Store.open("sqlite://") as opened:
        yield opened


steps = st.lists(
    st.tuples(st.sampled_from(["expose", "record", "stop"]), st.sampled_from("uvw"), st.sampled_from("ab")), max_size=12
)


@shared
@given(steps)
def test_the_store_is_a_dictionary_that_keeps_what_came_first(memory: Store, script: Any) -> None:
    store = memory.for_tenant(f"tenant {next(FRESH)}")
    create(store)
    arms: dict[str, str] = {}
    values: dict[str, float] = {}
    stopped = False
    for step, unit, arm in script:
        if step == "expose":
            said = store.experiments.expose("e", unit, arm)
            assert said == (None if stopped else arms.setdefault(unit, arm))
        elif step == "record":
            value = float(arm == "a")
            try:
                said = store.experiments.record("e", unit, "m", "rate", value)
            except ConflictError:
                said = "conflict"
            if unit not in arms:
                assert said == "not exposed"
            elif unit in values:
                assert said == ("known" if values[unit] == value else "conflict")
            elif stopped:
                assert said == "stopped"
            else:
                assert said == "recorded"
                values[unit] = value
        else:
            store.experiments.stop("e")
            stopped = True
    assert store.experiments.exposures("e") == dict(Counter(arms.values()))
    found = store.experiments.values("e")
    of = found["m"].values if found else {}
    expected = {arm: [values[u] for u in sorted(values) if arms[u] == arm] for arm in {arms[u] for u in values}}
    assert {arm: each.tolist() for arm, each in of.items()} == expected
