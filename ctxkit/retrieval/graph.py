"""The graph signal: what a walker finds that starts at the best hits and at the names in the question."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ctxkit.checking import check_number, check_whole
from ctxkit.documents import Chunk
from ctxkit.errors import ConfigError
from ctxkit.graph.names import normalise, query_names
from ctxkit.retrieval.graph_index import GraphIndex, subjects_of
from ctxkit.retrieval.name_graph import NameGraph
from ctxkit.retrieval.phrases import name_phrases
from ctxkit.retrieval.postings import best

if TYPE_CHECKING:
    from ctxkit.storage import Store

__all__ = ["Graph", "Walked", "written"]

Keys = NDArray[np.int64]
Places = NDArray[np.int64]
Scores = NDArray[np.float64]

_TOLERANCE = 1e-4
"""Of the walk: ranks do not change below it, and it ends in two dozen steps."""
_MOST_VIA = 3
_LEAST_SHARE = 0.05
"""Of what reached a chunk: a name that brought less is not worth naming."""


@dataclass(frozen=True, slots=True, eq=False)
class Walked:
    """Where the walker of one question was found.

    Args:
        keys: of all chunks, ascending.
        scores: in [0, 1] for each of them.
    """

    keys: Keys
    scores: Scores
    _graph: NameGraph
    _found: Scores
    _asked: Places
    _hits: Places
    _held: Places

    def of(self, keys: Keys) -> Scores:
        """The scores of chunks by key; NaN for one that was not there."""
        rows, known = self._graph.rows(keys)
        return np.where(known, self.scores[rows] if len(self.scores) else np.nan, np.nan)

    def best(self, k: int, *, keys: Keys | None = None) -> Keys:
        """The keys of the best `k` chunks that the walker reached, among these where some are given."""
        reached = self.scores > 0
        if keys is not None:
            reached &= np.isin(self.keys, keys)
        rows = np.flatnonzero(reached)
        return self.keys[best(rows, self.scores[rows], k)[0]]

    def via(self, key: int, chunk: Chunk) -> tuple[str, ...]:
        """The names through which a chunk was reached, as it writes them, the most important first; at most three.

        These are names in the question, and names that other hits hold.
        """
        rows, known = self._graph.rows(np.array([key], dtype=np.int64))
        if not known[0]:
            return ()
        row = int(rows[0])
        names = self._graph.names_of(row)
        flow = self._graph.rarity[names] * 0
        size = len(self.keys)
        steps = self._graph.walk.steps
        start, end = steps.indptr[row], steps.indptr[row + 1]
        sources, chances = steps.indices[start:end], steps.data[start:end]
        brought = chances * self._found[sources]
        flow = brought[np.searchsorted(sources, size + names)] if len(names) else flow
        # What another hit holds counts; a hit's own names are among what is held once.
        counts = (self._held[names] > (row in self._hits)) | np.isin(names, self._asked)
        total = brought.sum()
        order = [each for each in np.lexsort((names, -flow)) if counts[each] and flow[each] > _LEAST_SHARE * total]
        return written([self._graph.names[names[each]] for each in order[:_MOST_VIA]], chunk)


@dataclass(eq=False)
class Graph:
    """Personalised PageRank from the question's names and the best hits, over chunks and the names they hold.

    A chunk that shares a rare name with a good hit is found although it shares no word with the question: the second
    hop of a question that needs two. Names are the entities of the store's graph, the titles of documents and the
    headings of chunks; a chunk holds a name when an extractor found it there or when it is written there with capitals.
    Chunks that stand side by side are joined, too. A score is `sqrt(share / greatest share)`, and three tenths more
    for a chunk that is *about* a name in the question (its title or heading): it orders the chunks of one question and
    does not compare between questions.

    Costs about two dozen products of a sparse matrix and a vector for a question, linear in the mentions.

    Args:
        store: whose chunks.
        damping: the chance to walk on, in [0, 1).
        hits: how many of the best hits the walker starts from; 0 for names in the question alone.
        focus: a hit's weight is its score, in parts of the best one's, to this power.
        hit_share: the part of a hit's weight that starts at the chunk itself; the rest starts at the names it holds.
        names_weight: of the names in the question, rare ones weighing more, against 1 for the hits; 0 for hits alone.
        subject: what being about a name in the question adds, in parts of the score.

    Raises:
        ConfigError: a parameter is out of its range.

    Source: Gutiérrez et al., "From RAG to Memory" (HippoRAG 2), 2025, without its language model; the measurements are
    in `docs/decisions/0012-graph-retrieval.md`.
    """

    store: Store
    _: KW_ONLY
    damping: float = 0.5
    hits: int = 20
    focus: float = 12.0
    hit_share: float = 0.7
    names_weight: float = 0.1
    subject: float = 0.3

    def __post_init__(self) -> None:
        check_number(self.damping, "damping", minimum=0, maximum=1)
        check_number(self.hit_share, "hit_share", minimum=0, maximum=1)
        for name in ("focus", "names_weight", "subject"):
            check_number(getattr(self, name), name, minimum=0)
        check_whole(self.hits, "hits", minimum=0)
        if self.damping == 1:
            raise ConfigError("damping is 1", remedy="A walker that never returns forgets the question: use less.")

    @cached_property
    def index(self) -> GraphIndex:
        return GraphIndex(self.store)

    def current(self) -> AbstractContextManager[None]:
        """Holds the graph still for several questions."""
        return self.index.current()

    def walk(self, text: str, keys: Keys, scores: Scores) -> Walked | None:
        """Walk from the names in a question, and from hits with their scores, best first; None without a graph.

        Args:
            text: the question.
            keys: of the hits.
            scores: in [0, 1], one a hit.
        """
        graph = self.index.graph()
        if graph is None:
            return None
        asked = graph.find(query_names(text))
        rows, known = graph.rows(keys[: self.hits])
        hits, weights = rows[known], np.asarray(scores[: self.hits], dtype=np.float64)[known]
        size = len(graph.keys)
        start = np.zeros(len(graph.walk))
        if len(hits) and weights.max() > 0:
            weights = (weights / weights.max()) ** self.focus
            start[hits] = weights / weights.sum()
            spread = graph.walk.steps @ start
            spread[:size] = 0.0
            start = self.hit_share * start + (1 - self.hit_share) * spread
        if len(asked):
            start[size + asked] += self.names_weight * graph.rarity[asked] / graph.rarity[asked].sum()
        found = graph.walk.from_places(start, damping=self.damping, tolerance=_TOLERANCE)
        shares = found[:size]
        top = shares.max(initial=0.0)
        values = np.sqrt(shares / top) if top > 0 else np.zeros(size)
        if len(asked) and self.subject:
            wanted = np.zeros(len(graph.names))
            wanted[asked] = 1.0
            values = values * (1 + self.subject * (graph.subjects @ wanted > 0))
            values /= max(1.0, values.max(initial=0.0))
        return Walked(graph.keys, values, graph, found, asked, hits, graph.held_by(hits))


def written(names: Sequence[str], chunk: Chunk) -> tuple[str, ...]:
    """Names as the chunk writes them; one as the graph does, where an alias stands for it. Linear in the text."""
    wanted, found = set(names), dict[str, str]()
    for text in chain((entity.text for entity in chunk.entities), subjects_of(chunk), name_phrases(chunk.text)):
        if len(found) == len(wanted):
            break
        key = normalise(text)
        if key in wanted:
            found.setdefault(key, text)
    return tuple(found.get(name, name) for name in names)
