"""The topics of a long text: stretches that each keep to their own words."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ctxkit.checking import check_number, check_whole
from ctxkit.documents import Document, Span
from ctxkit.stop_words import ENGLISH_STOP_WORDS
from ctxkit.text import sentence_breaks, words

__all__ = ["TopicSegmenter"]

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

_UNIT = 160  # characters: paragraphs are packed into units of about so many, and a topic begins with a unit
_LONGEST = 1_200  # characters of a paragraph that is not cut at its sentences
_STEM = 6  # letters of a word that are kept
_SPOKEN = frozenset("yeah okay yes hmm mmm know well like think really right going just".split())  # noqa: SIM905


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicSegmenter:
    """Finds where the topic of a long text changes: a meeting, an interview, a chapter. It needs no model.

    Each topic is taken to draw its words from a distribution of its own; cuts maximise the probability of the text,
    the distributions integrated out, and each topic has a price. So the number of topics comes from the text. The
    optimum is exact, by dynamic programming over units of a few lines. Chunks are for searching and much smaller:
    for them there is `SemanticGraphChunker`.

    Args:
        price: of a topic, in nats (natural logarithm of a probability ratio); more for fewer topics.
        concentration: of the symmetric Dirichlet prior of a topic's words; less for more, and sharper, topics.
        longest: the most characters of a topic.

    Complexity: linear in the text, with `longest` as a factor.

    Source: Eisenstein and Barzilay, "Bayesian Unsupervised Topic Segmentation", EMNLP 2008; Utiyama and Isahara, "A
        Statistical Model for Domain-Independent Text Segmentation", ACL 2001.

    Example:
        >>> document = Document.from_text("Cats purr at other cats.\\n\\n" * 40 + "Rust compiles traits.\\n\\n" * 40)
        >>> len(TopicSegmenter(price=20).segments(document))
        2
    """

    price: float = 60.0
    concentration: float = 0.2
    longest: int = 200_000

    def __post_init__(self) -> None:
        check_number(self.price, "price", minimum=0.0, maximum=1e6)
        check_number(self.concentration, "concentration", minimum=1e-6, maximum=1e6)
        check_whole(self.longest, "longest", minimum=1)

    def segments(self, document: Document) -> list[Span]:
        """The topics in order: spans that join without a gap and cover the whole text; none for a blank one."""
        text = document.text
        if not text.strip():
            return []
        begins = _units(text)
        cuts = self._cuts(text, begins)
        starts = [0, *(begins[at] for at in cuts)]
        return [Span(start, end) for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]

    def _cuts(self, text: str, begins: list[int]) -> list[int]:
        """The units that begin a topic, but the first."""
        ends = [*begins[1:], len(text)]
        counted = _Counted.of([text[start:end] for start, end in zip(begins, ends, strict=True)])
        prior = self.concentration
        most = int(counted.per_unit.sum()) + 1
        rising = _log_rising(most, prior * max(1, counted.vocabulary))
        single = _log_rising(int((counted.before + counted.times).max(initial=0)) + 1, prior)
        n = len(begins)
        best = np.full(n + 1, np.inf)
        best[0] = 0.0
        previous = np.zeros(n + 1, dtype=np.int64)
        passed = np.zeros(counted.vocabulary, dtype=np.int64)  # how often each word came before the topic's beginning
        reach = np.searchsorted(begins, np.asarray(begins) + self.longest, side="right") - 1
        for start in range(n):
            stop = n if begins[start] + self.longest >= len(text) else max(start + 1, int(reach[start]))
            low, high = counted.at[start], counted.at[stop]
            own = counted.before[low:high] - passed[counted.word[low:high]]
            gains = np.concatenate([[0.0], np.cumsum(single[own + counted.times[low:high]] - single[own])])
            lengths = np.cumsum(counted.per_unit[start:stop])
            cost = best[start] + self.price + rising[lengths] - gains[counted.at[start + 1 : stop + 1] - low]
            better = cost < best[start + 1 : stop + 1]
            best[start + 1 : stop + 1][better] = cost[better]
            previous[start + 1 : stop + 1][better] = start
            here = slice(low, counted.at[start + 1])
            passed[counted.word[here]] += counted.times[here]
        cuts = []
        end = n
        while end:
            end = int(previous[end])
            cuts.append(end)
        return cuts[-2::-1]


def _log_rising(count: int, base: float) -> Floats:
    """`log(base * (base + 1) * ... * (base + k - 1))` for each k up to `count`."""
    return np.concatenate([[0.0], np.cumsum(np.log(base + np.arange(count)))])


def _units(text: str) -> list[int]:
    """Where units begin: with paragraphs, and inside very long ones with sentences."""
    places: list[int] = [0]
    position = 0
    for line in text.split("\n"):
        end = position + len(line)
        if line and not line.isspace():
            places.append(position)
            if len(line) > _LONGEST:
                places.extend(sentence_breaks(text, position, end))
        position = end + 1
    places.append(len(text))
    begins = [0]
    for place, following in pairwise(places[1:]):
        if place > begins[-1] and following - begins[-1] > _UNIT:
            begins.append(place)
    return begins


@dataclass(frozen=True, slots=True)
class _Counted:
    """The words of the units: an entry for each different word of each unit, unit by unit.

    Attributes:
        word: its number.
        times: how often the unit has it.
        before: how often the units before have it.
        at: where the entries of each unit begin, and where the last end.
        per_unit: words, repeats counted.
    """

    word: Integers
    times: Integers
    before: Integers
    at: Integers
    per_unit: Integers
    vocabulary: int

    @classmethod
    def of(cls, texts: list[str]) -> _Counted:
        units: list[dict[str, int]] = []
        for text in texts:
            found: dict[str, int] = {}
            for word in words(text):
                if word in ENGLISH_STOP_WORDS or word in _SPOKEN or (len(word) < 3 and word.isascii()):
                    continue
                found[word[:_STEM]] = found.get(word[:_STEM], 0) + 1
            units.append(found)
        number: dict[str, int] = {}
        total: dict[str, int] = {}
        rows: list[tuple[int, int, int]] = []
        at = [0]
        for found in units:
            for word, times in found.items():
                rows.append((number.setdefault(word, len(number)), times, total.get(word, 0)))
                total[word] = total.get(word, 0) + times
            at.append(len(rows))
        table = np.asarray(rows, dtype=np.int64).reshape(-1, 3)
        running = np.concatenate([[0], np.cumsum(table[:, 1])])
        places = np.asarray(at, dtype=np.int64)
        return cls(table[:, 0], table[:, 1], table[:, 2], places, np.diff(running[places]), len(number))
