"""The intervals hold at every look, and say what they are documented to say."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxkit.evaluation.benchmarks.experiments import (
    CELLS,
    RULES,
    Cell,
    false_winners,
    mismatches,
    ours,
    rate,
    same,
    wilson,
)
from ctxkit.rollout.report import MISMATCH
from ctxkit.rollout.statistics import (
    difference_variance,
    half_width,
    mean_interval,
    mismatch_evidence,
    rate_interval,
    units_needed,
)

alphas = st.floats(0.001, 0.2)
few = settings(max_examples=max(25, settings().max_examples // 5))
"""For smooth formulas in which a few numbers show what many would."""


@few
@given(st.floats(1e-6, 1e6), st.floats(1e-3, 100), alphas)
def test_the_half_width_is_where_the_mixture_reaches_one_over_alpha(
    variance: float, progress: float, alpha: float
) -> None:
    """Johari et al.: Λ = sqrt(V / (V + τ²)) · exp(τ² θ² / (2 V (V + τ²))), rejected at Λ >= 1 / alpha."""
    scale = -2 * math.log(alpha) + math.log(1 - 2 * math.log(alpha))
    mixing = variance * progress * scale
    width = float(half_width(variance, progress, alpha))
    log_ratio = 0.5 * math.log(variance / (variance + mixing)) + mixing * width**2 / (
        2 * variance * (variance + mixing)
    )
    assert log_ratio == pytest.approx(-math.log(alpha), rel=1e-6)


@few
@given(alphas)
def test_the_width_is_least_where_it_was_planned(alpha: float) -> None:
    """For a mixture chosen beforehand: its τ² is fixed while V falls with the units; relative width is least at 1."""
    scale = -2 * math.log(alpha) + math.log(1 - 2 * math.log(alpha))

    def relative(chosen: float) -> float:  # the width at progress 1 in standard errors, for another τ²
        ratio = 1 + chosen
        return math.sqrt(ratio / (ratio - 1) * math.log(ratio / alpha**2))

    assert relative(scale) <= 1.001 * min(relative(scale * factor) for factor in (0.5, 0.9, 1.1, 2))
    assert relative(scale) == pytest.approx(float(half_width(1.0, 1.0, alpha)))


@few
@given(st.integers(0, 3000), st.integers(0, 3000), alphas)
def test_a_rate_lies_in_its_interval(successes: int, failures: int, alpha: float) -> None:
    n = successes + failures
    if not n:
        return
    low, high = rate_interval(n, successes / n, alpha)
    assert 0 <= low <= successes / n <= high <= 1
    assert (low == 0) or successes
    assert (high == 1) or failures
    mirrored = rate_interval(n, failures / n, alpha)
    assert (1 - mirrored[1], 1 - mirrored[0]) == pytest.approx((low, high), abs=1e-9)


@pytest.mark.parametrize("p", [0.5, 0.05, 0.002])
def test_the_rate_interval_holds_at_every_look(p: float) -> None:
    rng = np.random.default_rng(1)
    looks = np.unique(np.geomspace(1, 5000, 30).astype(int))
    missed = 0
    for _ in range(100):
        successes = np.cumsum(rng.random(5000) < p)[looks - 1]
        missed += any(
            not low <= p <= high
            for low, high in (rate_interval(int(n), s / n, 0.05) for n, s in zip(looks, successes, strict=True))
        )
    assert missed <= 5 + 3 * math.sqrt(100 * 0.05 * 0.95)


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_few_false_winners_though_somebody_looks_after_every_unit(cell: Cell) -> None:
    """Quick: the bar's own measurement is `ctxkit bench experiments`."""
    runs = 200
    hits = false_winners(cell, runs=runs, units=4000, rules={"ctxkit": ours}, seed=11)["ctxkit"]
    assert wilson(hits, runs)[0] <= 0.05


