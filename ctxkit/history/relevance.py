"""How much an entry bears on a question, by words and, with an embedder, by meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ctxkit.history.terms import Terms, terms_of

__all__ = ["relevance", "with_neighbours"]

_LENGTH = 0.75


def relevance(
    question: str,
    terms: Sequence[Terms],
    rarity: Mapping[str, float],
    *,
    vectors: NDArray[np.float32] | None = None,
    vector: NDArray[np.float32] | None = None,
) -> NDArray[np.float64]:
    """In [0, 1] for each entry; the signals are averaged. Linear.

    Words: the share of the question's terms that an entry has, by their rarity, and by how long it is as in BM25 with
    every term once. Meaning: the cosine of the vectors, 1 for the best.
    """
    asked = sorted(terms_of(question).keys() & rarity.keys())
    words = np.zeros(len(terms))
    if asked:
        mean = sum(map(len, terms)) / len(terms) or 1.0
        for at, each in enumerate(terms):
            shared = sum(rarity[term] for term in asked if term in each)
            if shared:
                words[at] = shared * 2.2 / (1 + 1.2 * (1 - _LENGTH + _LENGTH * len(each) / mean))
        words /= 2.2 * sum(rarity[term] for term in asked)
    if vectors is None or vector is None:
        return words
    cosines = np.clip(vectors @ vector, 0.0, None).astype(np.float64)
    best = cosines.max(initial=0.0)
    if best > 0:
        cosines /= best
    return np.asarray((words + cosines) / 2)


def with_neighbours(scores: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """Each score and a share of the higher one of its two neighbours': what is said next to an answer is part of it."""
    if not len(scores):
        return scores
    before, after = np.concatenate(([0.0], scores[:-1])), np.concatenate((scores[1:], [0.0]))
    return np.asarray(scores + share * np.maximum(before, after))
