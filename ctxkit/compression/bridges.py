"""Which sentences lead to which: by the title of another document, by the names they share.

A question that takes two steps names its first document, not its second; but a sentence of the first names the title
of the second. So a sentence is worth more where its document's title stands in a good sentence elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ctxkit.compression.records import Record, term_hash
from ctxkit.compression.terms import plain_words
from ctxkit.documents import Candidate
from ctxkit.stop_words import ENGLISH_STOP_WORDS

__all__ = ["Bridges", "Titles", "bridges", "shared_names"]

Floats = NDArray[np.float64]

_BRACKETS = re.compile(r"\s*[(（][^)）]*[)）]")
_EDGES, _BEST = 256, 32
"""Mentions that are followed, and sentences at the other end of each: bounds the time where all mention all."""
_NAMING = 5
"""Best sentences whose names count as the question's own."""


class Bridges(NamedTuple):
    """Per sentence. All zero without titles.

    Args:
        into: how good the best sentence is that mentions this one's title, for the first sentence of a document.
        out: how good the best sentence is under a title that this one mentions.
        known: 1 where it mentions a title that the question names.
        pair_out: of this sentence and the best one that it leads to, how much of the question they cover together.
        pair_in: the same with the best one that leads here.
        sources, targets: the mentions: a sentence, and the number of the title.
    """

    into: Floats
    out: Floats
    known: Floats
    pair_out: Floats
    pair_in: Floats
    sources: NDArray[np.int64]
    targets: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Titles:
    """The distinct titles of some candidates.

    Args:
        of: the title of each candidate as a number, -1 where it has none.
        words: of each title, hashed, what stands in brackets left out.
        asked: which the question names.
        shares: how much of each title's words the question has.
    """

    of: NDArray[np.int64]
    words: tuple[tuple[int, ...], ...]
    asked: NDArray[np.bool_]
    shares: Floats

    @classmethod
    def read(cls, question: str, candidates: Sequence[Candidate]) -> Titles:
        numbers: dict[tuple[int, ...], int] = {}
        plain: list[list[str]] = []
        of: list[int] = []
        known: dict[str, int] = {"": -1}
        for candidate in candidates:
            written = str(candidate.chunk.metadata.get("title") or "")
            if written not in known:
                title = plain_words(_BRACKETS.sub("", written))
                key = tuple(term_hash(word) for word in title)
                if key and key not in numbers:
                    numbers[key] = len(numbers)
                    plain.append(title)
                known[written] = numbers[key] if key else -1
            of.append(known[written])
        asked_words = [term_hash(word) for word in plain_words(question)]
        asked = set(asked_words)
        shares = []
        for title in plain:
            telling = [term_hash(word) for word in title if word not in ENGLISH_STOP_WORDS]
            shares.append(sum(term in asked for term in telling) / max(1, len(telling)))
        found = [number for _, number in _occurrences(np.array(asked_words, dtype=np.uint32), tuple(numbers))]
        named = np.zeros(len(numbers), dtype=np.bool_)
        named[found] = True
        return cls(np.array(of, dtype=np.int64), tuple(numbers), named, np.array(shares, dtype=np.float64))


