"""Retrieval by words: BM25 over an inverted index that follows the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ctxkit.documents import Candidate, Query
from ctxkit.retrieval.candidates import check_query, fetch
from ctxkit.retrieval.derived import DerivedIndex
from ctxkit.retrieval.postings import BM25, InvertedIndex
from ctxkit.retrieval.terms import Analyzer

if TYPE_CHECKING:
    from ctxkit.storage import Store

__all__ = ["Lexical", "LexicalIndex"]

Keys = NDArray[np.int64]
Scores = NDArray[np.float64]

_BATCH = 2_000
"""Chunks that are turned into terms at once; bounds the memory of a rebuild."""


class LexicalIndex(DerivedIndex):
    """The terms of a tenant's chunks: their titles, headings and texts."""

    def __init__(self, store: Store, analyzer: Analyzer) -> None:
        super().__init__(store, kind="lexical", recipe=analyzer.name)
        self.analyzer = analyzer
        self._index = InvertedIndex()

    def search(self, text: str, k: int, weights: BM25, *, keys: Keys | None = None) -> tuple[Keys, Scores]:
        """The best `k` keys for a question, and their scores in [0, 1)."""
        terms = self.analyzer.query_terms(text)
        with self.current():
            return self._index.search(terms, k, weights, keys=keys)

    def clear(self) -> None:
        self._index = InvertedIndex()

    def add(self, keys: Keys) -> None:
        texts = self.store.documents.index_texts(keys)
        while batch := list(islice(texts, _BATCH)):
            self._index.add([key for key, _ in batch], [self.analyzer.terms(text) for _, text in batch])

    def remove(self, keys: Keys) -> None:
        self._index.remove(keys)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return self._index.to_arrays()

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._index = InvertedIndex.from_arrays(arrays)


@dataclass(eq=False)
class Lexical:
    """Finds chunks by the words of the question, rare words weighing more (BM25).

    Words are stemmed; Chinese and Japanese go by character bigrams. A score is in [0, 1): the part of the most that a
    text could have for this question, so it says how much of the question was found. A question without words, or
    none that any chunk has, finds nothing. Costs the postings of the question's words.

    Args:
        store: whose chunks; the index follows it and keeps a copy beside it.
        weights: k1 and b of BM25.
        analyzer: turns texts into terms; choose the stemmer's language here.

    Raises:
        ConfigError: `k` is not positive, or the query is another tenant's.

    Source: Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009.

    Example:
        >>> from ctxkit.storage import Store
        >>> Lexical(Store.open("sqlite://")).retrieve(Query("anything"), 10)
        []
    """

    store: Store
    _: KW_ONLY
    weights: BM25 = field(default_factory=BM25)
    analyzer: Analyzer = field(default_factory=Analyzer)

    @cached_property
    def index(self) -> LexicalIndex:
        return LexicalIndex(self.store, self.analyzer)

    def rank(self, query: Query, k: int, *, keys: Keys | None = None) -> tuple[Keys, Scores]:
        """Keys and scores of the best `k` chunks, among these keys where some are given."""
        return self.index.search(query.text, k, self.weights, keys=keys)

    def retrieve(self, query: Query, k: int) -> list[Candidate]:
        if not check_query(self.store, query, k):
            return []
        keys, scores = self.rank(query, k, keys=self.store.documents.matching_keys(query.filters))
        return fetch(self.store, keys, {"lexical": scores, "final": scores})
