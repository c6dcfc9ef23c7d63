"""Takes sentences by their worth until the target is full, then counts the texts themselves and puts the rest right."""

from __future__ import annotations

from collections.abc import Sequence

from ctxkit.compression.choosing import Choice
from ctxkit.compression.cutting import Cutter
from ctxkit.compression.records import Record, term_hash
from ctxkit.compression.units import Unit
from ctxkit.documents import Candidate, Span
from ctxkit.protocols import TokenCounter
from ctxkit.stop_words import ENGLISH_STOP_WORDS
from ctxkit.text import words

__all__ = ["Filling", "Leaning", "Place"]

_ROUNDS = 2
"""Estimates are a few tokens off: the second round fills what the first one left."""
_FULL = 0.99
"""Of the target: so full it is not worth another round."""
_ENOUGH = 0.9
"""Of the target: below it, a part of the next sentence is taken."""
_SHARE = 0.3
"""A sentence that does not fit is cut where there is room for so much of it; else lesser ones that fit are better."""
_LONG = 0.5
"""Nor is one cut that takes no more of the target than this: it may count for more whole, another time."""
_CRUMB = 12
"""Tokens: so much room is filled even where `_ENOUGH` is reached."""
_CUTS, _ATTEMPTS = 64, 6
"""Sentences that are tried, and rooms that are tried for one."""
_TELLING = 3
"""Words, or characters of Chinese less one: fewer of a sentence are a crumb, such as `| web | […]`."""
_LOOKED_AT = 400
"""Characters of a sentence in which its first words are."""
_FURTHEST_BACK = 2
"""Sentences that a sentence such as "He did" may bring with it."""


Place = tuple[int, int, int]
"""One sentence: which candidate's, which of its units, and its tokens."""


class Leaning:
    """Which sentences of a candidate need the one before to be understood: "He did", and no title says who."""

    def __init__(self, candidate: Candidate, record: Record) -> None:
        self._title = str(candidate.chunk.metadata.get("title") or "")
        self._record = record
        self._titled: bool | None = None

    def points_back(self, unit: int) -> bool:
        if not self._record.leans[unit]:
            return False
        if self._titled is None:
            # A title is the subject where the text uses its words; the name of a file seldom is.
            title = [word for word in words(self._title) if word not in ENGLISH_STOP_WORDS]
            own = set(self._record.terms[self._record.inside].tolist())
            self._titled = bool(title) and any(term_hash(word) in own for word in title)
        return not self._titled


