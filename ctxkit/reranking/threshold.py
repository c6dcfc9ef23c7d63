"""What is good enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ctxkit.checking import check_number, check_whole
from ctxkit.documents import Candidate, Query
from ctxkit.reranking.scores import ordered
from ctxkit.stage_inputs import check_candidates

__all__ = ["Threshold"]


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """Drops candidates whose `final` is below `minimum` or below a part of the best, but keeps the best `keep` anyway.

    A part of the best adapts to the question: a candidate that stands out is left nearly alone, and where many are as
    good they all stay. On Chroma's 472 questions twenty candidates cut at 0.7 of the best hold 91 % of what is wanted
    at an IoU of 18; the first eight hold as much at 7 (`docs/benchmarks.md`).

    Args:
        minimum: in [0, 1]; what it means depends on the retriever's scores, so measure before you set it.
        keep: so that a hard question is not left without any context.
        relative: the part of the best candidate's `final` that the others must reach, in [0, 1]; 0 asks nothing.

    Raises:
        ConfigError: a parameter is out of range.
    """

    minimum: float = 0.2
    keep: int = 1
    relative: float = 0.0

    def __post_init__(self) -> None:
        check_number(self.minimum, "minimum", minimum=0.0, maximum=1.0, remedy="Give 0 to 1; 0 keeps everything.")
        check_whole(self.keep, "keep", minimum=0)
        check_number(
            self.relative, "relative", minimum=0.0, maximum=1.0, remedy="Give 0 to 1; 0.7 is 70 % of the best."
        )

    def __call__(self, query: Query, candidates: Sequence[Candidate]) -> list[Candidate]:
        check_candidates(query, candidates)
        ranked = ordered(candidates)
        least = max(self.minimum, self.relative * ranked[0].score) if ranked else self.minimum
        return [one for rank, one in enumerate(ranked) if rank < self.keep or one.score >= least]
