"""Rows of different kinds are printed as different tables."""

from __future__ import annotations

from ctxkit.cli.benching import _tables


def test_rows_that_say_what_they_measure_are_together_whatever_their_columns() -> None:
    rows = [{"measure": "speed", "ratio": 2}, {"measure": "quality", "omega": 1}, {"measure": "speed", "seconds": 3}]
    assert _tables(rows) == [("speed", [{"ratio": 2}, {"seconds": 3}]), ("quality", [{"omega": 1}])]


def test_others_are_together_by_their_columns() -> None:
    rows = [{"system": "a", "ndcg": 1}, {"set": "b", "gain": 2}, {"system": "c", "ndcg": 3}]
    assert [len(group) for _, group in _tables(rows)] == [2, 1]
    assert _tables([]) == []
