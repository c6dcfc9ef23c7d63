"""Whether a difference between two systems on the same questions could be chance."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["Difference", "paired_bootstrap"]


class Difference(NamedTuple):
    """A mean difference and its 95 % interval."""

    mean: float
    low: float
    high: float


def paired_bootstrap(ours: ArrayLike, theirs: ArrayLike, *, rounds: int = 2000, seed: int = 0) -> Difference:
    """The mean of `ours - theirs`, question by question, and the interval of that mean over resampled questions.

    Source: Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13: percentile intervals.

    Example:
        >>> paired_bootstrap([1.0, 1.0], [0.0, 0.0])
        Difference(mean=1.0, low=1.0, high=1.0)
    """
    differences = np.asarray(ours, dtype=float) - np.asarray(theirs, dtype=float)
    random = np.random.default_rng(seed)
    chosen = random.integers(0, len(differences), size=(rounds, len(differences)))
    low, high = np.percentile(differences[chosen].mean(axis=1), (2.5, 97.5))
    return Difference(float(differences.mean()), float(low), float(high))
