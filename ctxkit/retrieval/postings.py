"""An inverted index in numpy arrays, with BM25 on top: pure, in memory, exact after any adding and removing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctxkit.errors import ConfigError

__all__ = ["BM25", "InvertedIndex", "Postings"]

Keys = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class BM25:
    """The weights of BM25.

    Args:
        k1: how soon repeats of a term stop counting, >= 0.
        b: how much a long text is discounted, in [0, 1].

    Source: Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009; idf as in Lucene,
    `ln(1 + (n - df + 0.5) / (df + 0.5))`, which is never negative.
    """

    k1: float = 1.2
    b: float = 0.75

    def __post_init__(self) -> None:
        if not self.k1 >= 0 or not 0 <= self.b <= 1:
            raise ConfigError(f"k1 is {self.k1} and b {self.b}", remedy="Need k1 >= 0 and 0 <= b <= 1.")


@dataclass(frozen=True, slots=True)
class Postings:
    """One sorted run of postings by term: those of `terms[i]` are `rows[offsets[i]:offsets[i + 1]]`, rows ascending."""

    terms: NDArray[np.uint64]
    offsets: NDArray[np.int64]
    rows: NDArray[np.int32]
    counts: NDArray[np.int32]

    @classmethod
    def of(cls, terms: NDArray[np.uint64], rows: NDArray[np.int32], counts: NDArray[np.int32]) -> Postings:
        """From postings that are sorted by term and then row."""
        starts = np.flatnonzero(np.r_[True, terms[1:] != terms[:-1]]) if len(terms) else np.zeros(0, dtype=np.int64)
        return cls(terms[starts], np.r_[starts, len(terms)].astype(np.int64), rows, counts)

    def __len__(self) -> int:
        return len(self.rows)

    def expanded(self) -> NDArray[np.uint64]:
        """The term of every posting."""
        return np.repeat(self.terms, np.diff(self.offsets))

    def find(self, term: np.uint64) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Rows and counts of a term: logarithmic in the number of terms."""
        at = int(np.searchsorted(self.terms, term))
        if at == len(self.terms) or self.terms[at] != term:
            return self.rows[:0], self.counts[:0]
        start, end = self.offsets[at], self.offsets[at + 1]
        return self.rows[start:end], self.counts[start:end]