def bridges(
    titles: Titles,
    terms: NDArray[np.uint32],
    rows: NDArray[np.int64],
    groups: NDArray[np.int64],
    leads: NDArray[np.bool_],
    worth: Floats,
    cover: Floats,
    cosines: Floats,
) -> Bridges:
    """Follow the mentions of titles, one step.

    Args:
        terms: the words of all sentences, in order; `rows` tells whose.
        groups: the candidate of each sentence, shape `(n,)`.
        leads: which sentences open their document.
        worth: how good each sentence is by itself, in [0, 1].
        cover: for each sentence, the weight of each word of the question that it has: shape `(n, words)`.
        cosines: of each sentence and the question, scaled to [0, 1].
    """
    count = len(groups)
    into, out, known, pair_out, pair_in = (np.zeros(count) for _ in range(5))
    own = titles.of[groups] if count else np.zeros(0, dtype=np.int64)
    edges = [
        (int(row), title)
        for place, title in _occurrences(terms, titles.words)
        if own[row := rows[place]] != title and rows[min(len(rows) - 1, place + len(titles.words[title]) - 1)] == row
    ]
    edges = sorted(set(edges), key=lambda edge: (-worth[edge[0]], edge))
    if not edges:
        none = np.zeros(0, dtype=np.int64)
        return Bridges(into, out, known, pair_out, pair_in, none, none)
    size = len(titles.words)
    best_in, best_of = np.zeros(size), np.zeros(size)
    np.maximum.at(best_of, own[own >= 0], worth[own >= 0])
    sources = np.array([row for row, _ in edges])
    targets = np.array([title for _, title in edges])
    np.maximum.at(best_in, targets, worth[sources])
    np.maximum.at(out, sources, best_of[targets])
    known[sources[titles.asked[targets]]] = 1.0
    lead = leads & (own >= 0)
    into[lead] = best_in[own[lead]]
    under: dict[int, NDArray[np.int64]] = {}
    for row, title in edges[:_EDGES]:
        if title not in under:
            mine = np.flatnonzero(own == title)
            under[title] = mine[np.argsort(-worth[mine], kind="stable")[:_BEST]]
        others = under[title]
        together = np.maximum(cover[row][None], cover[others]).sum(axis=1) + 0.3 * (cosines[row] + cosines[others])
        pair_out[row] = max(pair_out[row], together.max(initial=0.0))
        pair_in[others] = np.maximum(pair_in[others], together)
    return Bridges(into, out, known, pair_out, pair_in, sources, targets)


def shared_names(
    records: Sequence[Record], groups: NDArray[np.int64], worth: Floats, asked: Sequence[int]
) -> tuple[Floats, Floats]:
    """Per sentence: its share of the question's names; and the names it shares with good sentences of other candidates.

    Both in [0, 1]. A rare name counts for more.
    """
    count = len(groups)
    offsets = np.concatenate([[0], np.cumsum([len(record) for record in records])])
    names = np.concatenate([np.zeros(0, dtype=np.uint32), *(record.names for record in records)])
    rows = np.concatenate(
        [
            np.zeros(0, dtype=np.int64),
            *(record.name_rows + start for record, start in zip(records, offsets, strict=False)),
        ]
    ).astype(np.int64)
    own, shared = np.zeros(count), np.zeros(count)
    questions = set(asked)
    for name in questions:
        own[np.unique(rows[names == np.uint32(name)])] += 1 / len(questions)
    best = np.argsort(-worth, kind="stable")[:_NAMING]
    bridging: dict[int, list[int]] = {}
    for row in best.tolist():
        for name in set(names[rows == row].tolist()) - questions:
            bridging.setdefault(name, []).append(row)
    for name, among in sorted(bridging.items()):
        holders = np.unique(rows[names == np.uint32(name)])
        value = max(worth[row] for row in among) * np.log(1 + count / len(holders))
        its = {int(groups[row]) for row in among}
        elsewhere = holders if len(its) > 1 else holders[groups[holders] != next(iter(its))]
        shared[elsewhere] += value
    top = shared.max(initial=0.0)
    return own, shared / top if top else shared


def _occurrences(terms: NDArray[np.uint32], titles: Sequence[tuple[int, ...]]) -> list[tuple[int, int]]:
    """Where which title stands in a sequence of terms: each place, and the number of the title. Linear in the terms."""
    if not titles or not len(terms):
        return []
    numbers = {title: number for number, title in enumerate(titles)}
    lengths: dict[int, set[int]] = {}
    for title in titles:
        lengths.setdefault(title[0], set()).add(len(title))
    # A table of the lowest bits tells most terms apart without a search each.
    table = np.zeros(1 << 16, dtype=np.bool_)
    table[np.array(list(lengths), dtype=np.uint32) & np.uint32(0xFFFF)] = True
    found: list[tuple[int, int]] = []
    for place in np.flatnonzero(table[terms & np.uint32(0xFFFF)]).tolist():
        for length in lengths.get(int(terms[place]), ()):
            number = numbers.get(tuple(terms[place : place + length].tolist()))
            if number is not None:
                found.append((place, number))
    return found
