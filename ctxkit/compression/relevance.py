"""How much each sentence matters to the question: words and meaning, fused by rank."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ctxkit.compression.terms import question_terms, terms
from ctxkit.errors import EmbeddingError
from ctxkit.protocols import Embedder

__all__ = ["fuse", "lexical_scores", "semantic_scores"]

_K1, _B = 1.2, 0.75
_FUSION_CONSTANT = 10
"""Small, because the first few ranks are what is kept; 60 suits lists of a thousand documents."""


def lexical_scores(question: str, sentences: Sequence[str]) -> NDArray[np.float64]:
    """BM25 of each sentence for the question, the sentences being the collection. Linear in their length.

    Source: Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009.
    """
    asked = Counter(question_terms(question))
    counts = [Counter(terms(sentence)) for sentence in sentences]
    lengths = np.array([sum(count.values()) for count in counts], dtype=np.float64)
    mean = float(lengths.mean()) if len(lengths) and lengths.any() else 1.0
    scores = np.zeros(len(sentences))
    for term, times in asked.items():
        rows = [row for row, count in enumerate(counts) if term in count]
        if not rows:
            continue
        weight = times * math.log(1 + (len(sentences) - len(rows) + 0.5) / (len(rows) + 0.5))
        found = np.array([counts[row][term] for row in rows], dtype=np.float64)
        norm = _K1 * (1 - _B + _B * lengths[rows] / mean)
        scores[rows] += weight * found * (_K1 + 1) / (found + norm)
    return scores


def semantic_scores(
    question: str, sentences: Sequence[str], embedder: Embedder, *, batch_size: int
) -> NDArray[np.float64]:
    """Cosine of each sentence and the question.

    Raises:
        EmbeddingError: the embedder does not return a row for each text.
    """
    query = np.asarray(embedder.embed([question]), dtype=np.float64)
    scores = np.zeros(len(sentences))
    for start in range(0, len(sentences), batch_size):
        batch = list(sentences[start : start + batch_size])
        vectors = np.asarray(embedder.embed(batch), dtype=np.float64)
        if vectors.shape != (len(batch), query.shape[-1]):
            raise EmbeddingError(
                f"{len(batch)} texts gave vectors of shape {vectors.shape}",
                subject=type(embedder).__name__,
                remedy="An embedder returns one row for each text.",
            )
        scores[start : start + len(batch)] = vectors @ query[0]
    # A vector differs by some 1e-6 with what it is batched with; equal sentences must stay equal.
    return np.asarray(np.round(np.nan_to_num(scores), 4), dtype=np.float64)


def fuse(*signals: NDArray[np.float64]) -> NDArray[np.float64]:
    """Reciprocal rank fusion: the sum of 1 / (constant + rank) over the signals; equals share the best of their ranks.

    Source: Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet", SIGIR 2009.
    """
    total = np.zeros(len(signals[0]))
    for signal in signals:
        descending = np.sort(signal)[::-1]
        ranks = np.searchsorted(-descending, -signal, side="left")
        total += 1.0 / (_FUSION_CONSTANT + 1 + ranks)
    return total
