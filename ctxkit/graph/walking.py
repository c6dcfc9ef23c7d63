"""Personalised PageRank on a sparse graph: where a walker that keeps returning to a question's places is found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ctxkit.errors import ConfigError

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

__all__ = ["Walk"]

Shares = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Walk:
    """A walker on a weighted graph: it follows an edge in proportion to its weight, or returns to where it started.

    Args:
        steps: (n, n) float64, column-stochastic but for columns of 0: `steps[i, j]` is the chance to go from j to i.
            `Walk.over` makes it from weights.

    Source: Page et al., "The PageRank Citation Ranking", 1999; Haveliwala, "Topic-Sensitive PageRank", WWW 2002.

    Example:
        >>> from scipy.sparse import csr_matrix
        >>> walk = Walk.over(csr_matrix([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
        >>> walk.from_places([1, 0, 0], damping=0.5).round(3).tolist()
        [0.583, 0.333, 0.083]
    """

    steps: csr_matrix

    @classmethod
    def over(cls, weights: Any) -> Walk:
        """The walker on a graph of these weights, (n, n) sparse, `weights[i, j]` from i to j, none negative.

        Linear in the edges. Raises `ConfigError` for weights of another shape, negative or not finite.
        """
        from scipy.sparse import csr_matrix

        matrix = csr_matrix(weights, dtype=np.float64)
        if matrix.shape[0] != matrix.shape[1]:
            raise ConfigError(f"the weights have the shape {matrix.shape}", remedy="Give a square matrix.")
        if matrix.nnz and not (np.isfinite(matrix.data).all() and matrix.data.min() >= 0):
            raise ConfigError("an edge has a negative weight, or none", remedy="Weights are finite and not negative.")
        total = np.asarray(matrix.sum(axis=1), dtype=np.float64).ravel()
        share = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
        # Row i, divided by its sum, becomes column i.
        matrix.data = matrix.data * np.repeat(share, np.diff(matrix.indptr))
        return cls(matrix.T.tocsr())

    def __len__(self) -> int:
        return int(self.steps.shape[0])

    def from_places(
        self, start: ArrayLike, *, damping: float = 0.85, tolerance: float = 1e-6, most: int = 200
    ) -> Shares:
        """Where the walker is in the long run: (n,) not negative, sum 1; all 0 where it starts nowhere.

        A place without a way out sends it back to the start, as `networkx.pagerank` has it. O(edges * steps), with
        `log(tolerance) / log(damping)` steps at most; the same on every machine but for rounding.

        Args:
            start: (n,) weights of the places where it starts and returns to, not negative; only ratios matter.
            damping: the chance in [0, 1) to walk on; the longer the walk, the farther from the start it is found.
            tolerance: it ends when a step moves less than this share of it.
            most: of the steps.

        Raises:
            ConfigError: `start` has another length or negative weights, or a parameter is out of its range.
        """
        home = np.asarray(start, dtype=np.float64)
        if home.shape != (len(self),) or (home.size and not (np.isfinite(home).all() and home.min() >= 0)):
            raise ConfigError(
                f"the start has the shape {home.shape} for {len(self)} places, or negative weights",
                remedy="Give one weight a place, not negative.",
            )
        if not 0 <= damping < 1:
            raise ConfigError(f"damping is {damping}", remedy="Use a number from 0 to below 1; 0.85 is customary.")
        if not tolerance > 0 or most < 1:
            raise ConfigError(f"tolerance is {tolerance} and most {most}", remedy="Both must be above 0.")
        total = home.sum()
        if not total > 0:
            return np.zeros(len(self))
        home = home / total
        found = home
        for _ in range(most):
            walked = damping * (self.steps @ found)
            # What did not arrive was at a place without a way out, or has turned round.
            walked += (1.0 - walked.sum()) * home
            moved = np.abs(walked - found).sum()
            found = walked
            if moved < tolerance:
                break
        return np.asarray(found)
