"""`TimeDecayWindow`: what bears on the question, the older the less."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import isinf, isnan

import numpy as np
from numpy.typing import NDArray

from ctxkit.checking import check_kind, check_number, shown
from ctxkit.errors import ConfigError
from ctxkit.history.filling import fill
from ctxkit.history.relevance import relevance, with_neighbours
from ctxkit.history.sliding_window import affordable, check_pinned
from ctxkit.history.terms import Terms, rarity, timeline_terms
from ctxkit.history.timeline import Recent, Timeline
from ctxkit.messages import Message
from ctxkit.protocols import ChatCounter

__all__ = ["TimeDecayWindow"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeDecayWindow:
    """Keeps the units of the highest weight: bearing on the question, times `max(floor, 0.5 ** (age / half_life))`.

    The clock is for decay alone: order is the messages' own, so that one that was set back moves nothing. Age counts
    from `now`, and without it from the newest stamp, so that the same dialogue gives the same window on any day. A
    stamp in the future has age 0; a message without one is as old as the message before it. A dialogue without any
    stamp decays by turns. Summaries and pinned messages stay, whatever their age.

    Args:
        half_life: the age at which the weight is one half: a duration, or seconds.
        half_life_turns: the same in user messages, for dialogues without stamps.
        floor: the least weight, so that what is old can still win by its bearing.
        baseline: the bearing of a unit that shares nothing with the question; 1 is decay alone.
        neighbours: the share of its better neighbour's bearing that a unit has: an answer stands next to its question.
        pinned: ids of messages that stay, with the unit that each is in; with summaries at most half of the room.
        question: what is asked now; None for the newest user message.
        now: aware; None for the newest stamp.

    Source: half-life decay, N(t) = N0 * 2 ** (-t / T).

    Example:
        >>> TimeDecayWindow(half_life=3600).weight(3600)
        0.5
    """

    half_life: timedelta | float = timedelta(days=7)
    half_life_turns: float = 20.0
    floor: float = 0.05
    baseline: float = 0.1
    neighbours: float = 0.3
    pinned: Collection[str] = ()
    question: str | None = None
    now: datetime | None = None
    _recent: Recent = field(init=False, repr=False, compare=False, default_factory=Recent)

    def __post_init__(self) -> None:
        if isinstance(self.half_life, timedelta):
            object.__setattr__(self, "half_life", self.half_life.total_seconds())
        for name, value in (("half_life", self.half_life), ("half_life_turns", self.half_life_turns)):
            if isinstance(value, bool) or not isinstance(value, int | float) or isnan(value) or value <= 0:
                raise ConfigError(f"{name} is {shown(value)}", remedy="Give a number above 0, or a timedelta.")
        for name, share in (("floor", self.floor), ("baseline", self.baseline), ("neighbours", self.neighbours)):
            check_number(share, name, minimum=0, maximum=1, remedy="Give a share from 0 to 1.")
        object.__setattr__(self, "pinned", check_pinned(self.pinned))
        check_kind(self.question, (str, type(None)), "question", remedy="Give a text, or None.")
        check_kind(self.now, (datetime, type(None)), "now", remedy="Give an aware datetime, or None.")
        if self.now is not None and self.now.tzinfo is None:
            raise ConfigError("now has no time zone", subject=str(self.now), remedy="Give an aware datetime.")

    def asking(self, question: str) -> TimeDecayWindow:
        """The same window for a question that is not in the dialogue yet."""
        if self.question is not None:
            return self
        asking = replace(self, question=question)
        object.__setattr__(asking, "_recent", self._recent)  # what was read stays read
        return asking

    def weight(self, age: float, half_life: float | None = None) -> float:
        """The weight at an age, in the unit of the half-life (default `half_life`, seconds)."""
        half = float(self.half_life if half_life is None else half_life)  # type: ignore[arg-type]
        past = max(0.0, age)
        return max(self.floor, 1.0 if past == 0 or isinf(half) else float(0.5 ** (past / half)))

    def select(self, messages: Sequence[Message], max_tokens: int, counter: ChatCounter) -> list[Message]:
        """A valid history of at most `max_tokens`, as `counter.count_prompt` counts it by itself. Pure. O(n log n).

        Raises:
            BudgetError: not even the leading system messages and the newest user message fit.
        """
        with self._recent.read(messages, counter) as timeline:
            room = max_tokens - timeline.fixed(max_tokens)
            stay = list(affordable(timeline, timeline.stays(self.pinned), room // 2))
            first = timeline.head
            weights = self._weights(timeline) * self._bearings(timeline, room)
            # The newer one of two of the same weight.
            order = sorted(range(len(weights)), key=lambda at: (-weights[at], -at))
            return fill(timeline, [*stay, *(first + at for at in order)], max_tokens)

    def _weights(self, timeline: Timeline) -> NDArray[np.float64]:
        entries = timeline.entries[timeline.head :]
        stamps = [entry.message.created_at for entry in entries]
        known = [stamp for stamp in stamps if stamp is not None]
        if not known:
            turns, ages = 0, []
            for entry in reversed(entries):
                ages.append(self.weight(turns, self.half_life_turns))
                turns += entry.message.role == "user"
            return np.array(ages[::-1])
        now = self.now or max(known)
        last = known[0]
        ages = []
        for stamp in stamps:
            last = stamp or last
            ages.append(self.weight((now - last).total_seconds()))
        return np.array(ages)

    def _bearings(self, timeline: Timeline, room: int) -> NDArray[np.float64]:
        question = self.question
        if question is None:
            question = "" if timeline.newest is None else timeline.entries[timeline.newest].message.visible
        places = range(timeline.head, len(timeline.entries))
        # What has no room at all is not read: a message of megabytes takes seconds.
        by_place = timeline_terms(timeline, [place for place in places if timeline.cost(place) <= room])
        terms: list[Terms] = [by_place.get(place, {}) for place in places]
        if timeline.newest is not None and self.question is None:
            terms[timeline.newest - timeline.head] = {}  # the question would bear most on itself
        found = with_neighbours(relevance(question, terms, rarity(terms)), self.neighbours)
        best = found.max(initial=0.0)
        return np.asarray(self.baseline + (1 - self.baseline) * (found / best if best > 0 else found))
