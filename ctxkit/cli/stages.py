"""Stages from command line options."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ctxkit.checking import check_number
from ctxkit.errors import ConfigError

if TYPE_CHECKING:
    from ctxkit.engine import ContextEngine
    from ctxkit.protocols import Model

__all__ = ["make_stages", "moment_for"]


FENCE = 28
"""About what the fence around a document costs in tokens; a compressor leaves room for it."""


def make_stages(
    engine: ContextEngine,
    *,
    model: str | Model | None = None,
    half_life: float | None = None,
    diversity: float | None = None,
    neighbours: bool = False,
    compress: bool = False,
    position: bool = False,
) -> tuple[Any, ...]:
    """The stages that the options ask for, in the order in which they make sense, with the engine's own parts."""
    if half_life is not None and not 0 < half_life < math.inf:
        raise ConfigError(f"--half-life is {half_life:g}", remedy="Give days, more than 0.")
    if diversity is not None:
        check_number(
            diversity, "--diversity", minimum=0, maximum=1, remedy="Give 0 (relevance only) to 1 (variety only)."
        )
    stages: list[Any] = []
    if neighbours:
        from ctxkit.retrieval import Hybrid, Neighbourhood

        graph = engine.retriever.graph if isinstance(engine.retriever, Hybrid) else None
        stages.append(Neighbourhood(engine.store, graph=graph))
    if half_life is not None:
        from ctxkit.reranking import TimeDecay

        stages.append(TimeDecay(half_life=half_life * 86_400))
    if diversity is not None:
        from ctxkit.reranking import Diversity

        stages.append(Diversity(relevance=1 - diversity, embedder=engine.embedder))
    if compress:
        from ctxkit.compression import SentenceCompressor

        counter, _ = engine.target(model)
        stages.append(
            SentenceCompressor(counter=counter, embedder=engine.embedder, overhead=FENCE, sentences=engine.sentences)
        )
    if position:
        from ctxkit.reranking import Position

        stages.append(Position())
    return tuple(stages)


def moment_for(now: datetime | None, half_life: float | None, *, recall: bool = False) -> datetime | None:
    """The clock, when recency or the dates of a question matter and no time was given."""
    return datetime.now(UTC) if now is None and (half_life is not None or recall) else now
