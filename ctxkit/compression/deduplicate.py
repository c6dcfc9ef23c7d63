"""Says everything once: exact and near copies among the candidates, and what the dialogue has already said."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ctxkit.checking import check_kind, check_number
from ctxkit.compression.guards import is_negation
from ctxkit.documents import Candidate, Query, Source
from ctxkit.errors import ConfigError
from ctxkit.stage_inputs import check_candidates, each_text
from ctxkit.text import words

__all__ = ["Deduplicate"]

_SHINGLE = 3
_PRIME = (1 << 31) - 1
_HASHES, _ROWS = 64, 4
"""16 bands of 4: two texts of which nine tenths agree meet in a band with a chance of 1 - 1e-7, of which half, 0.64."""
_CHECKED = 8
"""Kept texts of one band that a text is compared with: bounds the time where a thousand texts share their opening."""
_FIGURE = re.compile(r"\d+")


class _Print(NamedTuple):
    """What two texts are compared by."""

    plain: str
    shingles: frozenset[int]
    facts: tuple[str, ...]
    """Numbers and negations: texts that differ in one say something else, however much of them agrees."""


@dataclass(frozen=True, kw_only=True)
class Deduplicate:
    """Drops candidates whose text another candidate, or the history, already has; the best-scored copy stays.

    Copies are texts equal but for case and white space, and texts whose three-word shingles agree by `threshold`
    (Jaccard index, found by MinHash and then computed exactly) and whose numbers and negations are the same. The copy
    that stays takes the best score of each signal, and the places of the others: `Candidate.copies`. Order stays. Time
    is linear in the texts.

    Args:
        threshold: how much of two texts must agree, above 0 to 1; 1 finds only equal ones.
        history: texts that the prompt already has, or a function from the query to them.

    Raises:
        ConfigError: a parameter is out of range.

    Source: Broder, "On the Resemblance and Containment of Documents", 1997; banding: Leskovec, Rajaraman and Ullman,
    "Mining of Massive Datasets", chapter 3.

    Example:
        >>> Deduplicate(threshold=0.8)(Query("anything"), [])
        []
    """

    threshold: float = 0.85
    history: Sequence[str] | Callable[[Query], Iterable[str]] = ()

    def __post_init__(self) -> None:
        remedy = "Give a part above 0, up to 1, such as 0.85."
        check_number(self.threshold, "threshold", minimum=0.0, maximum=1.0, remedy=remedy)
        if self.threshold == 0.0:
            raise ConfigError("threshold is 0, by which all texts are copies", remedy=remedy)
        if not callable(self.history):
            remedy = "Give texts, or a function from the query to texts."
            check_kind(self.history, (list, tuple), "history", remedy=remedy)
            for text in self.history:
                check_kind(text, str, "a text of history", remedy=remedy)

    def __call__(self, query: Query, candidates: Sequence[Candidate]) -> list[Candidate]:
        check_candidates(query, candidates)
        index = _Index(self.threshold)
        said = self.history(query) if callable(self.history) else self.history
        for text in each_text(said, "history"):
            index.add(_print(text), -1)
        order = sorted(range(len(candidates)), key=lambda at: (-candidates[at].score, candidates[at].chunk.id))
        copies: dict[int, list[int]] = {}
        for at in order:
            mark = _print(candidates[at].text)
            first = index.find(mark)
            if first is None:
                index.add(mark, at)
                copies[at] = []
            elif first >= 0:
                copies[first].append(at)
        return [
            _merged(candidate, [candidates[other] for other in copies[at]])
            for at, candidate in enumerate(candidates)
            if at in copies
        ]


class _Index:
    """Texts by their MinHash bands, in the order in which they came."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._exact: dict[str, int] = {}
        self._bands: dict[tuple[int, bytes], list[tuple[_Print, int]]] = {}

    def find(self, mark: _Print) -> int | None:
        """The number of the first text that this one is a copy of."""
        if mark.plain in self._exact:
            return self._exact[mark.plain]
        if self._threshold < 1.0:
            for band in _bands(mark.shingles):
                for other, number in self._bands.get(band, ()):
                    if other.facts == mark.facts and _jaccard(other.shingles, mark.shingles) >= self._threshold:
                        return number
        return None

    def add(self, mark: _Print, number: int) -> None:
        self._exact.setdefault(mark.plain, number)
        if self._threshold < 1.0:
            for band in _bands(mark.shingles):
                known = self._bands.setdefault(band, [])
                if len(known) < _CHECKED:
                    known.append((mark, number))


def _print(text: str) -> _Print:
    plain = " ".join(text.split()).casefold()
    found = words(text)
    shingles = frozenset(
        zlib.crc32("\0".join(found[at : at + _SHINGLE]).encode("utf-8", "surrogatepass"))
        for at in range(len(found) - _SHINGLE + 1)
    )
    facts = sorted([*_FIGURE.findall(plain), *(word for word in plain.split() if is_negation(word))])
    return _Print(plain, shingles, tuple(facts))


def _bands(shingles: frozenset[int]) -> list[tuple[int, bytes]]:
    """The bands of the MinHash signature; none for a text of less than a shingle, which can only be equal."""
    if not shingles:
        return []
    values = np.fromiter(shingles, dtype=np.uint64, count=len(shingles)) % _PRIME
    factors, shifts = _permutations()
    signature = np.full(_HASHES, _PRIME, dtype=np.uint64)
    for start in range(0, len(values), 1024):  # so that memory stays bounded by the block
        block = (factors[:, None] * values[None, start : start + 1024] + shifts[:, None]) % np.uint64(_PRIME)
        np.minimum(signature, block.min(axis=1), out=signature)
    rows = signature.reshape(-1, _ROWS)
    return [(number, row.tobytes()) for number, row in enumerate(rows)]


def _permutations() -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    random = np.random.default_rng(0)
    factors, shifts = random.integers(1, _PRIME, size=(2, _HASHES), dtype=np.uint64)
    return factors, shifts


def _jaccard(left: frozenset[int], right: frozenset[int]) -> float:
    shared = len(left & right)
    return shared / max(1, len(left) + len(right) - shared)


def _merged(candidate: Candidate, others: Sequence[Candidate]) -> Candidate:
    """The candidate with the best score of each signal, and the places where its copies stand."""
    if not others:
        return candidate
    scores: dict[str, float] = dict(candidate.scores)
    places: list[Source] = list(candidate.copies)
    for other in others:
        for signal, score in other.scores.items():
            scores[signal] = max(score, scores.get(signal, score))
        places.extend([*other.sources, *other.copies])
    return replace(candidate, scores=scores, copies=tuple(sorted(set(places))))
