"""One hop around the best candidates: what stands beside them, what shares a rare name, who speaks of himself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ctxkit.checking import check_kind, check_number, check_whole
from ctxkit.documents import Candidate, Chunk, Query
from ctxkit.errors import ConfigError
from ctxkit.graph.names import query_names
from ctxkit.retrieval.candidates import check_query
from ctxkit.retrieval.graph import Graph, written
from ctxkit.retrieval.neighbours import best_first
from ctxkit.stage_inputs import check_candidates

if TYPE_CHECKING:
    from ctxkit.storage import Store

__all__ = ["Neighbourhood"]

Keys = NDArray[np.int64]
_DECIMALS = 9


@dataclass(eq=False)
class Neighbourhood:
    """Raises candidates that stand beside good ones or share rare names with them, and adds those that were not found.

    An answer often stands in the turn after the question, and in the paragraph behind the one that has its words. A
    candidate's `final` grows by `beside` times that of the chunks before and behind it in its document, and by `shared`
    times that of the best candidate whose rare names it holds, in proportion to their rarity. Around the `best` first
    candidates this also adds chunks of the store that retrieval did not find; it is the one stage that adds, and adds
    stored chunks of the query's tenant that match its filters, whole. At last a candidate that is *about* a name in the
    question (its speaker, its title or its heading) grows by the part `about`: to "What has Ada read?" it is Ada who
    says it, and the turns around hers tell less. Scores are divided by the greatest when that is
    above 1. Candidates come back best first.

    Args:
        store: whose chunks.
        graph: names that chunks share; default the store's. Without entities in the store nothing is shared.
        beside: the weight of each of the two neighbours.
        shared: the weight of the best candidate that shares names.
        about: the part by which a candidate grows that is about a name in the question.
        best: around how many candidates chunks are added.
        added: how many chunks of each kind are added at most for each of them.

    Raises:
        ConfigError: a parameter is out of its range, or the query is another tenant's.

    Example:
        >>> from ctxkit.storage import Store
        >>> Neighbourhood(Store.open("sqlite://"))(Query("anything"), [])
        []
    """

    store: Store
    _: KW_ONLY
    graph: Graph | None = None
    beside: float = 0.3
    shared: float = 0.1
    about: float = 0.5
    best: int = 10
    added: int = 2
    _names: Graph = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_number(self.beside, "beside", minimum=0)
        check_number(self.shared, "shared", minimum=0)
        check_number(self.about, "about", minimum=0)
        check_whole(self.best, "best", minimum=0)
        check_whole(self.added, "added", minimum=0)
        if self.graph is not None:
            check_kind(self.graph, Graph, "graph", remedy="Give a Graph of the store, or None for the store's own.")
            if self.graph.store.tenant != self.store.tenant:
                raise ConfigError("the graph is another tenant's", remedy="Give a Graph of the same store.")
        self._names = Graph(self.store) if self.graph is None else self.graph

    def __call__(self, query: Query, candidates: Sequence[Candidate]) -> list[Candidate]:
        check_candidates(query, candidates)
        check_query(self.store, query, 1)
        ordered = sorted(candidates, key=best_first)
        score = {_key(candidate): candidate.score for candidate in ordered if _key(candidate) >= 0}
        if not score:
            return ordered
        gain = self._gain_beside(ordered, score)
        via: dict[int, str] = {}
        if self.shared:
            allowed = self.store.documents.matching_keys(query.filters)
            for key, (value, name) in self._gain_shared(score, allowed).items():
                gain[key] = gain.get(key, 0.0) + value
                via[key] = name
        found = [*ordered, *self._new(ordered, [key for key in gain if key not in score])]
        about = self._about(query.text, found)
        raised = [
            (candidate.score + gain.get(_key(candidate), 0.0)) * (1 + self.about * spoken)
            for candidate, spoken in zip(found, about, strict=True)
        ]
        top = max(1.0, *raised)
        result = []
        for candidate, value in zip(found, raised, strict=True):
            moved = candidate.scored(final=round(value / top, _DECIMALS))
            if not moved.via and _key(candidate) in via:
                moved = replace(moved, via=written([via[_key(candidate)]], moved.chunk))
            result.append(moved)
        return sorted(result, key=best_first)

    def _about(self, text: str, candidates: Sequence[Candidate]) -> list[bool]:
        """Which candidates are about a name in the question."""
        graph = self._names.index.graph() if self.about else None
        asked = graph.find(query_names(text)) if graph is not None else ()
        if graph is None or not len(asked):
            return [False] * len(candidates)
        rows, known = graph.rows(np.array([_key(candidate) for candidate in candidates], dtype=np.int64))
        wanted = np.zeros(len(graph.names))
        wanted[asked] = 1.0
        return list(known & (graph.subjects @ wanted > 0)[rows])

    def _gain_beside(self, ordered: Sequence[Candidate], score: dict[int, float]) -> dict[int, float]:
        """What each chunk beside a candidate gains; of those that are no candidates, the ones beside the best."""
        gain: dict[int, float] = {}
        beside = self._beside(ordered) if self.beside else {}
        for rank, candidate in enumerate(ordered):
            for other in beside.get(_key(candidate), ()):
                if other in score or rank < self.best:
                    gain[other] = gain.get(other, 0.0) + self.beside * candidate.score
        return gain

    def _beside(self, ordered: Sequence[Candidate]) -> dict[int, list[int]]:
        """The keys of the chunks before and behind each candidate: from the graph, or document by document."""
        keys = np.array([_key(candidate) for candidate in ordered], dtype=np.int64)
        graph = self._names.index.graph()
        if graph is not None:
            rows, known = graph.rows(keys)
            return {
                int(key): graph.keys[graph.beside(int(row))].tolist()
                for key, row in zip(keys[known], rows[known], strict=True)
            }
        found = {}
        for document in sorted({candidate.chunk.document_id for candidate in ordered}):
            line = self.store.documents.matching_keys({"document_id": document})
            line = keys[:0] if line is None else line
            for at in np.flatnonzero(np.isin(line, keys)).tolist():
                found[int(line[at])] = [*line[max(0, at - 1) : at].tolist(), *line[at + 1 : at + 2].tolist()]
        return found

    def _gain_shared(self, score: dict[int, float], allowed: Keys | None) -> dict[int, tuple[float, str]]:
        """What each chunk gains from the best candidate that it shares names with, and the rarest such name."""
        names = self._names.index.graph()
        if names is None:
            return {}
        found: dict[int, tuple[float, str]] = {}
        for key, value in list(score.items())[: self.best]:
            rows, known = names.rows(np.array([key], dtype=np.int64))
            held = names.names_of(int(rows[0])) if known[0] else np.zeros(0, dtype=np.int64)
            if not len(held):
                continue
            weight = np.zeros(len(names.names))
            weight[held] = names.rarity[held] / names.rarity[held].sum()
            overlap = np.asarray(names.mentions @ weight)
            overlap[rows[0]] = 0.0
            if allowed is not None:
                overlap[~np.isin(names.keys, allowed)] = 0.0
            near = np.flatnonzero(overlap > 0)
            order = near[np.lexsort((near, -overlap[near]))]
            new = 0
            for row in order.tolist():
                other = int(names.keys[row])
                if other not in score:
                    new += 1
                    if new > self.added:
                        continue
                worth = self.shared * value * float(overlap[row])
                if worth > found.get(other, (0.0, ""))[0]:
                    common = np.intersect1d(names.names_of(row), held)
                    found[other] = (worth, names.names[common[np.argmax(names.rarity[common])]])
        return found

    def _new(self, ordered: Sequence[Candidate], keys: list[int]) -> list[Candidate]:
        """Candidates of these chunks, but for text that a candidate has already."""
        taken: dict[str, list[Chunk]] = {}
        for candidate in ordered:
            taken.setdefault(candidate.chunk.document_id, []).append(candidate.chunk)
        chunks = self.store.documents.chunks(np.array(sorted(keys), dtype=np.int64)) if keys else {}
        return [
            Candidate(chunk)
            for chunk in chunks.values()
            if not any(
                chunk.span.start < other.span.end and other.span.start < chunk.span.end
                for other in taken.get(chunk.document_id, ())
            )
        ]


def _key(candidate: Candidate) -> int:
    """The key of a stored chunk; -1 for one that is not stored."""
    key = candidate.chunk.metadata.get("key")
    return key if isinstance(key, int) and not isinstance(key, bool) else -1
