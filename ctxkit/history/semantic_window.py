"""`SemanticWindow`: what a long dialogue said, in the fewest tokens, with the newest part whole."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctxkit.checking import check_able, check_kind, check_number, check_whole
from ctxkit.embedded import embedded
from ctxkit.history.clustering import clusters, lexical_vectors
from ctxkit.history.coverage import Coverage, worths
from ctxkit.history.cues import Cues, cue_weights
from ctxkit.history.filling import fill
from ctxkit.history.relevance import relevance, with_neighbours
from ctxkit.history.sliding_window import affordable, check_pinned
from ctxkit.history.terms import Terms, entry_text, rarity, terms_of, timeline_terms
from ctxkit.history.timeline import Recent, Timeline
from ctxkit.messages import Message
from ctxkit.protocols import ChatCounter, Embedder

__all__ = ["SemanticWindow"]

_UNASKED = 0.15
"""How much the newest user message counts beside a question that was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SemanticWindow:
    """Keeps the newest units whole, and of the older ones those that say most for their tokens.

    A unit is worth the terms in it that nothing kept nearby says yet, rare terms, names and numbers most; so each fact
    has one representative. Units are grouped by meaning, and the first representative of a group is worth half again.
    What the user said counts more than what only the assistant did. So does what a speaker does: a confirmation, a
    correction, a decision or a promise is worth more, an offer that was turned down almost nothing. What bears on the
    question is worth more still. Units are taken greedily by worth per token, which for such a measure of coverage is
    known to be near the best.

    Args:
        recent: how many of the newest units stay, before any other; they take at most half of the room.
        pinned: ids of messages that stay, with the unit that each is in; with summaries at most half of the room.
        question: what is asked now; None for the newest user message, "" for none.
        question_weight: how much bearing on the question counts beside coverage; 0 for not at all. The newest user
            message may be no question at all: it counts less, by how much of it a unit says.
        neighbours: the share of its better neighbour's bearing on the question that a unit has.
        embedder: groups units, and compares them with the question, by meaning; without one, by words alone.
        cues: what doing something is worth.
        reach: within how many units a term that was kept is not news.
        cost_exponent: how much tokens count against a unit: worth / tokens ** cost_exponent.

    Source: Lin and Bilmes, "Multi-document Summarization via Budgeted Maximization of
    Submodular Functions", NAACL 2010.

    Example:
        >>> from ctxkit.testing.windows import WordChatCounter
        >>> said = ["Book a table in Rome", "Hm, well", "so it is", "for 7 people", "thank you"]
        >>> dialogue = [Message("user", text) for text in said]
        >>> [message.text for message in SemanticWindow(recent=1).select(dialogue, 22, WordChatCounter())]
        ['Book a table in Rome', 'for 7 people', 'thank you']
    """

    recent: int = 2
    pinned: Collection[str] = ()
    question: str | None = None
    question_weight: float = 1.0
    neighbours: float = 0.3
    embedder: Embedder | None = None
    cues: Cues = field(default_factory=Cues)
    reach: int = 8
    cost_exponent: float = 0.7
    _recent: Recent = field(init=False, repr=False, compare=False, default_factory=Recent)

    def __post_init__(self) -> None:
        check_whole(self.recent, "recent", minimum=0)
        object.__setattr__(self, "pinned", check_pinned(self.pinned))
        check_kind(self.question, (str, type(None)), "question", remedy="Give a text, or None.")
        check_number(self.question_weight, "question_weight", minimum=0)
        check_number(self.neighbours, "neighbours", minimum=0, maximum=1)
        if self.embedder is not None:
            check_able(self.embedder, "embed", "embedder", remedy="Give an embedder, or None.")
        check_kind(self.cues, Cues, "cues", remedy="Give a Cues.")
        check_whole(self.reach, "reach", minimum=0)
        check_number(self.cost_exponent, "cost_exponent", minimum=0, maximum=2)

    def asking(self, question: str) -> SemanticWindow:
        """The same window for a question that is not in the dialogue yet."""
        if self.question is not None:
            return self
        asking = replace(self, question=question)
        object.__setattr__(asking, "_recent", self._recent)  # what was read stays read
        return asking

    def select(self, messages: Sequence[Message], max_tokens: int, counter: ChatCounter) -> list[Message]:
        """A valid history of at most `max_tokens`, as `counter.count_prompt` counts it by itself. Pure.

        O(n log n); each message is counted, read and embedded once.

        Raises:
            BudgetError: not even the leading system messages and the newest user message fit.
        """
        with self._recent.read(messages, counter) as timeline:
            room = max_tokens - timeline.fixed(max_tokens)
            total = timeline.sums()[-1]
            if total <= max_tokens - timeline.overhead():
                return fill(timeline, range(len(timeline.entries)), max_tokens)
            kept: list[int] = []
            return fill(timeline, self._preferred(timeline, room, kept), max_tokens, kept=kept)

    def _preferred(self, timeline: Timeline, room: int, kept: Sequence[int]) -> Iterator[int]:
        newest_first = range(len(timeline.entries) - 1, timeline.head - 1, -1)[: self.recent]
        stay = dict.fromkeys(affordable(timeline, timeline.stays(self.pinned), room // 2))
        tail: list[int] = []
        half = room // 2
        for place in newest_first:
            half -= 0 if place == timeline.newest else timeline.cost(place)
            if half < 0:
                break
            tail.append(place)
        first = list(dict.fromkeys([*stay, *tail]))
        yield from first
        places = [
            place
            for place in range(timeline.head, len(timeline.entries))
            if timeline.cost(place) <= room or place == timeline.newest
        ]
        if places:
            yield from self._by_worth(timeline, places, kept)

    def _by_worth(self, timeline: Timeline, places: Sequence[int], kept: Sequence[int]) -> Iterator[int]:
        """The places by greedy worth per token, beside what is kept, which grows by those of them that fit."""
        by_place = timeline_terms(timeline, places)
        terms = [by_place[place] for place in places]
        rare = rarity(terms)
        entries = [timeline.entries[place] for place in places]
        vectors = lexical_vectors(terms, rare) if self.embedder is None else self._vectors(timeline, places)
        users = [entry.message.role == "user" for entry in entries]
        coverage = Coverage(terms, worths(terms, users, rare), clusters(vectors).tolist(), self.reach)
        scale = [
            weight / timeline.cost(place) ** self.cost_exponent
            for weight, place in zip(cue_weights(entries, self.cues), places, strict=True)
        ]
        bearing = self._bearing(timeline, terms, rare, vectors)

        index = {place: at for at, place in enumerate(places)}
        counted = 0
        if timeline.newest is not None:
            coverage.add(index[timeline.newest])

        def count() -> None:
            nonlocal counted
            for place in kept[counted:]:
                coverage.add(index[place])
            counted = len(kept)

        count()
        taken = {timeline.newest, *kept}
        gains = {at: coverage.gain(at) * scale[at] for at, place in enumerate(places) if place not in taken}
        unit = max(gains.values(), default=0.0) or 1.0
        heap = [(-(gain / unit + bearing[at]), -at) for at, gain in gains.items()]
        heapq.heapify(heap)
        while heap:
            _, at = heapq.heappop(heap)
            worth = coverage.gain(-at) * scale[-at] / unit + bearing[-at]
            if heap and -worth > heap[0][0] + 1e-12:  # it has lost worth to what was taken since
                heapq.heappush(heap, (-worth, at))
                continue
            yield places[-at]
            count()

    def _question(self, timeline: Timeline) -> str:
        if self.question is not None:
            return self.question
        return "" if timeline.newest is None else timeline.entries[timeline.newest].message.visible

    def _bearing(
        self,
        timeline: Timeline,
        terms: Sequence[Terms],
        rare: Mapping[str, float],
        vectors: NDArray[np.float32],
    ) -> NDArray[np.float64]:
        question = self._question(timeline)
        if not self.question_weight or not terms_of(question):
            return np.zeros(len(terms))
        vector = None if self.embedder is None else embedded(self.embedder, [question])[0]
        found = relevance(question, terms, rare, vectors=None if vector is None else vectors, vector=vector)
        best = found.max(initial=0.0)
        scale = _UNASKED if self.question is None else 1 / best if best > 0 else 0.0
        return self.question_weight * scale * with_neighbours(found, self.neighbours)

    def _vectors(self, timeline: Timeline, places: Sequence[int]) -> NDArray[np.float32]:
        """The embedder's vectors of entries, each embedded once."""
        if self.embedder is None:  # pragma: no cover
            return np.zeros((len(places), 1), dtype=np.float32)
        known: dict[int, Any] = timeline.facts.setdefault("vectors", {})
        new = [place for place in places if place not in known or known[place][0] is not timeline.entries[place]]
        made = embedded(self.embedder, [entry_text(timeline.entries[place]) for place in new]) if new else ()
        for place, vector in zip(new, made, strict=True):
            known[place] = timeline.entries[place], vector
        return np.stack([known[place][1] for place in places])