def test_the_simulation_finds_rules_that_peeking_breaks() -> None:
    small = same("99/1", (0.99, 0.01), rate(0.002))
    hits = false_winners(small, runs=50, units=15_000, seed=5, rules=RULES)
    assert hits["ctxkit"] == 0 and hits["variance apart"] > 20 and hits["fixed horizon"] > 20
    even = false_winners(same("", (0.5, 0.5), rate(0.5)), runs=100, units=4000, seed=5)
    assert even["fixed horizon"] > 15 > even["ctxkit"]


def test_a_true_difference_is_found_in_the_units_that_were_foretold() -> None:
    units = units_needed(0.1, variances=(0.25, 0.24), weights=(0.5, 0.5), planned=2000, alpha=0.05)
    assert units is not None and 1000 < units < 4000
    cell = Cell("", (0.5, 0.5), (rate(0.5), rate(0.6)), planned=2000)
    assert false_winners(cell, runs=200, units=units, rules={"ctxkit": ours})["ctxkit"] >= 0.75 * 200


@few
@given(st.floats(0.001, 0.5), st.floats(0.1, 0.9), st.integers(100, 10**6), alphas)
def test_units_needed_is_where_effect_meets_width(effect: float, weight: float, planned: int, alpha: float) -> None:
    options = {"variances": (0.2, 0.25), "weights": (weight, 1 - weight), "planned": planned, "alpha": alpha}
    units = units_needed(effect, **options)  # type: ignore[arg-type]
    assert units is not None
    half = units_needed(effect / 2, **options)  # type: ignore[arg-type]
    assert half is not None and half > 2 * units, "half the effect takes three times the units and more"
    spread = 0.2 / weight + 0.25 / (1 - weight)

    def needed_at(count: int) -> float:
        width = float(half_width(spread / count, count / planned, alpha))
        return width + NormalDist().inv_cdf(0.8) * math.sqrt(spread / count)

    assert needed_at(units) <= effect
    assert units < 3 or needed_at(units - 2) > effect
    assert units_needed(-effect, **options) == units  # type: ignore[arg-type]


def test_no_number_of_units_shows_nothing() -> None:
    assert units_needed(0.0, variances=(1, 1), weights=(0.5, 0.5), planned=1000, alpha=0.05) is None


@few
@given(st.lists(st.integers(0, 4), max_size=60), st.lists(st.integers(1, 9), min_size=5, max_size=5))
def test_evidence_is_the_product_of_one_prediction_a_unit(order: list[int], raw: list[int]) -> None:
    weights = [value / sum(raw) for value in raw]
    seen, log = [0] * 5, 0.0
    for step, arm in enumerate(order):
        log += math.log((100 * weights[arm] + seen[arm]) / (100 + step) / weights[arm])
        seen[arm] += 1
    assert mismatch_evidence(seen, weights) == pytest.approx(log, abs=1e-8)


def test_a_right_ratio_is_left_alone_and_a_wrong_one_found() -> None:
    assert sum(found is not None for found in mismatches((0.9, 0.1), 0.9, runs=200, units=4000)) <= 2
    assert all(found is not None for found in mismatches((0.5, 0.5), 0.6, runs=50, units=4000))
    assert mismatch_evidence([0, 0], [0.5, 0.5]) == 0
    assert mismatch_evidence([9500, 500], [0.9, 0.1]) > MISMATCH


def test_the_variance_is_the_larger_of_apart_and_pooled() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.exponential(1, 900), rng.exponential(3, 40)
    given = (len(a), a.mean(), a.var(), len(b), b.mean(), b.var())
    pooled = np.concatenate([a, b]).var() * (1 / len(a) + 1 / len(b))
    assert difference_variance(*given) == pytest.approx(max(a.var() / len(a) + b.var() / len(b), pooled))
    few = (1000, 0.02, 0.0196, 20, 0.0, 0.0)  # no event in the small arm: alone it claims to know its rate exactly
    assert difference_variance(*few) > 40 * 0.0196 / 1000


def test_a_mean_lies_in_the_middle_of_its_interval() -> None:
    low, high = mean_interval(400, 10.0, 4.0, 0.04, 0.05)
    assert (low + high) / 2 == pytest.approx(10)
    assert high - 10 > 1.96 * 2 / 20, "wider than one look allows"
