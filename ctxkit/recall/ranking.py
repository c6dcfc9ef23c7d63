"""How much each entry of a dialogue's past bears on a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

import numpy as np
from numpy.typing import NDArray

from ctxkit.checking import check_number
from ctxkit.errors import ConfigError
from ctxkit.recall.asking import asks_for_several, speaker_asked
from ctxkit.recall.dates import DateRange
from ctxkit.recall.entries import Entry
from ctxkit.recall.lexicon import Lexicon
from ctxkit.text import words

__all__ = ["Ranked", "Ranking"]

Scores = NDArray[np.float64]
_DECIMALS = 9


@dataclass(frozen=True, slots=True, eq=False)
class Ranked:
    """What one question found: arrays with one value an entry.

    Args:
        final: in [0, 1].
        dense, lexical: the signals, in parts of their best; `dense` is None without an embedder.
        time: how near an entry is to the days that the question names, 1 for all where it names none.
        speaker: of whom the question asks, or "".
        own: whether an entry is that one's.
        dates: the days that the question names.
    """

    final: Scores
    dense: Scores | None
    lexical: Scores
    time: Scores
    speaker: str
    own: NDArray[np.bool_]
    dates: tuple[DateRange, ...]

    def order(self) -> NDArray[np.int64]:
        """The entries that bear on the question at all, best first; equals in the order of the dialogue."""
        found = np.lexsort((np.arange(len(self.final)), -self.final))
        return found[self.final[found] > 0]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """How the signals make one score. Deterministic, without a language model.

    Words (BM25) and meaning (cosine), each in parts of its best, are added. An answer stands near what was found: an
    entry gains from those beside it, and a little from the best of its sitting. Those who are asked about say it
    themselves: their entries grow, more so where the question asks for several things. Days that the question names
    weigh last: an entry far from them loses, down to `floor`, and is never filtered out.

    Args:
        beside: what an entry gains of those one, two … entries away, in parts of their score.
        focus: that score is raised to this power first, so that few good entries count and not many weak ones.
        sitting: what it gains of the best entry of its sitting.
        about: by what part an entry grows whose speaker is asked about.
        about_several: the same where the question asks for several things.
        length: longer entries say more: the score is multiplied by characters to this power.
        floor: of the weight of days far from those in the question; 1 looks at no dates, 0 is near to a filter.
        slack: days after which that weight has fallen half way.

    Raises:
        ConfigError: a parameter is out of its range.

    The measurements are in `docs/decisions/0023-recall-over-history.md`.
    """

    beside: tuple[float, ...] = (0.5, 0.3, 0.2, 0.1)
    focus: float = 3.0
    sitting: float = 0.15
    about: float = 0.5
    about_several: float = 1.0
    length: float = 0.1
    floor: float = 0.3
    slack: float = 7.0

    def __post_init__(self) -> None:
        for name in ("focus", "sitting", "about", "about_several", "length"):
            check_number(getattr(self, name), name, minimum=0)
        for share in self.beside:
            check_number(share, "beside", minimum=0, maximum=1)
        check_number(self.floor, "floor", minimum=0, maximum=1)
        check_number(self.slack, "slack", minimum=0)
        if not self.slack:
            raise ConfigError("slack is 0", remedy="Give the days after which the weight of a date has halved.")

    def rank(
        self,
        question: str,
        entries: Sequence[Entry],
        lexicon: Lexicon,
        *,
        cosines: NDArray[np.floating] | None,
        dates: tuple[DateRange, ...] = (),
        zone: datetime | None = None,
    ) -> Ranked:
        """The score of every entry. Linear in the entries, but for the question's postings.

        Args:
            cosines: of the entries' vectors with the question's; None without an embedder.
            zone: aware; its time zone says on which day an entry was said. Each entry's own without it.
        """
        speaker, own = speaker_asked(question, entries)
        about = np.array(own, dtype=bool)
        names = {word for entry in entries if entry.speaker for word in words(entry.speaker)}
        asked = [word for word in words(question) if word not in names]
        terms = lexicon.analyzer.query_terms(" ".join(asked) or question).tolist()
        lexical = _of_best(lexicon.scores(terms))
        dense = None if cosines is None else _of_best(np.asarray(cosines, dtype=np.float64))
        plain = lexical if dense is None else lexical + dense
        plain = _of_best(plain)
        if not plain.any() and (dates or about.any()):
            plain = np.ones(len(entries))  # only who or when is asked: these decide
        final = plain + self._around(plain**self.focus, np.array([entry.sitting for entry in entries], dtype=np.int64))
        final *= 1 + (self.about_several if asks_for_several(question) else self.about) * about
        final *= np.array([len(entry.body) for entry in entries], dtype=np.float64) ** self.length
        time = self._nearness(entries, dates, zone)
        final = np.round(_of_best(final * time), _DECIMALS)
        return Ranked(final, dense, lexical, time, speaker, about, dates)

    def _around(self, scores: Scores, sittings: NDArray[np.int64]) -> Scores:
        """What each entry gains of those around it in its sitting, and of the sitting's best."""
        gain = np.zeros(len(scores))
        for distance, share in enumerate(self.beside, 1):
            together = sittings[distance:] == sittings[:-distance]
            gain[distance:] += share * np.where(together, scores[:-distance], 0.0)
            gain[:-distance] += share * np.where(together, scores[distance:], 0.0)
        best = np.zeros(int(sittings.max(initial=-1)) + 1)
        np.maximum.at(best, sittings, scores)
        return gain + self.sitting * best[sittings]

    def _nearness(self, entries: Sequence[Entry], dates: tuple[DateRange, ...], zone: datetime | None) -> Scores:
        if not dates or self.floor == 1:
            return np.ones(len(entries))
        gaps = np.full(len(entries), np.nan)
        for at, entry in enumerate(entries):
            if entry.created_at is not None:
                day = _day(entry.created_at, zone)
                gaps[at] = min(one.distance(day) for one in dates)
        weights = self.floor + (1 - self.floor) * 0.5 ** np.minimum(gaps / self.slack, 1_000.0)
        # An unknown day says nothing: neither near nor far.
        known = weights[~np.isnan(weights)]
        return np.where(np.isnan(weights), np.median(known) if len(known) else 1.0, weights)


def _day(moment: datetime, zone: datetime | None) -> date:
    """The day of a moment in the time zone of another one; its own on the first and the last day of the calendar."""
    if zone is None or zone.tzinfo is None:
        return moment.date()
    try:
        return moment.astimezone(zone.tzinfo).date()
    except OverflowError:
        return moment.date()


def _of_best(scores: Scores) -> Scores:
    positive = np.maximum(scores, 0.0)
    best = positive.max(initial=0.0)
    return positive / best if best > 0 else positive