class InvertedIndex:
    """Terms to the keys of the texts that hold them.

    Adding n postings costs O(n log n) amortised: new texts form a run of their own, and runs of like size are merged,
    so that there are logarithmically many. Removing marks a text; when a quarter is marked, the index is compacted.
    Scores depend on the texts that are in the index alone, never on how they came there. A query costs its own
    postings and a lookup a term, plus one allocation of the index's length that the system zeroes lazily.
    """

    def __init__(self) -> None:
        self._keys: Keys = np.zeros(0, dtype=np.int64)
        self._lengths: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._alive: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._runs: list[Postings] = []
        self._last: tuple[tuple[bytes, BM25], Keys, NDArray[np.float64]] | None = None  # question, keys, scores

    def __len__(self) -> int:
        return int(self._alive.sum())

    def keys(self) -> Keys:
        """The keys in the index, ascending."""
        return np.sort(self._keys[self._alive])

    def add(self, keys: Sequence[int], texts: Sequence[NDArray[np.uint64]]) -> None:
        """Add texts, as their terms, under keys; a key that is there gets the new text."""
        if len(keys) != len(texts) or len(set(keys)) != len(keys):
            raise ConfigError(f"{len(keys)} keys for {len(texts)} texts", remedy="Give every text one key of its own.")
        if not keys:
            return
        new = np.asarray(keys, dtype=np.int64)
        self._last = None
        self.remove(new)
        first = len(self._keys)
        lengths = np.fromiter(map(len, texts), dtype=np.int32, count=len(texts))
        rows = np.repeat(np.arange(first, first + len(new), dtype=np.int32), lengths)
        run = _counted(np.concatenate(texts), rows)
        self._keys = np.concatenate([self._keys, new])
        self._lengths = np.concatenate([self._lengths, lengths])
        self._alive = np.concatenate([self._alive, np.ones(len(new), dtype=np.bool_)])
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            run = _merged(self._runs.pop(), run)
        self._runs.append(run)

    def remove(self, keys: Keys) -> None:
        """Remove these keys; unknown ones are ignored."""
        if len(keys) == 0 or len(self._keys) == 0:
            return
        self._last = None
        self._alive &= ~np.isin(self._keys, keys)
        if (len(self._keys) - len(self)) * 4 > len(self._keys):
            self.compact()

    def compact(self) -> None:
        """One run, without the postings of removed texts. Linear."""
        run = self._runs[0] if self._runs else _counted(np.zeros(0, np.uint64), np.zeros(0, np.int32))
        for other in self._runs[1:]:
            run = _merged(run, other)
        if not self._alive.all():
            renumbered = (np.cumsum(self._alive) - 1).astype(np.int32)
            keep = self._alive[run.rows]
            run = Postings.of(run.expanded()[keep], renumbered[run.rows[keep]], run.counts[keep])
            self._keys, self._lengths = self._keys[self._alive], self._lengths[self._alive]
            self._alive = np.ones(len(self._keys), dtype=np.bool_)
        self._runs = [run]

    def search(
        self, terms: NDArray[np.uint64], k: int, weights: BM25, *, keys: Keys | None = None
    ) -> tuple[Keys, NDArray[np.float64]]:
        """The `k` best keys for a query's terms, best first, ties by key; and their scores in (0, 1).

        A score is the BM25 sum divided by the most that any text could have, the sum of the idf of the query's terms:
        1 would be a text that repeats every term without end. Terms that no text has count in that sum, so a score
        says how much of the question was found. Only texts with some term are returned; with `keys`, only these.
        """
        if k < 1:
            raise ConfigError(f"k is {k}", remedy="Ask for at least one.")
        # One question is asked several times: for the best, and for what others have found.
        asked, last = (terms.tobytes(), weights), self._last
        if last is None or last[0] != asked:
            self._last = last = (asked, *self._scored(terms, weights))
        candidates, found = last[1:]
        if keys is not None:
            allowed = np.isin(candidates, keys)
            candidates, found = candidates[allowed], found[allowed]
        return best(candidates, found, k)

    def _scored(self, terms: NDArray[np.uint64], weights: BM25) -> tuple[Keys, NDArray[np.float64]]:
        """Every text that has some term, and its score."""
        total = len(self)
        if total == 0 or len(terms) == 0:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float64)
        average = max(1.0, float(self._lengths[self._alive].sum(dtype=np.int64)) / total)
        unique, counts = np.unique(terms, return_counts=True)
        scores = np.zeros(len(self._keys), dtype=np.float64)
        touched = []
        bound = 0.0
        for term, repeats in zip(unique, counts.tolist(), strict=True):
            rows, frequencies = self._find(term)
            weight = repeats * float(np.log1p((total - len(rows) + 0.5) / (len(rows) + 0.5)))
            bound += weight
            if len(rows):
                norm = weights.k1 * (1 - weights.b + weights.b * self._lengths[rows] / average)
                scores[rows] += weight * frequencies / (frequencies + norm)
                touched.append(rows)
        if not touched:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float64)
        rows, found = _once(touched, scores)
        return self._keys[rows], found / bound

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The compacted index as arrays."""
        self.compact()
        run = self._runs[0]
        return {
            "keys": self._keys,
            "lengths": self._lengths,
            "terms": run.terms,
            "offsets": run.offsets,
            "rows": run.rows,
            "counts": run.counts,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> InvertedIndex:
        """The index that `to_arrays` wrote. Raises `KeyError` or `ValueError` for arrays that are none."""
        index = cls()
        index._keys, index._lengths = arrays["keys"], arrays["lengths"]
        index._alive = np.ones(len(index._keys), dtype=np.bool_)
        run = Postings(arrays["terms"], arrays["offsets"], arrays["rows"], arrays["counts"])
        shapes_agree = (
            len(index._keys) == len(index._lengths)
            and len(run.offsets) == len(run.terms) + 1
            and int(run.offsets[-1]) == len(run.rows) == len(run.counts)
            and (len(run.rows) == 0 or 0 <= int(run.rows.min()) <= int(run.rows.max()) < len(index._keys))
        )
        if not shapes_agree:
            raise ValueError("the arrays are not those of one index")
        index._runs = [run]
        return index

    def _find(self, term: np.uint64) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        found = [run.find(term) for run in self._runs]
        rows = np.concatenate([each[0] for each in found])
        counts = np.concatenate([each[1] for each in found])
        alive = self._alive[rows]
        return rows[alive], counts[alive]


def best(keys: Keys, scores: NDArray[np.float64], k: int) -> tuple[Keys, NDArray[np.float64]]:
    """The `k` highest scores with their keys, best first, ties by key."""
    if k < len(scores):
        edge = np.partition(scores, len(scores) - k)[len(scores) - k]
        among = scores >= edge
        keys, scores = keys[among], scores[among]
    order = np.lexsort((keys, -scores))[:k]
    return keys[order], scores[order]


def _once(touched: list[NDArray[np.int32]], scores: NDArray[np.float64]) -> tuple[NDArray[np.int32], Any]:
    """Every touched row once, with its score: a score that was read is cleared, so that no sort is needed."""
    rows, found = [], []
    for each in touched:
        values = scores[each]
        new = values > 0
        rows.append(each[new])
        found.append(values[new])
        scores[each] = 0.0
    return np.concatenate(rows), np.concatenate(found)


def _counted(terms: NDArray[np.uint64], rows: NDArray[np.int32]) -> Postings:
    """The run of a text's terms in reading order, equal (term, row) pairs counted."""
    order = np.lexsort((rows, terms))
    terms, rows = terms[order], rows[order]
    if len(terms) == 0:
        return Postings.of(terms, rows, np.zeros(0, dtype=np.int32))
    new = np.r_[True, (terms[1:] != terms[:-1]) | (rows[1:] != rows[:-1])]
    starts = np.flatnonzero(new)
    counts = np.diff(np.r_[starts, len(terms)]).astype(np.int32)
    return Postings.of(terms[starts], rows[starts], counts)


def _merged(left: Postings, right: Postings) -> Postings:
    """Two runs as one; the rows of `right` are all greater. Linear: a stable sort finds both runs in order."""
    terms = np.concatenate([left.expanded(), right.expanded()])
    order = np.argsort(terms, kind="stable")
    return Postings.of(
        terms[order],
        np.concatenate([left.rows, right.rows])[order],
        np.concatenate([left.counts, right.counts])[order],
    )
