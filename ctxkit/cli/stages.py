"""Stages from command line options."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

__all__ = ["make_stages", "moment_for"]


def make_stages(
    *, half_life: float | None = None, diversity: float | None = None, compress: bool = False, position: bool = False
) -> list[Any]:
    """The stages that the options ask for, in the order in which they make sense."""
    stages: list[Any] = []
    if half_life is not None:
        from ctxkit.reranking import TimeDecay

        stages.append(TimeDecay(half_life=timedelta(days=half_life)))
    if diversity is not None:
        from ctxkit.reranking import Diversity

        stages.append(Diversity(relevance=1 - diversity))
    if compress:
        from ctxkit.compression import SentenceCompressor

        stages.append(SentenceCompressor())
    if position:
        from ctxkit.reranking import Position

        stages.append(Position())
    return stages


def moment_for(now: datetime | None, half_life: float | None) -> datetime | None:
    """The clock, when recency matters and no time was given."""
    return datetime.now(UTC) if now is None and half_life is not None else now
