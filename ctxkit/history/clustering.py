"""Groups of entries by what they say."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from ctxkit.history.terms import Terms

__all__ = ["clusters", "lexical_vectors"]

_DIMENSION = 256
_MOST = 64
_ROUNDS = 4


def lexical_vectors(terms: Sequence[Terms], rarity: Mapping[str, float]) -> NDArray[np.float32]:
    """Unit vectors of entries by their terms, `(n, 256)`; zero for an entry without any.

    Source: the hashing trick: Weinberger et al., "Feature Hashing for Large Scale Multitask Learning", ICML 2009.
    """
    hashes = {term: zlib.crc32(term.encode("utf-8", "surrogatepass")) for term in rarity}
    vectors = np.zeros((len(terms), _DIMENSION), dtype=np.float32)
    for at, each in enumerate(terms):
        row = vectors[at]
        for term in each:
            number = hashes[term]
            row[number % _DIMENSION] += rarity[term] if number >> 31 else -rarity[term]
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(np.divide(vectors, lengths, out=vectors, where=lengths > 0))


def clusters(vectors: NDArray[np.float32]) -> NDArray[np.int64]:
    """The cluster of each of n unit vectors: about the square root of n clusters, 64 at most. Deterministic.

    Spherical k-means from the points that are farthest from each other: Dhillon and Modha, "Concept Decompositions for
    Large Sparse Text Data using Clustering", Machine Learning 2001; Gonzalez 1985 for the beginning. O(n) for a
    dimension.
    """
    count = min(_MOST, isqrt(len(vectors)))
    if count < 2:
        return np.zeros(len(vectors), dtype=np.int64)
    chosen, nearest = [0], vectors @ vectors[0]
    for _ in range(count - 1):
        chosen.append(int(np.argmin(nearest)))
        np.maximum(nearest, vectors @ vectors[chosen[-1]], out=nearest)
    centres = vectors[chosen]
    labels = np.argmax(vectors @ centres.T, axis=1)
    for _ in range(_ROUNDS):
        sums = np.zeros_like(centres)
        np.add.at(sums, labels, vectors)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        centres = np.where(lengths > 0, sums / np.maximum(lengths, 1e-9), centres)
        labels = np.argmax(vectors @ centres.T, axis=1)
    return np.asarray(labels)
