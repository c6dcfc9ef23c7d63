"""Takes sentences by their worth until the target is full, then counts the texts themselves and puts the rest right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ctxkit.compression.choosing import Choice
from ctxkit.documents import Candidate
from ctxkit.protocols import TokenCounter

__all__ = ["Filling", "Place"]

_ROUNDS = 2
"""Estimates are a few tokens off: the second round fills what the first one left."""
_FURTHEST_BACK = 2
"""Sentences that a sentence such as "He did" may bring with it."""


class Place(NamedTuple):
    """One sentence: which candidate's, which of its units, and its tokens."""

    candidate: int
    unit: int
    tokens: int


class Filling:
    """One choice of sentences under one target.

    Args:
        choices: one a candidate.
        ranking: the sentences that may be chosen, best first.
        target: tokens, `overhead` for each candidate that is kept included.
        leaning: of each candidate, whether a sentence points back; such a one brings the sentence before it while
            there is room.
        seats: give each candidate its best sentence first, where all of these take no more than half of the target.
    """

    def __init__(
        self,
        choices: Sequence[Choice],
        ranking: Sequence[Place],
        target: int,
        counter: TokenCounter,
        *,
        overhead: int,
        leaning: Sequence[Sequence[bool]],
        seats: bool,
    ) -> None:
        self.choices = choices
        self.ranking = ranking
        self.target = target
        self.overhead = overhead
        self.leaning = leaning
        self.seats = seats
        self.used = 0
        self._counter = counter
        self._counted: dict[int, tuple[tuple[tuple[int, int], ...], int]] = {}

    def run(self) -> None:
        if self.seats:
            self._seat()
        for _ in range(_ROUNDS):
            before = self.used
            for place in self.ranking:
                self._take(place)
            self._close_gaps()
            self._head()
            self._settle()
            if self.used == before:
                break

    def _take(self, place: Place) -> bool:
        """Take the sentence if it fits."""
        number, unit, tokens = place
        choice = self.choices[number]
        if self.used + tokens - 2 * choice.gap > self.target or choice.takes(unit):
            return False
        cost = choice.marginal(unit) + (0 if len(choice) else self.overhead)
        if self.used + cost > self.target:
            return False
        choice.add(unit)
        self.used += cost
        self._bring(number, unit)
        return True

    def _bring(self, number: int, unit: int) -> None:
        """Take what stands before a sentence that points back, if that fits."""
        choice = self.choices[number]
        for _ in range(_FURTHEST_BACK):
            if not self.leaning[number][unit] or not unit or choice.units[unit - 1].heading:
                return
            unit -= 1
            if unit not in choice:
                cost = choice.marginal(unit)
                if self.used + cost > self.target:
                    return
                choice.add(unit)
                self.used += cost

    def _seat(self) -> None:
        """Give each candidate its most relevant sentence, where all of these take no more than half of the target."""
        best: dict[int, Place] = {}
        for place in self.ranking:
            best.setdefault(place.candidate, place)
        cost = sum(self.choices[place.candidate].marginal(place.unit) + self.overhead for place in best.values())
        if cost <= self.target / 2:
            for place in best.values():
                self._take(place)

    @staticmethod
    def _rank(candidate: Candidate) -> tuple[float, str]:
        return (-candidate.score, candidate.chunk.id)

    def _close_gaps(self) -> None:
        """A sentence that costs no more than the gap mark in its place is taken for nothing."""
        for number, choice in enumerate(self.choices):
            if len(choice):
                for position in choice.short:
                    if position not in choice and choice.marginal(position) <= 0:
                        self._take(Place(number, position, 0))

    def _head(self) -> None:
        """Put the headings over what was taken while there is room, over the most relevant first."""
        for number, unit, _ in self.ranking:
            choice = self.choices[number]
            under = choice.units[unit].under
            if under is not None and choice.takes(unit) and not choice.takes(under):
                self._take(Place(number, under, 0))

    def _settle(self) -> None:
        """Count the texts as they will be sent; while they are over, give back the least relevant sentences."""
        counts = {number: self._count(number) for number, choice in enumerate(self.choices) if len(choice)}
        if sum(counts.values()) > self.target:
            self._give_back(counts)
        self.used = sum(counts.values())

    def _give_back(self, counts: dict[int, int]) -> None:
        rest = [place for place in self.ranking if self.choices[place.candidate].takes(place.unit)]
        if self.seats:  # the only sentence of a candidate goes after all others, that of the best candidate last
            alone = [place for place in rest if len(self.choices[place.candidate]) == 1]
            alone.sort(key=lambda place: self._rank(self.choices[place.candidate].candidate))
            rest = alone + [place for place in rest if len(self.choices[place.candidate]) > 1]
        while (excess := sum(counts.values()) - self.target) > 0 and rest:
            touched: set[int] = set()
            freed = 0
            while rest and freed < excess:
                number, unit, _ = rest.pop()
                before = self.choices[number].cost
                self.choices[number].remove(unit)
                freed += max(1, before - self.choices[number].cost)
                touched.add(number)
            for number in touched:
                choice = self.choices[number]
                choice.remove_lonely_headings()
                counts[number] = self._count(number) if len(choice) else 0

    def _count(self, number: int) -> int:
        """The tokens of what is taken of a candidate; counted again only where that has changed."""
        choice = self.choices[number]
        spans = choice.spans()
        known = self._counted.get(number)
        if known is None or known[0] != spans:
            known = (spans, self._counter.count(choice.compressed().text) + self.overhead)
            self._counted[number] = known
        return known[1]
