"""Measures against values worked out by hand."""

from __future__ import annotations

import math

import pytest

from ctxkit.documents import Span
from ctxkit.evaluation.metrics import mean, ndcg, recall, span_recall


def test_ndcg_by_hand() -> None:
    relevant = {"a": 2, "b": 1}
    ideal = 2 + 1 / math.log2(3)
    assert ndcg(["a", "b", "x"], relevant) == pytest.approx(1.0)
    assert ndcg(["b", "x", "a"], relevant) == pytest.approx((1 + 2 / math.log2(4)) / ideal)
    assert ndcg(["x", "y"], relevant) == 0.0
    assert ndcg(["x", "a"], {"a": 1}, 1) == 0.0
    assert ndcg(["a"], {}) == 0.0


def test_the_ideal_has_no_more_than_k() -> None:
    assert ndcg(["a", "b"], {"a": 1, "b": 1, "c": 1}, 2) == pytest.approx(1.0)


def test_recall_by_hand() -> None:
    assert recall(["a", "x", "b"], ["a", "b"], 2) == 0.5
    assert recall(["a", "a"], ["a", "b"], 5) == 0.5
    assert recall(["a"], [], 5) == 0.0


def test_span_recall_by_hand() -> None:
    wanted = {"d": [Span(0, 10)], "e": [Span(5, 15)]}
    assert span_recall({"d": [Span(5, 20), Span(8, 9)]}, wanted) == 0.25
    assert span_recall({"d": [Span(0, 10)], "e": [Span(0, 99)]}, wanted) == 1.0
    assert span_recall({}, wanted) == span_recall({"d": [Span(0, 1)]}, {}) == 0.0


def test_mean_of_nothing() -> None:
    assert mean([]) == 0.0
    assert mean([1, 2]) == 1.5
