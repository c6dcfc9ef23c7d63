"""What is good enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ctxkit.checking import check_number, check_whole
from ctxkit.documents import Candidate, Query
from ctxkit.reranking.scores import ordered

__all__ = ["Threshold"]


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """Drops candidates whose `final` is below `minimum`, but keeps the best `keep` in any case.

    Args:
        minimum: in [0, 1]; what it means depends on the retriever's scores, so measure before you set it.
        keep: so that a hard question is not left without any context.

    Raises:
        ConfigError: a parameter is out of range.
    """

    minimum: float = 0.2
    keep: int = 1

    def __post_init__(self) -> None:
        check_number(self.minimum, "minimum", minimum=0.0, maximum=1.0, remedy="Give 0 to 1; 0 keeps everything.")
        check_whole(self.keep, "keep", minimum=0)

    def __call__(self, query: Query, candidates: Sequence[Candidate]) -> list[Candidate]:
        ranked = ordered(candidates)
        return [one for rank, one in enumerate(ranked) if rank < self.keep or one.score >= self.minimum]
