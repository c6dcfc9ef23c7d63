"""Fusion functions: range, symmetry, invariance, and values worked out by hand."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ctxkit.errors import ConfigError
from ctxkit.retrieval import max_normalised, min_max, reciprocal_rank, z_score

FUSIONS = [max_normalised, min_max, z_score, reciprocal_rank, partial(reciprocal_rank, constant=0)]
NAN = float("nan")

# Scores with few digits, as retrievers round them; NaN where a signal does not know a candidate.
scores = st.one_of(st.integers(-1000, 1000).map(lambda value: value / 1000), st.just(NAN))
matrices = hnp.arrays(np.float64, st.tuples(st.integers(1, 3), st.integers(0, 12)), elements=scores)
weights = st.lists(st.integers(1, 9), min_size=3, max_size=3)
fusions = pytest.mark.parametrize("fusion", FUSIONS)
fewer = settings(max_examples=max(5, settings().max_examples // len(FUSIONS)))  # for each of them


@fusions
@fewer
@given(signals=matrices, weights=weights)
def test_scores_are_in_range(fusion: object, signals: np.ndarray, weights: list[int]) -> None:
    fused = fusion(signals, weights[: len(signals)])
    assert fused.shape == (signals.shape[1],)
    assert np.isfinite(fused).all()
    assert (fused >= -1e-12).all()
    assert (fused <= 1 + 1e-12).all()


@fusions
@fewer
@given(signals=matrices, weights=weights, data=st.data())
def test_the_order_of_candidates_does_not_matter(
    fusion: object, signals: np.ndarray, weights: list[int], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(signals.shape[1])))
    fused = fusion(signals, weights[: len(signals)])
    moved = fusion(signals[:, list(order)].reshape(signals.shape), weights[: len(signals)])
    np.testing.assert_allclose(moved, fused[list(order)], atol=1e-9)


@fusions
@fewer
@given(signals=matrices, weights=weights)
def test_only_the_ratio_of_the_weights_matters(fusion: object, signals: np.ndarray, weights: list[int]) -> None:
    used = weights[: len(signals)]
    np.testing.assert_allclose(fusion(signals, used), fusion(signals, [3.5 * weight for weight in used]), atol=1e-9)


@fusions
@fewer
@given(signal=hnp.arrays(np.float64, st.integers(1, 12), elements=st.integers(0, 1000).map(lambda value: value / 1000)))
def test_one_signal_keeps_its_order(fusion: object, signal: np.ndarray) -> None:
    fused = fusion(signal[None, :], [1])
    for i in range(len(signal)):
        for j in range(len(signal)):
            if signal[i] > signal[j]:
                assert fused[i] > fused[j]
            elif signal[i] == signal[j]:
                assert fused[i] == fused[j]


@fusions
@fewer
@given(signals=matrices, weights=weights)
def test_a_signal_of_no_weight_changes_nothing(fusion: object, signals: np.ndarray, weights: list[int]) -> None:
    used = weights[: len(signals)]
    noise = np.linspace(0, 1, signals.shape[1])[None, :]
    with_noise = fusion(np.concatenate([signals, noise]), [*used, 0])
    np.testing.assert_allclose(with_noise, fusion(signals, used), atol=1e-9)


@pytest.mark.parametrize(
    ("fusion", "shift", "power"), [(max_normalised, 0, 1), (min_max, 2, 1), (z_score, 2, 1), (reciprocal_rank, 2, 3)]
)
@fewer
@given(signals=matrices, scale=st.integers(1, 20))
def test_units_do_not_matter(fusion: object, shift: int, power: int, signals: np.ndarray, scale: int) -> None:
    """A scale for the maximum, any affine map for min-max and z-score, any monotone map for ranks."""
    other = scale * (signals + shift) ** power if power > 1 else scale * signals + shift
    equal = [1] * len(signals)
    np.testing.assert_allclose(fusion(other, equal), fusion(signals, equal), atol=1e-6)


def test_maximum_by_hand() -> None:
    fused = max_normalised(np.array([[0.8, 0.4, NAN, -0.2], [NAN, 6.0, 3.0, 6.0]]), [3, 1])
    assert fused.tolist() == pytest.approx([0.75, 0.625, 0.125, 0.25])


def test_min_max_by_hand() -> None:
    fused = min_max(np.array([[0.9, 0.5, 0.1, NAN], [2.0, 2.0, NAN, 2.0]]), [1, 1])
    assert fused.tolist() == pytest.approx([1.0, 0.75, 0.0, 0.5])


def test_z_score_by_hand() -> None:
    fused = z_score(np.array([[3.0, 1.0, NAN], [5.0, 5.0, 5.0]]), [1, 1])
    assert fused.tolist() == pytest.approx([1 / (1 + np.exp(-0.5)), 1 / (1 + np.exp(0.5)), 1 / (1 + np.exp(0.5))])


def test_reciprocal_rank_by_hand() -> None:
    signals = np.array([[0.9, 0.5, 0.5, NAN], [NAN, 7.0, 1.0, 2.0]])
    fused = reciprocal_rank(signals, [1, 1], constant=60)
    assert fused.tolist() == pytest.approx(
        [(61 / 61) / 2, (61 / 62 + 61 / 61) / 2, (61 / 62 + 61 / 63) / 2, (61 / 62) / 2]
    )


@fusions
def test_a_signal_that_knows_nothing_leaves_the_order_to_the_other(fusion: object) -> None:
    known = np.array([0.1, 0.9, 0.5])
    fused = fusion(np.array([known, [NAN, NAN, NAN]]), [1, 1])
    assert np.argsort(-fused).tolist() == [1, 2, 0]


@fusions
def test_wrong_weights_are_named(fusion: object) -> None:
    signals = np.array([[1.0, 2.0], [2.0, 1.0]])
    for wrong in ([1], [1, 1, 1], [0, 0], [-1, 2], [NAN, 1], [float("inf"), 1]):
        with pytest.raises(ConfigError):
            fusion(signals, wrong)
    with pytest.raises(ConfigError):
        fusion(np.array([1.0, 2.0]), [1])


def test_a_wrong_constant_is_named() -> None:
    with pytest.raises(ConfigError, match="constant"):
        reciprocal_rank(np.array([[1.0]]), [1], constant=-1)
