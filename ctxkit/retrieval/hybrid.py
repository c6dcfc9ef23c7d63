"""Retrieval by meaning, by words and through the graph together: the default retriever."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ctxkit.documents import Candidate, Query
from ctxkit.embedded import embedded
from ctxkit.errors import ConfigError, NotFoundError
from ctxkit.protocols import Embedder, TokenCounter
from ctxkit.retrieval.candidates import check_query, fetch
from ctxkit.retrieval.dense import Dense
from ctxkit.retrieval.fusion import Fusion, max_normalised
from ctxkit.retrieval.graph import Graph, Walked
from ctxkit.retrieval.lexical import Lexical
from ctxkit.retrieval.neighbours import drop_copies, merge_neighbours
from ctxkit.retrieval.postings import BM25
from ctxkit.retrieval.terms import Analyzer

if TYPE_CHECKING:
    from ctxkit.storage import Store

__all__ = ["Hybrid"]

Keys = NDArray[np.int64]
Scores = NDArray[np.float64]

_WEIGHTS: Mapping[str, float] = MappingProxyType({"dense": 1.0, "lexical": 1.0, "graph": 3.0})
_DECIMALS = 9
"""Fused scores are rounded, so that what is equal on paper is a tie on every machine."""


@dataclass(eq=False)
class Hybrid:
    """Fuses what an embedder finds, what words find and where a walk from both leads, and joins what belongs together.

    The embedder and the words give their best `depth` chunks; each chunk that only one of them gave is then scored by
    the other too, so the fusion sees both scores of all. The walk (`Graph`) starts at the best of these and at the
    names in the question, and gives its own best `depth`. A candidate's scores are `dense` (cosine) and `lexical` (the
    part of the most BM25 that a text could have for this question), which compare between questions, `graph` (relative
    to the best of this question), and `final` (fused), which orders the candidates of one question; `via` says through
    which names the walk came. Where no stored document names an entity there is no `graph`, and everything is as
    without it; `describe` says so. Overlapping chunks of one document are one candidate, and copies of a text are
    dropped, so that a character comes once. Ties go by key while searching, by document and place at the end.

    Args:
        store: whose chunks.
        embedder: the one that the chunks were stored with; None for words alone.
        fusion: from `ctxkit.retrieval.fusion`, or your own; `functools.partial(reciprocal_rank, constant=10)` too.
        weights: of `dense`, `lexical` and `graph`; only their ratio matters, and a signal that is not named has none.
        depth: how many chunks each signal gives at least; four for each candidate asked for, if that is more.
        join: whether overlapping chunks are joined and copies dropped.
        max_joined_tokens: chunks that only touch are joined up to so many tokens. 0, the default, joins none: a weak
            neighbour that rides on a strong chunk's score costs more than it brings (`docs/decisions/0003-fusion.md`).
        counter: counts joined chunks; without one their tokens are estimated from their parts'.
        bm25: k1 and b of the lexical signal.
        analyzer: turns texts into terms; choose the stemmer's language here.
        graph: how the graph is walked; default a `Graph` with its own defaults.

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
    weights: Mapping[str, float] = field(default_factory=lambda: dict(_WEIGHTS))
    depth: int = 100
    join: bool = True
    max_joined_tokens: int | None = 0
    counter: TokenCounter | None = None
    bm25: BM25 = field(default_factory=BM25)
    analyzer: Analyzer = field(default_factory=Analyzer)
    graph: Graph | None = None
    index_kind: Literal["flat", "tiered", "int4"] = "flat"
    dense: Dense | None = field(init=False, repr=False)
    lexical: Lexical = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise ConfigError(f"depth is {self.depth}", remedy="Each signal must give at least one chunk.")
        if self.max_joined_tokens is not None and self.max_joined_tokens < 0:
            raise ConfigError(f"max_joined_tokens is {self.max_joined_tokens}", remedy="Use 0 or more, or None.")
        if unknown := set(self.weights) - set(_WEIGHTS):
            raise ConfigError(f"there is no signal {sorted(unknown)}", remedy=f"Signals: {', '.join(_WEIGHTS)}.")
        self.lexical = Lexical(self.store, weights=self.bm25, analyzer=self.analyzer)
        self.dense = None if self.embedder is None else Dense(self.store, self.embedder, index_kind=self.index_kind)
        if self.graph is None:
            self.graph = Graph(self.store)
        for names in (self._plain, (*self._plain, "graph")):  # complains now, and not at the first question
            self._fuse(names, np.zeros((len(names), 0)))

    @property
    def _plain(self) -> tuple[str, ...]:
        """The signals that find by themselves."""
        return ("lexical",) if self.dense is None else ("dense", "lexical")

    def retrieve(self, query: Query, k: int) -> list[Candidate]:
        if not check_query(self.store, query, k):
            return []
        keys, scores, walked = self._ranked(query, max(self.depth, 4 * k))
        text_of = cache(self._text_of)
        wanted = k
        while True:
            found = fetch(self.store, keys[:wanted], {name: values[:wanted] for name, values in scores.items()})
            if self.join:
                found = drop_copies(
                    merge_neighbours(found, max_tokens=self.max_joined_tokens, counter=self.counter, text_of=text_of)
                )
            if len(found) >= k or wanted >= len(keys):
                return [_explained(candidate, walked) for candidate in found[:k]]
            wanted += 2 * (k - len(found))

    def describe(self) -> dict[str, str]:
        """What the signals rest on just now, for a trace: whether there is a graph, and why not."""
        if not self._walks:
            return {"graph": "not used: its weight is 0"}
        graph = self.graph.index.graph() if self.graph is not None else None
        if graph is None:
            return {"graph": "not used: no stored document names an entity; ingest with an extractor"}
        return {"graph": f"{len(graph.keys):,} chunks, {len(graph.names):,} names"}

    @property
    def _walks(self) -> bool:
        return self.weights.get("graph", 0.0) > 0

    def _text_of(self, document_id: str) -> str:
        try:
            return self.store.documents.get(document_id).text
        except NotFoundError:
            return ""

    def rank(self, query: Query, depth: int) -> tuple[Keys, dict[str, Scores]]:
        """Keys of everything that a signal found among its best `depth`, best first, and their scores by signal."""
        keys, scores, _ = self._ranked(query, depth)
        return keys, scores

    def _ranked(self, query: Query, depth: int) -> tuple[Keys, dict[str, Scores], Walked | None]:
        allowed = self.store.documents.matching_keys(query.filters)
        vector = None if self.dense is None else embedded(self.dense.embedder, [query.text])[0]
        with ExitStack() as still:
            if self.dense is not None:
                still.enter_context(self.dense.current())
            still.enter_context(self.lexical.index.current())
            found = {name: self._search(name, query, vector, depth, allowed) for name in self._plain}
            union = np.unique(np.concatenate([keys for keys, _ in found.values()]))
            found = self._completed(found, union, query, vector)
            keys, scores = self._ordered(union, {name: _aligned(union, *found[name]) for name in self._plain})
            walked = self.graph.walk(query.text, keys, scores["final"]) if self._walks and self.graph else None
            if walked is None:
                return keys, scores, None
            more = np.setdiff1d(walked.best(depth, keys=allowed), union)
            found = self._completed(found, more, query, vector)
        union = np.union1d(union, more)
        signals = {name: _aligned(union, *found[name]) for name in self._plain}
        keys, scores = self._ordered(union, {**signals, "graph": walked.of(union)})
        return keys, scores, walked

    def _search(self, name: str, query: Query, vector: Any, depth: int, keys: Keys | None) -> tuple[Keys, Scores]:
        if name == "lexical" or self.dense is None:
            return self.lexical.rank(query, depth, keys=keys)
        return self.dense.nearest(vector, depth, keys=keys)

    def _completed(
        self, found: Mapping[str, tuple[Keys, Scores]], wanted: Keys, query: Query, vector: Any
    ) -> dict[str, tuple[Keys, Scores]]:
        """What each signal found, with its scores of these keys too: every candidate is judged by every signal."""
        completed = dict(found)
        for name, (keys, scores) in found.items():
            if len(more := np.setdiff1d(wanted, keys)):
                others, values = self._search(name, query, vector, len(more), more)
                completed[name] = np.concatenate([keys, others]), np.concatenate([scores, values])
        return completed

    def _ordered(self, keys: Keys, signals: Mapping[str, Scores]) -> tuple[Keys, dict[str, Scores]]:
        fused = self._fuse(tuple(signals), np.array(list(signals.values())))
        final = np.asarray(np.round(np.clip(fused, 0.0, 1.0), _DECIMALS), dtype=np.float64)
        order = np.lexsort((keys, -final))
        scores = {name: np.where(np.isnan(signal), 0.0, signal)[order] for name, signal in signals.items()}
        return keys[order], {**scores, "final": final[order]}

    def _fuse(self, names: Sequence[str], signals: Scores) -> Scores:
        fused = np.asarray(self.fusion(signals, [self.weights.get(name, 0.0) for name in names]))
        if fused.shape != signals.shape[1:] or not np.isfinite(fused).all():
            raise ConfigError(
                f"the fusion gave an array of shape {fused.shape} for {signals.shape[1]} candidates, or not finite",
                remedy="A fusion gives one finite score in [0, 1] a candidate.",
            )
        return fused


def _explained(candidate: Candidate, walked: Walked | None) -> Candidate:
    if walked is None:
        return candidate
    return replace(candidate, via=walked.via(int(candidate.chunk.metadata["key"]), candidate.chunk))


def _aligned(union: Keys, keys: Keys, scores: Scores) -> Scores:
    """The scores in the order of the union, NaN where there is none."""
    values = np.full(len(union), np.nan)
    values[np.searchsorted(union, keys)] = scores
    return values
