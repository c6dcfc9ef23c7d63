"""What holds neighbouring nodes together, and so what a cut between them breaks.

The graph has an edge from each mention of a word or of an entity to the next mention of the same, where that is near:
a chain, so that a thing named ten thousand times has ten thousand edges and not their square. An edge weighs as much
as the thing is rare in the block, and less the further it reaches. A cut breaks the edges that cross it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ctxkit.stop_words import ENGLISH_STOP_WORDS
from ctxkit.text import words

__all__ = ["Floats", "mention_ties", "similarity_ties", "word_mentions"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_STEM = 6  # letters of a word that are kept: the simplest stemmer, and as good as any here
_DECAY = 0.7  # of an edge's weight for each node that it passes over
_WINDOW = 2  # nodes on either side of a cut
_ASCII_WORD = re.compile(r"[a-z0-9]+")


def word_mentions(texts: Iterable[str]) -> tuple[Integers, Integers]:
    """The words of each text but the commonest English ones, as numbers, and the index of the text each is in."""
    known: dict[str, int] = {}
    ids: list[int] = []
    counts: list[int] = []
    for text in texts:
        lower = text.lower()
        found = _ASCII_WORD.findall(lower) if lower.isascii() else words(text)
        new = {known.setdefault(word[:_STEM], len(known)) for word in found if word not in ENGLISH_STOP_WORDS}
        ids.extend(new)
        counts.append(len(new))
    where = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    return np.asarray(ids, dtype=np.int64), where


def mention_ties(ids: Integers, where: Integers, size: int) -> Floats:
    """For a cut before each of `size` nodes, the broken part of what the nodes on either side name: in [0, 1].

    Args:
        ids: what is mentioned, each once a node.
        where: the nodes, parallel to `ids`.

    Complexity: O(m log m) in the mentions, for sorting.
    """
    ties = np.zeros(size)
    if not len(ids):
        return ties
    spread = np.bincount(ids)
    rarity = np.log((size + 1) / (spread + 0.5)).clip(0.0)
    order = np.lexsort((where, ids))
    thing, node = ids[order], where[order]
    gap = node[1:] - node[:-1]
    near = (thing[1:] == thing[:-1]) & (gap < 2 * _WINDOW)
    first, last = node[:-1][near], node[1:][near]
    edge = rarity[thing[1:][near]] * _DECAY ** (last - first - 1)
    change = np.zeros(size + 2)
    np.add.at(change, np.maximum(first + 1, last - _WINDOW + 1), edge)
    np.add.at(change, np.minimum(last, first + _WINDOW) + 1, -edge)
    broken = np.cumsum(change)[:size]
    named = np.concatenate([[0.0], np.cumsum(np.bincount(where, weights=rarity[ids], minlength=size))])
    at = np.arange(size)
    left = named[at] - named[np.maximum(0, at - _WINDOW)]
    right = named[np.minimum(size, at + _WINDOW)] - named[at]
    smaller = np.minimum(left, right)
    np.divide(broken, smaller, out=ties, where=smaller > 0)
    return ties.clip(0.0, 1.0)


def similarity_ties(vectors: NDArray[np.float32], sizes: Sequence[int]) -> Floats:
    """For a cut before each node, how alike the nodes on either side are: the cosine of their windows' mean vectors."""
    n = len(vectors)
    ties = np.zeros(n)
    weighted = vectors.astype(np.float64) * np.asarray(sizes, dtype=np.float64)[:, None]
    sums = np.concatenate([np.zeros((1, vectors.shape[1])), np.cumsum(weighted, axis=0)])
    at = np.arange(n)
    left = sums[at] - sums[np.maximum(0, at - _WINDOW)]
    right = sums[np.minimum(n, at + _WINDOW)] - sums[at]
    length = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    np.divide((left * right).sum(axis=1), length, out=ties, where=length > 0)
    return ties
