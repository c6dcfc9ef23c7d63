"""The best few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ctxkit.checking import check_whole
from ctxkit.documents import Candidate, Query
from ctxkit.reranking.scores import ordered
from ctxkit.stage_inputs import check_candidates

__all__ = ["TopK"]


@dataclass(frozen=True, kw_only=True)
class TopK:
    """Keeps the `k` candidates of the highest `final`, best first.

    Raises:
        ConfigError: `k` is below 1.
    """

    k: int = 10

    def __post_init__(self) -> None:
        check_whole(self.k, "k", minimum=1)

    def __call__(self, query: Query, candidates: Sequence[Candidate]) -> list[Candidate]:
        check_candidates(query, candidates)
        return ordered(candidates)[: self.k]
