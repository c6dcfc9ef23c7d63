"""Maximal marginal relevance: what is relevant and not said yet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ctxkit.checking import check_able, check_number, check_whole
from ctxkit.documents import Candidate, Query
from ctxkit.embedded import embedded
from ctxkit.protocols import Embedder
from ctxkit.reranking.scores import unit_scores
from ctxkit.stage_inputs import check_candidates
from ctxkit.text import words

__all__ = ["Diversity"]


@dataclass(frozen=True, kw_only=True)
class Diversity:
    """Takes candidates one by one, each the best of `relevance * score + (1 - relevance) * novelty`.

    Novelty is 1 minus the greatest similarity to what was taken before: cosine of embeddings, or, without an embedder,
    the Jaccard index of their words. Sets `scores["diversity"]` (the novelty) and `final` (the sum above, in [0, 1]
    and falling along the result). O(k * n * dimension) time and O(n * dimension) memory; no matrix of all pairs.

    Args:
        relevance: the lambda of the paper: 1 keeps the order, 0 only avoids repeats.
        k: how many to keep; None keeps all.
        embedder: measures similarity by meaning; None by words.
        batch_size: texts embedded at once.

    Raises:
        ConfigError: a parameter is out of range.

    Source: Carbonell and Goldstein, "The Use of MMR, Diversity-Based Reranking", SIGIR 1998.

    Example:
        >>> Diversity(relevance=0.7, k=5)(Query("x"), [])
        []
    """

    relevance: float = 0.7
    k: int | None = None
    embedder: Embedder | None = None
    batch_size: int = 64

    def __post_init__(self) -> None:
        check_number(
            self.relevance,
            "relevance",
            minimum=0.0,
            maximum=1.0,
            remedy="Give 0 to 1: 1 is relevance alone, 0 variety alone.",
        )
        if self.k is not None:
            check_whole(self.k, "k", minimum=1, remedy="Give 1 or more, or None for all.")
        if self.embedder is not None:
            check_able(self.embedder, "embed", "embedder", remedy="Give an embedder, or None to compare words.")
        check_whole(self.batch_size, "batch_size", minimum=1)

    def __call__(self, query: Query, candidates: Sequence[Candidate]) -> list[Candidate]:
        check_candidates(query, candidates)
        if not candidates:
            return []
        scored = zip(candidates, unit_scores(candidates), strict=True)
        # In this order, the first of equals is the one with the lower id.
        pool = sorted(scored, key=lambda item: (-item[1], item[0].chunk.id))
        texts = [candidate.text for candidate, _ in pool]
        similar: _Similarity = _Words(texts) if self.embedder is None else _Vectors(self._embed(self.embedder, texts))
        relevance = np.array([score for _, score in pool])
        nearest = np.zeros(len(pool))
        open_ = np.ones(len(pool), dtype=bool)
        taken: list[Candidate] = []
        for _ in range(min(self.k or len(pool), len(pool))):
            value = self.relevance * relevance + (1.0 - self.relevance) * (1.0 - nearest)
            best = int(np.argmax(np.where(open_, value, -1.0)))
            open_[best] = False
            final = min(1.0, max(0.0, float(value[best])))
            taken.append(pool[best][0].scored(diversity=1.0 - float(nearest[best]), final=final))
            np.maximum(nearest, similar.to(best), out=nearest)
        return taken

    def _embed(self, embedder: Embedder, texts: list[str]) -> NDArray[np.float32]:
        batches = [
            embedded(embedder, texts[start : start + self.batch_size])
            for start in range(0, len(texts), self.batch_size)
        ]
        return np.concatenate(batches)


class _Similarity(Protocol):
    def to(self, row: int) -> NDArray[np.float64]:
        """The similarity, in [0, 1], of every text to the one in `row`."""
        ...


class _Vectors:
    def __init__(self, vectors: NDArray[np.float32]) -> None:
        self._vectors = vectors

    def to(self, row: int) -> NDArray[np.float64]:
        return np.asarray(np.clip(self._vectors @ self._vectors[row], 0.0, 1.0), dtype=np.float64)


class _Words:
    """The Jaccard index of the texts' words, by an inverted index: only texts that share a word are touched."""

    def __init__(self, texts: list[str]) -> None:
        # A text without a word is its own only word: equal signs are equal, unequal ones are not.
        self._rows = [frozenset(words(text)) or frozenset([f"\0{text}"]) for text in texts]
        self._sizes = np.array([len(row) for row in self._rows], dtype=np.float64)
        postings: defaultdict[str, list[int]] = defaultdict(list)
        for row, terms in enumerate(self._rows):
            for term in terms:
                postings[term].append(row)
        self._postings = {term: np.array(rows) for term, rows in postings.items()}

    def to(self, row: int) -> NDArray[np.float64]:
        shared = np.zeros(len(self._rows))
        for term in self._rows[row]:
            shared[self._postings[term]] += 1.0
        return np.asarray(shared / (self._sizes + self._sizes[row] - shared), dtype=np.float64)
