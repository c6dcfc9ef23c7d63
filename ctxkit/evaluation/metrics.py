"""Measures of a ranking against judgements. Pure functions; every one is in [0, 1]."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from ctxkit.documents import Span, intersect_spans, total_length

__all__ = ["mean", "ndcg", "recall", "span_recall"]


def ndcg(ranking: Sequence[str], relevant: Mapping[str, int], k: int = 10) -> float:
    """Normalised discounted cumulative gain of the first `k`, with linear gains as in trec_eval and BEIR.

    Source: Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques", TOIS 2002.

    Example:
        >>> ndcg(["a", "b"], {"a": 1})
        1.0
    """
    gains = (relevant.get(item, 0) for item in ranking[:k])
    gained = sum(gain / math.log2(position + 2) for position, gain in enumerate(gains))
    best = sorted(relevant.values(), reverse=True)[:k]
    ideal = sum(gain / math.log2(position + 2) for position, gain in enumerate(best))
    return gained / ideal if ideal else 0.0


def recall(ranking: Sequence[str], relevant: Iterable[str], k: int) -> float:
    """The part of the relevant items that is among the first `k`; 0 when nothing is relevant."""
    wanted = set(relevant)
    return len(wanted & set(ranking[:k])) / len(wanted) if wanted else 0.0


def span_recall(found: Mapping[str, Sequence[Span]], wanted: Mapping[str, Sequence[Span]]) -> float:
    """The part of the wanted characters that was found; both map a document's id to its spans."""
    total = sum(total_length(spans) for spans in wanted.values())
    hit = sum(total_length(intersect_spans(spans, found.get(document, ()))) for document, spans in wanted.items())
    return hit / total if total else 0.0


def mean(values: Iterable[float]) -> float:
    """The arithmetic mean; 0 of nothing."""
    numbers = list(values)
    return math.fsum(numbers) / len(numbers) if numbers else 0.0
