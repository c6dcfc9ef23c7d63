"""Best first and last, worst in the middle, where models read least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ctxkit.documents import Candidate, Query
from ctxkit.reranking.scores import ordered
from ctxkit.stage_inputs import check_candidates

__all__ = ["Position"]


@dataclass(frozen=True, kw_only=True)
class Position:
    """Orders by `final` and lays the ranks 1, 3, 5, … from the front and 2, 4, 6, … from the back.

    Scores stay as they are: this is an order to send in, so let it be the last stage. Whoever has no score counts as
    the worst. O(n log n).

    Source: Liu et al., "Lost in the Middle: How Language Models Use Long Contexts", TACL 2024.

    Example:
        >>> Position()(Query("x"), [])
        []
    """

    def __call__(self, query: Query, candidates: Sequence[Candidate]) -> list[Candidate]:
        check_candidates(query, candidates)
        ranked = ordered(candidates)
        return ranked[::2] + ranked[1::2][::-1]
