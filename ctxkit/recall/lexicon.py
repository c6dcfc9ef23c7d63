"""The words of a dialogue's entries, searched all at once: BM25 in memory, grown entry by entry."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ctxkit.retrieval import BM25, Analyzer

__all__ = ["Lexicon"]

Scores = NDArray[np.float64]


class Lexicon:
    """Postings by term. A query costs its postings; adding costs the text."""

    def __init__(self, analyzer: Analyzer, weights: BM25) -> None:
        self.analyzer = analyzer
        self.weights = weights
        self._postings: dict[int, tuple[list[int], list[int]]] = {}
        self._lengths: list[int] = []

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, text: str) -> None:
        row = len(self._lengths)
        terms, counts = np.unique(self.analyzer.terms(text), return_counts=True)
        self._lengths.append(int(counts.sum()))
        for term, count in zip(terms.tolist(), counts.tolist(), strict=True):
            rows, frequencies = self._postings.setdefault(term, ([], []))
            rows.append(row)
            frequencies.append(count)

    def rarity(self, term: int) -> float:
        """`ln(1 + (n - df + 0.5) / (df + 0.5))`, as in BM25; that of an unknown term for one that no entry has."""
        held = len(self._postings.get(term, ((), ()))[0])
        return float(np.log1p((len(self._lengths) - held + 0.5) / (held + 0.5)))

    def scores(self, terms: Iterable[int]) -> Scores:
        """The BM25 sum of every entry, 0 for those that hold no term."""
        found = np.zeros(len(self._lengths))
        if not len(found):
            return found
        lengths = np.array(self._lengths, dtype=np.float64)
        k1, b = self.weights.k1, self.weights.b
        norm = k1 * (1 - b + b * lengths / max(1.0, lengths.mean()))
        for term in terms:
            if term in self._postings:
                rows, counts = self._postings[term]
                frequencies = np.array(counts, dtype=np.float64)
                found[rows] += self.rarity(term) * frequencies / (frequencies + norm[rows])
        return found
