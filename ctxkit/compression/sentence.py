"""Keeps the sentences that matter to the question, as spans of the document."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ctxkit.checking import check_able, check_kind, check_number, check_whole
from ctxkit.compression.choosing import BLANKS, Choice, GapCosts
from ctxkit.compression.relevance import combine, lexical_scores, semantic_scores
from ctxkit.compression.units import split
from ctxkit.documents import Candidate, Query
from ctxkit.errors import ConfigError
from ctxkit.protocols import Embedder, TokenCounter
from ctxkit.tokens import get_counter

__all__ = ["SentenceCompressor"]


_ROUNDS = 2
"""Estimates are a few tokens off: the second round fills what the first one left."""


class _Place(NamedTuple):
    """One sentence: which candidate's, and which of its units."""

    candidate: int
    unit: int


@dataclass(frozen=True, kw_only=True)
class SentenceCompressor:
    """Chooses among the sentences of all candidates those that matter to the question, until the target is full.

    Relevance is BM25 over the sentences and, with an embedder, their cosine to the question, each scaled to [0, 1], and
    a share of the best sentence of the same candidate. Each sentence is read under its document's title
    (`metadata["title"]`) and headings. Nothing is rewritten: a candidate comes back with `kept`, the document spans of
    its sentences, and its text marks each gap. Table rows bring their table's header; headings come with what stands
    under them while there is room. What fits already is not touched. The order of the candidates stays.

    Each candidate keeps at least its best sentence where all of these fit in half of the target. In a harder squeeze
    sentences compete, and candidates that would get none are left out of the result: on HotpotQA at 5x, a seat for
    each of ten paragraphs would keep 43 % of the gold sentences, competition keeps 81 %. If not even one sentence fits,
    everything comes back uncompressed: it is for assembly to say what a prompt has no room for. O(n log n) in the
    sentences, and one count a sentence.

    Args:
        target: the tokens to come down to; with `query.room` and `ratio`, the least of them counts.
        ratio: how many times smaller the result shall be; above 1.
        counter: what counts tokens; by default o200k_base. Give the target model's where you have it.
        embedder: adds meaning to words; without one, words alone decide.
        drop: let sentences compete at any target.
        overhead: tokens that each candidate costs beside its text, such as its delimiters in the prompt.
        batch_size: sentences embedded at once.

    Raises:
        ConfigError: a parameter is out of range.

    Source: extractive compression as the strong baseline: Jha et al., "Characterizing Prompt Compression Methods for
    Long Context Inference", 2024 (arXiv 2407.08892).

    Example:
        >>> SentenceCompressor(ratio=2)(Query("What is measured?"), [])
        []
    """

    target: int | None = None
    ratio: float | None = None
    counter: TokenCounter | None = None
    embedder: Embedder | None = None
    drop: bool = False
    overhead: int = 0
    batch_size: int = 64

    def __post_init__(self) -> None:
        if self.target is not None:
            check_whole(self.target, "target", minimum=1, remedy="Give a whole number of tokens, 1 or more.")
        if self.ratio is not None:
            check_number(self.ratio, "ratio", minimum=1.0, remedy="Give more than 1: 3 makes it a third as long.")
            if self.ratio <= 1.0:
                raise ConfigError(f"ratio is {self.ratio!r}", remedy="Give more than 1: 3 makes it a third as long.")
        if self.counter is not None:
            check_able(self.counter, "count", "counter", remedy="Give a counter, such as get_counter('o200k_base').")
        if self.embedder is not None:
            check_able(self.embedder, "embed", "embedder", remedy="Give an embedder, or None to go by words alone.")
        check_kind(self.drop, bool, "drop", remedy="Give True or False.")
        check_whole(self.overhead, "overhead", minimum=0)
        check_whole(self.batch_size, "batch_size", minimum=1)

    def __call__(self, query: Query, candidates: Sequence[Candidate]) -> list[Candidate]:
        counter = self.counter or get_counter()
        whole = [counter.count(candidate.text) + self.overhead for candidate in candidates]
        target = self._target(query, sum(whole))
        if target is None or sum(whole) <= target:
            return list(candidates)
        units = [split(candidate) for candidate in candidates]
        gaps = GapCosts(counter)
        choices = [
            # A blank after a sentence is part of the next word's token, or goes before a gap.
            Choice(candidate, mine, [counter.count(unit.text.rstrip(BLANKS) or unit.text) for unit in mine], gaps)
            for candidate, mine in zip(candidates, units, strict=True)
        ]
        ranking = self._ranking(query, choices)
        _Filling(choices, ranking, target, counter, self.overhead, drop=self.drop).run()
        kept = [choice.compressed() for choice in choices if len(choice) or not choice.units]
        return kept if any(len(choice) for choice in choices) else list(candidates)

    def _target(self, query: Query, total: int) -> int | None:
        targets = [self.target, query.room, None if self.ratio is None else int(total / self.ratio)]
        return min((target for target in targets if target is not None), default=None)

    def _ranking(self, query: Query, choices: Sequence[Choice]) -> list[_Place]:
        """Every sentence that may be chosen by itself, most relevant first; a total order whatever came in."""
        places = [
            _Place(number, position)
            for number, choice in enumerate(choices)
            for position, unit in enumerate(choice.units)
            # Headers and headings come with others, except where there is nothing else.
            if choice.only_headings or not (unit.header or unit.heading)
        ]
        texts = [_in_context(choices[place.candidate], place.unit) for place in places]
        signals = [lexical_scores(query.text, texts)]
        if self.embedder is not None and texts:
            signals.append(semantic_scores(query.text, texts, self.embedder, batch_size=self.batch_size))
        # Rounded, so that equal sentences stay equal whatever order they were added up in.
        scores = np.round(combine(signals, [place.candidate for place in places]), 9)

        def key(item: tuple[_Place, float]) -> tuple[float, float, str, int]:
            place, score = item
            candidate = choices[place.candidate].candidate
            return (-score, -candidate.score, candidate.chunk.id, place.unit)

        return [place for place, _ in sorted(zip(places, scores.tolist(), strict=True), key=key)]


