"""Half-lives, every form of stamp, and the faults that other libraries' decays have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.documents import Candidate, Query
from ctxkit.errors import ConfigError
from ctxkit.protocols import Stage
from ctxkit.reranking import TimeDecay
from ctxkit.testing import StageConformance
from ctxkit.testing.stages import make_candidates

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)


class TestProduct(StageConformance):
    def make_stage(self) -> Stage:
        return TimeDecay()


class TestMix(StageConformance):
    def make_stage(self) -> Stage:
        return TimeDecay(mode="mix", weight=0.5, floor=0.1)


class TestTurns(StageConformance):
    def make_stage(self) -> Stage:
        return TimeDecay(half_life_turns=10)


def run(
    stage: TimeDecay, stamps: Sequence[Any], scores: Sequence[float] | None = None, *, key: str = "created_at",
    now: datetime | None = NOW,
) -> list[Candidate]:  # fmt: skip
    """The candidates after the stage, in the order of their stamps."""
    given = make_candidates(
        ["x"] * len(stamps),
        scores=scores if scores is not None else [1.0] * len(stamps),
        metadata=[stamp if isinstance(stamp, dict) else {key: stamp} for stamp in stamps],
    )
    order = {candidate.chunk.id: position for position, candidate in enumerate(given)}
    return sorted(stage(Query("x", now=now), given), key=lambda candidate: order[candidate.chunk.id])


def times(candidates: Sequence[Candidate]) -> list[float]:
    return [candidate.scores["time"] for candidate in candidates]


@pytest.mark.parametrize("half_life", [1, 0.1, 3600, 1e-300, 1e300, timedelta(hours=7), timedelta(microseconds=1)])
def test_the_weight_at_the_half_life_is_one_half_exactly(half_life: float | timedelta) -> None:
    assert TimeDecay(half_life=half_life).decay(half_life) == 0.5
    assert TimeDecay(half_life=half_life).decay(2 * half_life) == 0.25
    assert TimeDecay(half_life=half_life).decay(0) == 1.0


@given(
    st.floats(0, 1e12), st.floats(0, 1e12), st.floats(1e-9, 1e12), st.floats(0, 1),
)  # fmt: skip
def test_the_weight_falls_with_age_and_stays_in_its_range(a: float, b: float, half_life: float, floor: float) -> None:
    stage = TimeDecay(half_life=half_life, floor=floor)
    newer, older = stage.decay(min(a, b)), stage.decay(max(a, b))
    assert floor <= older <= newer <= 1.0


def test_every_form_of_stamp_is_the_same_moment() -> None:
    moment = NOW - 10 * DAY
    seconds = moment.timestamp()
    forms = [
        moment,
        moment.astimezone(timezone(timedelta(hours=-8))),
        moment.replace(tzinfo=None),
        int(seconds),
        seconds,
        int(seconds * 1000),
        str(int(seconds)),
        moment.isoformat(),
        moment.isoformat().replace("+00:00", "Z"),
        moment.replace(tzinfo=None).isoformat(),
        date(2026, 2, 19),
        "2026-02-19",
    ]
    assert times(run(TimeDecay(half_life=10 * DAY), forms)) == [0.5] * len(forms)


def test_a_stamp_in_the_future_is_new_and_no_more() -> None:
    assert times(run(TimeDecay(half_life=DAY), [NOW + 30 * DAY, NOW])) == [1.0, 1.0]


def test_a_score_of_zero_stays_the_worst() -> None:
    new, old = run(TimeDecay(half_life=DAY), [NOW, NOW - 3 * DAY], [0.0, 0.8])
    assert new.score == 0.0
    assert old.score == pytest.approx(0.1)


def test_an_old_relevant_one_can_win() -> None:
    """The other way round than a plain sum, where the fresh one of relevance 0 gets 1.0 and this one 0.901."""
    old, new = run(TimeDecay(half_life=30 * DAY), [NOW - 30 * DAY, NOW], [0.9, 0.0])
    assert old.score == 0.45 > new.score


def test_missing_stamps() -> None:
    stamps = [NOW, NOW - DAY, NOW - 2 * DAY, None, ""]
    assert times(run(TimeDecay(half_life=DAY), stamps)) == [1.0, 0.5, 0.25, 0.5, 0.5]
    assert times(run(TimeDecay(half_life=DAY, missing=0.2), stamps))[3:] == [0.2, 0.2]
    assert times(run(TimeDecay(), [None, None])) == [1.0, 1.0]
    assert times(run(TimeDecay(), [{}, {}])) == [1.0, 1.0]


def test_naive_times_are_utc_or_rejected() -> None:
    stamp = (NOW - DAY).replace(tzinfo=None)
    assert times(run(TimeDecay(half_life=DAY), [stamp])) == [0.5]
    with pytest.raises(ConfigError, match="time zone"):
        run(TimeDecay(naive="reject"), [stamp])
    assert times(run(TimeDecay(naive="reject", invalid="missing"), [stamp])) == [1.0]


def test_a_stamp_that_is_none_is_an_error_that_names_the_chunk() -> None:
    with pytest.raises(ConfigError, match=r"soon.*invalid='missing'") as caught:
        run(TimeDecay(), ["soon"])
    assert "created_at" in caught.value.subject
    assert times(run(TimeDecay(half_life=DAY, invalid="missing"), ["soon", NOW - DAY])) == [0.5, 0.5]


def test_without_now_age_counts_from_the_newest() -> None:
    stamps = ["2020-01-03", "2020-01-02", "2020-01-01"]
    assert times(run(TimeDecay(half_life=DAY), stamps, now=None)) == [1.0, 0.5, 0.25]


def test_half_lives_by_type() -> None:
    stage = TimeDecay(half_life=DAY, half_lives={"fact": 2 * DAY, "scratch": DAY / 2, "pinned": math.inf})
    stamp = NOW - 2 * DAY
    kinds = ("fact", "scratch", "pinned", "other", None, 7)
    found = times(run(stage, [{"created_at": stamp, "type": kind} for kind in kinds]))
    assert found == [0.5, 1 / 16, 1.0, 0.25, 0.25, 0.25]


def test_age_in_turns() -> None:
    stage = TimeDecay(half_life_turns=2, half_lives={"slow": 4})
    found = run(
        stage,
        [{"turn": 10}, {"turn": 8}, {"sequence": 6}, {"turn": 6, "type": "slow"}, {}, {"turn": None, "sequence": 10.0}],
    )
    assert times(found) == [1.0, 0.5, 0.25, 0.5, 0.5, 1.0]
    with pytest.raises(ConfigError, match="not a turn"):
        run(stage, [{"turn": "third"}])


def test_a_mix_is_convex() -> None:
    (found,) = run(TimeDecay(half_life=DAY, mode="mix", weight=0.25), [NOW - DAY], [0.8])
    assert found.score == pytest.approx(0.75 * 0.8 + 0.25 * 0.5)


def test_scores_of_another_scale_are_normalised() -> None:
    assert [c.score for c in run(TimeDecay(), [NOW] * 3, [12.0, 6.0, 0.0])] == [1.0, 0.5, 0.0]
    assert [c.score for c in run(TimeDecay(), [NOW] * 3, [-8.0, 0.0, 8.0])] == [0.0, 0.5, 1.0]
    assert [c.score for c in run(TimeDecay(), [NOW] * 2, [-3.0, -3.0])] == [0.0, 0.0]
    assert [c.score for c in run(TimeDecay(), [NOW] * 3, [math.nan, math.inf, 0.5])] == [0.0, 0.0, 0.5]


def test_best_first_and_equals_by_id() -> None:
    given = make_candidates(["x"] * 4, scores=[0.5] * 4, metadata=[{"created_at": NOW}] * 4)
    result = TimeDecay()(Query("x", now=NOW), given)
    ids = [candidate.chunk.id for candidate in result]
    assert ids == sorted(ids)


stamps = st.one_of(
    st.none(),
    st.integers(-(10**18), 10**18),
    st.floats(),
    st.text(max_size=12),
    st.booleans(),
    st.datetimes(timezones=st.one_of(st.none(), st.just(UTC), st.just(timezone(timedelta(hours=14))))),
    st.dates(),
    st.lists(st.integers(), max_size=1),
)


@given(st.lists(st.tuples(stamps, st.floats(width=32)), max_size=8), st.sampled_from(["product", "mix"]), st.booleans())
def test_any_stamps_and_scores(items: list[tuple[Any, float]], mode: Any, by_turn: bool) -> None:
    given_ = make_candidates(
        ["x"] * len(items),
        scores=[score for _, score in items],
        metadata=[{"created_at": stamp, "turn": stamp} for stamp, _ in items],
    )
    stage = TimeDecay(mode=mode, invalid="missing", half_life_turns=3 if by_turn else None)
    result = stage(Query("x", now=NOW), given_)
    assert {candidate.chunk.id for candidate in result} == {candidate.chunk.id for candidate in given_}
    assert all(0.0 <= candidate.score <= 1.0 and 0.0 <= candidate.scores["time"] <= 1.0 for candidate in result)
    assert result == stage(Query("x", now=NOW), given_[::-1])


@pytest.mark.parametrize(
    "parameters",
    [
        {"half_life": 0},
        {"half_life": -1.0},
        {"half_life": math.nan},
        {"half_life": timedelta(0)},
        {"half_life": "1d"},
        {"half_life": True},
        {"half_life_turns": 0},
        {"half_life_turns": timedelta(days=1)},
        {"half_lives": {"a": 0}},
        {"half_lives": {"a": DAY}, "half_life_turns": 3},
        {"floor": -0.1},
        {"floor": 1.1},
        {"weight": 2},
        {"weight": True},
        {"mode": "sum"},
        {"naive": "local"},
        {"invalid": "drop"},
        {"missing": "newest"},
        {"missing": 1.5},
        {"missing": None},
        {"half_lives": None},
        {"half_lives": [("a", 3)]},
        {"half_lives": {"a": "long"}},
        {"half_life": "30 days"},
        {"half_life": None},
        {"half_life_turns": "x"},
        {"half_life_turns": math.nan},
        {"half_lives": {"a": math.nan}},
        {"half_life": -(10**400)},
        {"half_life": -(10**5000)},
        {"weight": 10**5000},
        {"floor": 10**400},
        {"floor": None},
        {"weight": "0.5"},
        {"weight": math.nan},
        {"mode": ["mix"]},
        {"naive": None},
        {"key": None},
        {"type_key": 7},
        {"turn_keys": "turn"},
        {"turn_keys": None},
        {"turn_keys": (1,)},
    ],
)
def test_wrong_parameters(parameters: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        TimeDecay(**parameters)


@pytest.mark.parametrize("age", ["x", None, math.nan, True, object()])
def test_an_age_that_is_none(age: Any) -> None:
    with pytest.raises(ConfigError):
        TimeDecay().decay(age)


def test_numbers_beyond_every_float() -> None:
    assert TimeDecay(half_life=10**400).decay(10**9) == 1.0
    assert TimeDecay(half_life=1).decay(10**400) == 0.0
    with pytest.raises(ConfigError, match="not a turn"):
        run(TimeDecay(half_life_turns=2), [{"turn": 10**400}])
