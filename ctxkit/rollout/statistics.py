"""Statistics that stay true however often somebody looks.

A fixed-horizon test that is read again and again until it says "winner" is wrong far more often than it claims. Here
each interval is a confidence sequence: it covers the truth at all sample sizes at once with probability 1 - alpha, so
that one may look after every outcome and stop when one likes.

- Differences: the normal mixture of Robbins (1970) as the mixture sequential probability ratio test of Johari, Koomen,
  Pekelis & Walsh, "Always Valid Inference" (Operations Research 70, 2022), on an estimate with an estimated variance;
  asymptotic as in Waudby-Smith et al., "Time-uniform central limit theory and asymptotic confidence sequences" (Annals
  of Statistics 52, 2024). With the variance V of the difference and r = 1 + c * progress,

      half width = sqrt(V * r / (r - 1) * ln(r / alpha^2)).

- Rates of one arm: the beta-binomial mixture (Robbins 1970; Howard, Ramdas, McAuliffe & Sekhon, "Time-uniform,
  nonparametric, nonasymptotic confidence sequences", Annals of Statistics 49, 2021): exact at every size.
- Sample ratio: the Dirichlet-multinomial mixture of Lindon & Malek, "Anytime-Valid Inference for Multinomial Count
  Data" (NeurIPS 2022): exact, no matter how often it is read.

Functions of counts, means and variances take numbers or arrays alike, so a simulation runs the code that decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

__all__ = [
    "difference_variance",
    "half_width",
    "mean_interval",
    "mismatch_evidence",
    "rate_interval",
    "units_needed",
]

_PRIOR = 0.5  # of the beta mixture: Jeffreys'
_CONCENTRATION = 100.0  # of the Dirichlet mixture: as sure of the weights as after 100 units


def difference_variance(n_a: Any, mean_a: Any, var_a: Any, n_b: Any, mean_b: Any, var_b: Any) -> Any:
    """The variance of `mean_b - mean_a`: the larger of what the arms say apart and what they say pooled.

    Apart alone fails where one arm is small and events are rare: a small arm without events claims no variance, and an
    A/A test of 0.2 % against 1 % of the traffic names a winner in 8 of 10 runs. Pooled alone is too small where the
    arms do differ.
    """
    n = n_a + n_b
    pooled = (n_a * var_a + n_b * var_b) / n + n_a * n_b / n**2 * (mean_a - mean_b) ** 2
    return np.maximum(var_a / n_a + var_b / n_b, pooled * (1 / n_a + 1 / n_b))


def half_width(variance: Any, progress: Any, alpha: float) -> Any:
    """Half of the confidence sequence around an estimate with this variance.

    Args:
        progress: units so far, as a share of the planned ones. Width is best near 1 and valid everywhere.
    """
    # The mixture's variance that makes the width least at progress 1, as a multiple of the estimate's variance there.
    scale = -2 * math.log(alpha) + math.log(1 - 2 * math.log(alpha))
    ratio = 1 + scale * progress
    return np.sqrt(variance * ratio / (ratio - 1) * np.log(ratio / alpha**2))


def mean_interval(n: int, mean: float, variance: float, progress: float, alpha: float) -> tuple[float, float]:
    """The confidence sequence of one arm's mean; asymptotic."""
    width = float(half_width(variance / n, progress, alpha))
    return mean - width, mean + width


def rate_interval(n: int, rate: float, alpha: float) -> tuple[float, float]:
    """The confidence sequence of one arm's rate: exact for outcomes between 0 and 1, at every size.

    It is the set of p with B(a + s, a + f) / B(a, a) < p^s (1 - p)^f / alpha, where s = n * rate, f = n - s, a = 1/2.

    Example:
        >>> low, high = rate_interval(100, 0.0, 0.05)
        >>> low, round(high, 4)
        (0.0, 0.057)
    """
    successes, failures = n * rate, n * (1 - rate)
    mixture = _log_beta(_PRIOR + successes, _PRIOR + failures) - _log_beta(_PRIOR, _PRIOR)

    def excluded(p: float) -> bool:
        likelihood = (successes * math.log(p) if successes else 0.0) + (failures * math.log1p(-p) if failures else 0.0)
        return mixture - likelihood >= -math.log(alpha)

    tiny = 1e-15
    low = 0.0 if rate <= tiny else _edge(excluded, tiny, rate)
    high = 1.0 if rate >= 1 - tiny else _edge(excluded, 1 - tiny, rate)
    return low, high


def _edge(excluded: Callable[[float], bool], outside: float, inside: float) -> float:
    """The border between a point outside and one inside; the outer side of it, so that rounding never narrows."""
    if not excluded(outside):
        return round(outside)
    for _ in range(60):
        middle = (outside + inside) / 2
        outside, inside = (middle, inside) if excluded(middle) else (outside, middle)
    return outside


def mismatch_evidence(counts: Sequence[int], weights: Sequence[float]) -> float:
    """How strongly counts contradict the weights they were drawn with: the natural logarithm of an e-value.

    Under true weights it ever reaches ln(1 / alpha) with probability alpha at most, peeking included.

    Example:
        >>> mismatch_evidence([5000, 5000], [0.5, 0.5]) < 0 < 4.6 < mismatch_evidence([5200, 4800], [0.5, 0.5])
        True
    """
    n = sum(counts)
    evidence = math.lgamma(_CONCENTRATION) - math.lgamma(_CONCENTRATION + n)
    for count, weight in zip(counts, weights, strict=True):
        prior = _CONCENTRATION * weight
        evidence += math.lgamma(prior + count) - math.lgamma(prior) - count * math.log(weight)
    return evidence


def units_needed(
    effect: float,
    *,
    variances: tuple[float, float],
    weights: tuple[float, float],
    planned: int,
    alpha: float,
    power: float = 0.8,
) -> int | None:
    """About how many units of the whole experiment it takes to see a difference of `effect` with this power.

    The number N at which `effect = half width + z(power) * sqrt(V(N))`; looking earlier can only win earlier.

    Args:
        effect: the true difference of the two arms' means.
        variances: of one unit's value in the two arms.
        weights: of the two arms among all arms.
        planned: as in the experiment.

    Returns:
        None where the effect is 0 or so small that it takes more than 10^12 units.
    """
    spread = variances[0] / weights[0] + variances[1] / weights[1]
    quantile = NormalDist().inv_cdf(power)

    def seen(units: float) -> bool:
        width = float(half_width(spread / units, units / planned, alpha))
        return abs(effect) >= width + quantile * math.sqrt(spread / units)

    low, high = 1.0, 1e12
    if not seen(high):
        return None
    while high - low > 0.5:
        middle = (low + high) / 2
        low, high = (low, middle) if seen(middle) else (middle, high)
    return math.ceil(high)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