def _in_context(choice: Choice, position: int) -> str:
    """The sentence under the title and the headings it stands under: "It was founded in 1911" says of what."""
    chunk = choice.candidate.chunk
    unit = choice.units[position]
    above = [str(chunk.metadata.get("title") or ""), *chunk.heading_path]
    if unit.under is not None:
        above.append(choice.units[unit.under].text.strip("# \n\r\t"))
    context = " > ".join(dict.fromkeys(part for part in above if part))
    return f"{context}: {unit.text}" if context else unit.text


class _Filling:
    """Takes sentences by rank until the target is full, then counts the texts themselves and puts the rest right."""

    def __init__(
        self,
        choices: Sequence[Choice],
        ranking: Sequence[_Place],
        target: int,
        counter: TokenCounter,
        overhead: int,
        *,
        drop: bool,
    ) -> None:
        self.choices = choices
        self.ranking = ranking
        self.target = target
        self.overhead = overhead
        self.drop = drop
        self.used = 0
        self._count: Callable[[Choice], int] = lambda choice: counter.count(choice.compressed().text) + overhead

    def run(self) -> None:
        if not self.drop:
            self._seat()
        for _ in range(_ROUNDS):
            for place in self.ranking:
                self._take(place)
            self._close_gaps()
            self._head()
            self._settle()

    def _take(self, place: _Place) -> bool:
        """Take the sentence if it fits."""
        choice = self.choices[place.candidate]
        if choice.takes(place.unit):
            return False
        cost = choice.marginal(place.unit) + (0 if len(choice) else self.overhead)
        if self.used + cost > self.target:
            return False
        choice.add(place.unit)
        self.used += cost
        return True

    def _seat(self) -> None:
        """Give each candidate its most relevant sentence, where all of these take no more than half of the target."""
        best: dict[int, _Place] = {}
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
                for position in range(len(choice.units)):
                    if position not in choice and choice.marginal(position) <= 0:
                        self._take(_Place(number, position))

    def _head(self) -> None:
        """Put the headings over what was taken while there is room, over the most relevant first."""
        for place in self.ranking:
            choice = self.choices[place.candidate]
            under = choice.units[place.unit].under
            if under is not None and choice.takes(place.unit) and not choice.takes(under):
                self._take(_Place(place.candidate, under))

    def _settle(self) -> None:
        """Count the texts as they will be sent; while they are over, give back the least relevant sentences."""
        counts = {number: self._count(choice) for number, choice in enumerate(self.choices) if len(choice)}
        rest = [place for place in self.ranking if self.choices[place.candidate].takes(place.unit)]
        if not self.drop:  # the only sentence of a candidate goes after all others, that of the best candidate last
            alone = [place for place in rest if len(self.choices[place.candidate]) == 1]
            alone.sort(key=lambda place: self._rank(self.choices[place.candidate].candidate))
            several = [place for place in rest if len(self.choices[place.candidate]) > 1]
            rest = alone + several
        while (excess := sum(counts.values()) - self.target) > 0 and rest:
            touched: set[int] = set()
            freed = 0
            while rest and freed < excess:
                number, unit = rest.pop()
                before = self.choices[number].cost
                self.choices[number].remove(unit)
                freed += max(1, before - self.choices[number].cost)
                touched.add(number)
            for number in touched:
                choice = self.choices[number]
                choice.remove_lonely_headings()
                counts[number] = self._count(choice) if len(choice) else 0
        self.used = sum(counts.values())
