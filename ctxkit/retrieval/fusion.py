"""One score from several: pure functions over a matrix of signals, one row a signal and one column a candidate.

NaN stands where a signal does not know a candidate. Every function returns scores in [0, 1], a higher one better, and
takes weights of which only the ratio matters. The measurements behind the default: `docs/decisions/0003-fusion.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ctxkit.errors import ConfigError

__all__ = ["Fusion", "max_normalised", "min_max", "reciprocal_rank", "z_score"]

Scores = NDArray[np.float64]
Fusion = Callable[[Scores, Sequence[float]], Scores]
"""Takes signals of shape `(signals, candidates)` and a weight a signal; gives scores of shape `(candidates,)`."""


def max_normalised(signals: Scores, weights: Sequence[float]) -> Scores:
    """The weighted mean of the signals, each divided by its own maximum; negative and unknown scores count as 0.

    Keeps how far apart a signal puts its candidates: a signal that tells nothing puts all at about 1 and so leaves the
    order to the others. Does not depend on how deep the lists reach, since only their tops normalise. The best has 1
    only when all signals agree on it.

    Source: Fox and Shaw, "Combination of Multiple Searches" (CombSUM), TREC-2, 1994.

    Example:
        >>> max_normalised(np.array([[0.8, 0.4], [3.0, 6.0]]), [1, 1]).tolist()
        [0.75, 0.75]
    """
    signals, shares = _checked(signals, weights)
    positive = np.maximum(np.nan_to_num(signals, nan=0.0), 0.0)
    top = positive.max(axis=1, keepdims=True, initial=0.0)
    return np.asarray(shares @ np.divide(positive, top, out=np.zeros_like(positive), where=top > 0))


def min_max(signals: Scores, weights: Sequence[float]) -> Scores:
    """The weighted mean of the signals, each stretched so that its candidates reach from 0 to 1; unknown counts as 0.

    Depends on the depth of the lists, whose last candidate becomes 0. A signal whose candidates are all equal gives
    them 1.

    Source: Lee, "Analyses of Multiple Evidence Combination", SIGIR 1997.
    """
    signals, shares = _checked(signals, weights)
    if signals.shape[1] == 0:
        return np.zeros(0)
    low, high = _over_known(np.fmin, signals), _over_known(np.fmax, signals)
    width = high - low
    stretched = np.divide(signals - low, width, out=np.ones_like(signals), where=width > 0)
    return np.asarray(shares @ np.where(np.isnan(signals), 0.0, stretched))


def z_score(signals: Scores, weights: Sequence[float]) -> Scores:
    """The weighted mean of the signals' standard scores, squashed into [0, 1] by the logistic function.

    Depends on the depth of the lists. An unknown score counts as the signal's lowest.

    Source: Montague and Aslam, "Relevance score normalization for metasearch", CIKM 2001.
    """
    signals, shares = _checked(signals, weights)
    if signals.shape[1] == 0:
        return np.zeros(0)
    known = ~np.isnan(signals)
    count = np.maximum(known.sum(axis=1, keepdims=True), 1)
    centred = np.where(known, signals, 0.0) - np.where(known, signals, 0.0).sum(axis=1, keepdims=True) / count
    spread = np.sqrt((np.where(known, centred, 0.0) ** 2).sum(axis=1, keepdims=True) / count)
    # Scores that are all alike differ by rounding alone, which must not be stretched to a standard deviation.
    rounding = np.abs(np.where(known, signals, 0.0)).max(axis=1, keepdims=True) * 1e-12
    standard = np.divide(centred, spread, out=np.zeros_like(centred), where=spread > rounding)
    lowest = np.where(known, standard, np.inf).min(axis=1, keepdims=True)
    filled = np.where(known, standard, np.where(np.isfinite(lowest), lowest, 0.0))
    return np.asarray(1.0 / (1.0 + np.exp(-(shares @ filled))))


def reciprocal_rank(signals: Scores, weights: Sequence[float], *, constant: float = 60.0) -> Scores:
    """The weighted mean of `(constant + 1) / (constant + rank)`; equal scores share a rank, unknown counts as 0.

    Uses the order alone, so it needs no scores that compare; for the same reason a signal that tells nothing (an
    English embedder on Chinese) weighs as much as one that tells all.

    Args:
        constant: how slowly the weight of a rank falls; small ones trust the top.

    Source: Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet", SIGIR 2009.
    """
    if not constant >= 0:
        raise ConfigError(f"constant is {constant}", remedy="Use a number from 0; 60 is customary.")
    signals, shares = _checked(signals, weights)
    found = np.zeros_like(signals)
    for row, signal in enumerate(signals):
        known = np.flatnonzero(~np.isnan(signal))
        ascending = np.sort(-signal[known])
        ranks = np.searchsorted(ascending, -signal[known], side="left") + 1
        found[row, known] = (constant + 1) / (constant + ranks)
    return np.asarray(shares @ found)


def _checked(signals: Scores, weights: Sequence[float]) -> tuple[Scores, Scores]:
    signals = np.asarray(signals, dtype=np.float64)
    shares = np.asarray(list(weights), dtype=np.float64)
    if signals.ndim != 2 or shares.shape != (signals.shape[0],):
        raise ConfigError(
            f"{shares.size} weights for signals of shape {signals.shape}", remedy="Give one weight for each signal."
        )
    if not (np.isfinite(shares).all() and (shares >= 0).all() and shares.sum() > 0):
        raise ConfigError(f"the weights are {shares.tolist()}", remedy="Weights are not negative, and one is not 0.")
    return signals, shares / shares.sum()


def _over_known(choose: np.ufunc, signals: Scores) -> Scores:
    """The least or greatest known score of each signal; 0 for one that knows none."""
    found = choose.reduce(signals, axis=1, keepdims=True)
    return np.asarray(np.nan_to_num(found, nan=0.0))