class Filling:
    """One choice of sentences under one target.

    Args:
        choices: one a candidate.
        ranking: the sentences that may be chosen, best first.
        target: tokens, `overhead` for each candidate that is kept included.
        leaning: of each candidate, which sentences point back; such a one brings the sentence before it while there
            is room.
        seats: give each candidate its best sentence first, where all of these take no more than half of the target.
        cutter: cuts the sentence that there is no room for.
    """

    def __init__(
        self,
        choices: Sequence[Choice],
        ranking: Sequence[Place],
        target: int,
        counter: TokenCounter,
        *,
        overhead: int,
        leaning: Sequence[Leaning],
        seats: bool,
        cutter: Cutter,
    ) -> None:
        self.choices = choices
        self.ranking = ranking
        self.target = target
        self.overhead = overhead
        self.leaning = leaning
        self.seats = seats
        self.cutter = cutter
        self.used = 0
        self._counter = counter
        # A sentence between two that are taken frees two halves of a gap mark.
        self._slack = 2 * max((choice.gap for choice in choices), default=0)
        self._headed = [place for place in ranking if choices[place[0]].units[place[1]].under is not None]
        self._waiting: Place | None = None
        self._said: dict[str, Place] = {}
        self._again = False
        self._counted: dict[int, tuple[Candidate, int]] = {}

    def run(self) -> None:
        if self.seats:
            self._seat()
        self._rounds()
        if self.used < _ENOUGH * self.target and self._said:
            self._again = True  # there is nothing else but what was said already
            self._rounds()
        self._cut()

    def _rounds(self) -> None:
        for _ in range(_ROUNDS):
            before = self.used
            self._fill()
            self._close_gaps()
            self._head()
            self._settle()
            if self.used == before or self.used >= _FULL * self.target:
                break

    def _fill(self) -> None:
        room = self.target - self.used + self._slack
        for place in self.ranking:
            if place[2] <= room and not self._is_said(place) and self._take(place):
                self._said.setdefault(self._text(place), place)
                room = self.target - self.used + self._slack
            elif (
                place[2] > _LONG * self.target
                and self.target - self.used >= _SHARE * place[2]
                and not self.choices[place[0]].takes(place[1])
                and self.choices[place[0]].free(place[1])
                and not self._is_said(place)
            ):
                self._waiting = place
                break

    def _is_said(self, place: Place) -> bool:
        """Whether the same sentence was taken elsewhere, and others are left."""
        return not self._again and self._said.get(self._text(place), place) != place

    def _text(self, place: Place) -> str:
        return self.choices[place[0]].units[place[1]].text.strip()

    def _cut(self) -> None:
        """Fill what is left with parts of the best sentences that have no room; with crumbs only where that is much."""
        places = [self._waiting, *self.ranking] if self._waiting else self.ranking
        self._cut_some(places, least=_TELLING)
        if self.used < _ENOUGH * self.target:
            self._cut_some(places, least=1)
        if not self.used:  # no room even for a mark and a word
            any(self._cut_one(place, marked=False) for place in self.ranking)

    def _cut_some(self, places: Sequence[Place], *, least: int) -> None:
        """Cut these sentences in turn while much is left, and keep what has at least so many words."""
        cuts = 0
        for place in places:
            left = self.target - self.used
            if left < min(_CRUMB, (1 - _ENOUGH) * self.target) or cuts == _CUTS:
                break
            choice = self.choices[place[0]]
            if place[1] not in choice and choice.free(place[1]) and not self._is_said(place):
                cuts += 1
                self._cut_one(place, marked=True, least=least)

    def _cut_one(self, place: Place, *, marked: bool, least: int = 1) -> bool:
        """Take as much of the sentence as fits; its pieces' counts are a token off at times, so the text decides."""
        number, unit, _ = place
        choice = self.choices[number]
        known = self._count(number) if len(choice) else 0
        others = self.used - known
        room = self.target - self.used - (0 if known else self.overhead)
        best: tuple[int, Sequence[Span]] = (0, ())
        for _ in range(_ATTEMPTS):
            parts = self.cutter.part(choice.units[unit].text, room)
            choice.cut(unit, parts, marked=marked)
            count = self._count(number) if parts else 0
            spare = self.target - others - count
            if parts and spare >= 0 and count > best[0] and self._tells(choice.units[unit], parts, least):
                best = (count, parts)
            if not parts or not spare or (best[0] >= count > 0 and others + best[0] >= _FULL * self.target):
                break
            room += spare
        choice.cut(unit, best[1], marked=marked)
        if best[1]:
            self.used = others + best[0]
        return bool(best[1])

    @staticmethod
    def _tells(unit: Unit, parts: Sequence[Span], least: int) -> bool:
        """Whether the parts of a sentence have so many words, or it has no more itself; blanks say nothing."""
        kept = " ".join(part.slice(unit.text) for part in parts)
        if kept.isspace():
            return unit.text.isspace()
        return len(words(kept)) >= min(least, len(words(unit.text[:_LOOKED_AT])))

    def _take(self, place: Place) -> bool:
        """Take the sentence if it fits, and no candidate that overlaps this one has it."""
        number, unit, _ = place
        choice = self.choices[number]
        if choice.takes(unit) or not choice.free(unit):
            return False
        before = choice.cost - (self.overhead if self.overhead and not len(choice) else 0)
        choice.add(unit)
        cost = choice.cost - before
        if self.used + cost > self.target and choice.units[unit].needs and choice.least(unit) > self.target:
            choice.remove(unit)  # its header has no room in all of the target: better the row alone than none
            choice.add(unit, bare=True)
            cost = choice.cost - before
        if self.used + cost > self.target:
            choice.remove(unit)
            return False
        self.used += cost
        if self.leaning[number].points_back(unit):
            self._bring(number, unit)
        return True

    def _bring(self, number: int, unit: int) -> None:
        """Take what stands before a sentence that points back, if that fits."""
        choice = self.choices[number]
        for _ in range(_FURTHEST_BACK):
            if not self.leaning[number].points_back(unit) or not unit or choice.units[unit - 1].heading:
                return
            unit -= 1
            if unit not in choice:
                if not choice.free(unit):
                    return
                cost = choice.marginal(unit)
                if self.used + cost > self.target:
                    return
                choice.add(unit)
                self.used += cost

    def _seat(self) -> None:
        """Give each candidate its most relevant sentence, where all of these take no more than half of the target."""
        best: dict[int, Place] = {}
        for place in self.ranking:
            best.setdefault(place[0], place)
        cost = sum(self.choices[place[0]].marginal(place[1]) + self.overhead for place in best.values())
        if cost <= self.target / 2:
            waiting = set(best)
            for place in self.ranking:  # the best one may be one that it shares with a better candidate
                if place[0] in waiting and self._take(place):
                    waiting.discard(place[0])

    @staticmethod
    def _rank(candidate: Candidate) -> tuple[float, str]:
        return (-candidate.score, candidate.chunk.id)

    def _close_gaps(self) -> None:
        """A sentence that costs no more than the gap mark in its place is taken for nothing."""
        for number, choice in enumerate(self.choices):
            if len(choice):
                for position in choice.short:
                    if position not in choice and choice.free(position) and choice.marginal(position) <= 0:
                        self._take((number, position, 0))

    def _head(self) -> None:
        """Put the headings over what was taken while there is room, over the most relevant first."""
        for number, unit, _ in self._headed:
            choice = self.choices[number]
            under = choice.units[unit].under
            if under is not None and choice.takes(unit) and not choice.takes(under):
                self._take((number, under, 0))

    def _settle(self) -> None:
        """Count the texts as they will be sent; while they are over, give back the least relevant sentences."""
        counts = {number: self._count(number) for number, choice in enumerate(self.choices) if len(choice)}
        if sum(counts.values()) > self.target:
            self._give_back(counts)
        self.used = sum(counts.values())

    def _give_back(self, counts: dict[int, int]) -> None:
        rest = [place for place in self.ranking if self.choices[place[0]].takes(place[1])]
        if self.seats:  # the only sentence of a candidate goes after all others, that of the best candidate last
            alone = [place for place in rest if len(self.choices[place[0]]) == 1]
            alone.sort(key=lambda place: self._rank(self.choices[place[0]].candidate))
            rest = alone + [place for place in rest if len(self.choices[place[0]]) > 1]
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
        left = self.choices[number].compressed()
        known = self._counted.get(number)
        if known is None or known[0] is not left:
            known = self._counted[number] = (left, self._counter.count(left.text) + self.overhead)
        return known[1]
