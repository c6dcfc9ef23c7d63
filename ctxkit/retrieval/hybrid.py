"""Retrieval by meaning and by words together: the default retriever."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ctxkit.documents import Candidate, Query
from ctxkit.errors import ConfigError, NotFoundError
from ctxkit.protocols import Embedder, TokenCounter
from ctxkit.retrieval.candidates import check_query, fetch
from ctxkit.retrieval.dense import Dense
from ctxkit.retrieval.fusion import Fusion, max_normalised
from ctxkit.retrieval.lexical import Lexical
from ctxkit.retrieval.neighbours import drop_copies, merge_neighbours
from ctxkit.retrieval.postings import BM25
from ctxkit.retrieval.terms import Analyzer

if TYPE_CHECKING:
    from ctxkit.storage import Store

__all__ = ["Hybrid"]

Keys = NDArray[np.int64]
Scores = NDArray[np.float64]

_EQUAL: Mapping[str, float] = MappingProxyType({"dense": 1.0, "lexical": 1.0})
_DECIMALS = 9
"""Fused scores are rounded, so that what is equal on paper is a tie on every machine."""


@dataclass(eq=False)
class Hybrid:
    """Fuses what an embedder finds with what words find, and joins what belongs together.

    Both signals give their best `depth` chunks; each chunk that only one of them gave is then scored by the other too,
    so the fusion sees both scores of all. A candidate's scores are `dense` (cosine) and `lexical` (the part of the most
    BM25 that a text could have for this question), which compare between questions, and `final` (fused), which orders
    the candidates of one question. Overlapping chunks of one document are one candidate, and copies of a text are
    dropped, so that a character comes once. Ties go by key while searching, by document and place at the end.

    Args:
        store: whose chunks.
        embedder: the one that the chunks were stored with; None for words alone.
        fusion: from `ctxkit.retrieval.fusion`, or your own; `functools.partial(reciprocal_rank, constant=10)` too.
        weights: of `dense` and `lexical`; only their ratio matters.
        depth: how many chunks each signal gives at least; four for each candidate asked for, if that is more.
        join: whether overlapping chunks are joined and copies dropped.
        max_joined_tokens: chunks that only touch are joined up to so many tokens. 0, the default, joins none: a weak
            neighbour that rides on a strong chunk's score costs more than it brings (`docs/decisions/0003-fusion.md`).
        counter: counts joined chunks; without one their tokens are estimated from their parts'.
        bm25: k1 and b of the lexical signal.
        analyzer: turns texts into terms; choose the stemmer's language here.

    Raises:
        ConfigError: a parameter is wrong, `k` is not positive, or the query is another tenant's.
        EmbeddingError: there are chunks, but none was embedded by this embedder.

    Example:
        >>> from ctxkit.storage import Store
        >>> Hybrid(Store.open("sqlite://"), None).retrieve(Query("anything"), 10)
        []
    """

    store: Store
    embedder: Embedder | None
    _: KW_ONLY
    fusion: Fusion = max_normalised
    weights: Mapping[str, float] = field(default_factory=lambda: dict(_EQUAL))
    depth: int = 100
    join: bool = True
    max_joined_tokens: int | None = 0
    counter: TokenCounter | None = None
    bm25: BM25 = field(default_factory=BM25)
    analyzer: Analyzer = field(default_factory=Analyzer)
    dense: Dense | None = field(init=False, repr=False)
    lexical: Lexical = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise ConfigError(f"depth is {self.depth}", remedy="Each signal must give at least one chunk.")
        if self.max_joined_tokens is not None and self.max_joined_tokens < 0:
            raise ConfigError(f"max_joined_tokens is {self.max_joined_tokens}", remedy="Use 0 or more, or None.")
        if unknown := set(self.weights) - set(_EQUAL):
            raise ConfigError(f"there is no signal {sorted(unknown)}", remedy=f"Signals: {', '.join(_EQUAL)}.")
        self.lexical = Lexical(self.store, weights=self.bm25, analyzer=self.analyzer)
        self.dense = None if self.embedder is None else Dense(self.store, self.embedder)
        self._fuse(np.zeros((len(self._signals), 0)))  # complains now, and not at the first question

    @property
    def _signals(self) -> tuple[str, ...]:
        return ("lexical",) if self.dense is None else ("dense", "lexical")

    def retrieve(self, query: Query, k: int) -> list[Candidate]:
        if not check_query(self.store, query, k):
            return []
        keys, scores = self.rank(query, max(self.depth, 4 * k))
        text_of = cache(self._text_of)
        wanted = k
        while True:
            found = fetch(self.store, keys[:wanted], {name: values[:wanted] for name, values in scores.items()})
            if self.join:
                found = drop_copies(
                    merge_neighbours(found, max_tokens=self.max_joined_tokens, counter=self.counter, text_of=text_of)
                )
            if len(found) >= k or wanted >= len(keys):
                return found[:k]
            wanted += 2 * (k - len(found))

    def _text_of(self, document_id: str) -> str:
        try:
            return self.store.documents.get(document_id).text
        except NotFoundError:
            return ""

    def rank(self, query: Query, depth: int) -> tuple[Keys, dict[str, Scores]]:
        """Keys of everything that a signal found among its best `depth`, best first, and their scores by signal."""
        allowed = self.store.documents.matching_keys(query.filters)
        if self.dense is None:
            keys, lexical = self.lexical.rank(query, depth, keys=allowed)
            return self._ordered(keys, [lexical])
        vector = self.dense.embedder.embed([query.text])[0]
        with self.dense.current(), self.lexical.index.current():
            near, dense = self.dense.nearest(vector, depth, keys=allowed)
            keys, lexical = self.lexical.rank(query, depth, keys=allowed)
            if len(more := np.setdiff1d(near, keys)):
                found, scores = self.lexical.rank(query, len(more), keys=more)
                keys, lexical = np.concatenate([keys, found]), np.concatenate([lexical, scores])
            if len(more := np.setdiff1d(keys, near)):
                found, scores = self.dense.nearest(vector, len(more), keys=more)
                near, dense = np.concatenate([near, found]), np.concatenate([dense, scores])
        union = np.union1d(keys, near)
        return self._ordered(union, [_aligned(union, near, dense), _aligned(union, keys, lexical)])

    def _ordered(self, keys: Keys, signals: list[Scores]) -> tuple[Keys, dict[str, Scores]]:
        final = np.round(np.clip(self._fuse(np.array(signals)), 0.0, 1.0), _DECIMALS)
        order = np.lexsort((keys, -final))
        scores = {
            name: np.where(np.isnan(signal), 0.0, signal)[order]
            for name, signal in zip(self._signals, signals, strict=True)
        }
        return keys[order], {**scores, "final": final[order]}

    def _fuse(self, signals: Scores) -> Scores:
        fused = np.asarray(self.fusion(signals, [self.weights.get(name, 0.0) for name in self._signals]))
        if fused.shape != signals.shape[1:] or not np.isfinite(fused).all():
            raise ConfigError(
                f"the fusion gave an array of shape {fused.shape} for {signals.shape[1]} candidates, or not finite",
                remedy="A fusion gives one finite score in [0, 1] a candidate.",
            )
        return fused


def _aligned(union: Keys, keys: Keys, scores: Scores) -> Scores:
    """The scores in the order of the union, NaN where there is none."""
    values = np.full(len(union), np.nan)
    values[np.searchsorted(union, keys)] = scores
    return values
