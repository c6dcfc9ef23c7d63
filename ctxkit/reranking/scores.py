"""Scores on one scale, and one order for all rerankers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ctxkit.documents import Candidate

__all__ = ["ordered", "unit_scores"]


def unit_scores(candidates: Sequence[Candidate]) -> list[float]:
    """Each candidate's `final` in [0, 1]; none, NaN and infinity are 0.

    Scores that are in [0, 1] already stay as they are: 0 stays the worst and nothing is stretched. Others (a foreign
    retriever's logits or distances) are divided by their maximum, or min-max scaled where some are negative.
    """
    scores = [candidate.score if math.isfinite(candidate.score) else 0.0 for candidate in candidates]
    low, high = min(scores, default=0.0), max(scores, default=0.0)
    if low >= 0.0 and high <= 1.0:
        return scores
    if low >= 0.0:
        return [score / high for score in scores]
    # Halved before subtracting: the difference of two huge scores would overflow.
    span = high / 2 - low / 2
    return [(score / 2 - low / 2) / span if span else 0.0 for score in scores]


def ordered(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Best `final` first; equals by chunk id, so that the order never depends on the order of arrival."""
    return sorted(candidates, key=lambda candidate: (-candidate.score, candidate.chunk.id))
