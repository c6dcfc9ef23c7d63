"""Compressing where it saves more than it costs, and both sides in the notes."""

from __future__ import annotations

from typing import Any

import pytest

from ctxkit.compression import SentenceCompressor, WorthIt, seconds_per_token, worth_it
from ctxkit.documents import Query
from ctxkit.errors import ConfigError
from ctxkit.testing.stages import make_candidates

GIVEN = make_candidates([f"Shelf {n} holds item {n * 7}. Nobody knows why. It rained." for n in range(20)])
QUERY = Query("item 49")
STAGE = SentenceCompressor(ratio=4)


def test_both_sides_in_seconds() -> None:
    worth = worth_it(1_000, 400, compressing=0.001, reading=0.002, fixed=0.1)
    assert worth.cost == pytest.approx(1.1)
    assert worth.saving == pytest.approx(1.2)
    assert worth.pays
    assert not worth_it(1_000, 1_200, compressing=0.0, reading=1.0).pays, "what grows saves nothing"


def test_it_refuses_where_it_does_not_pay_and_says_so() -> None:
    stage = WorthIt(stage=STAGE, ratio=4, compressing=1e-3, reading=1e-4)
    assert stage(QUERY, GIVEN) == GIVEN
    notes = stage.notes(QUERY, GIVEN, GIVEN)
    assert notes["decision"] == "not worth it"
    assert notes["seconds_cost"] > notes["seconds_saved"] > 0
    assert notes["tokens_in"] == notes["tokens_out"]


def test_it_compresses_where_it_pays() -> None:
    stage = WorthIt(stage=STAGE, ratio=4, compressing=1e-6, reading=1e-3)
    result = stage(QUERY, GIVEN)
    assert result == STAGE(QUERY, GIVEN) != GIVEN
    notes = stage.notes(QUERY, GIVEN, result)
    assert notes["decision"] == "compressed"
    assert notes["tokens_out"] < notes["tokens_in"] / 3


def test_what_does_not_fit_is_compressed_whatever_it_costs() -> None:
    stage = WorthIt(stage=SentenceCompressor(), compressing=1.0, reading=0.0)
    query = Query("item 49", room=40)
    result = stage(query, GIVEN)
    assert result == SentenceCompressor()(query, GIVEN) != GIVEN
    assert stage.notes(query, GIVEN, result)["decision"] == "compressed to fit"


def test_measuring() -> None:
    assert 0 < seconds_per_token(STAGE, QUERY, GIVEN, runs=1) < 0.1
    with pytest.raises(ConfigError, match="measure"):
        seconds_per_token(STAGE, QUERY, [])


@pytest.mark.parametrize(
    "change", [{"stage": SentenceCompressor}, {"compressing": -1.0}, {"reading": "x"}, {"ratio": 0.5}]
)
def test_wrong_parameters(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        WorthIt(**{"stage": STAGE, "compressing": 0.0, "reading": 0.0, **change})
