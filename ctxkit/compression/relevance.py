"""How much each sentence matters to the question: by words, by meaning, by names, and by the company it keeps."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ctxkit.compression.bridges import Titles, bridges, shared_names
from ctxkit.compression.records import Record, name_hashes, stem_hash
from ctxkit.compression.terms import asks_for_a_figure, question_terms, terms
from ctxkit.compression.together import Links
from ctxkit.documents import Candidate
from ctxkit.embedded import embedded
from ctxkit.protocols import Embedder

__all__ = ["Relevance", "lexical_scores", "relevance"]

Floats = NDArray[np.float64]

_K1, _B = 1.2, 0.75
_MOST_ASKED = 512
"""Words of a question that are looked for: a longer one is a text, and most of its words are in every sentence."""
_COMPANY = 0.4
"""How much of its candidate's best score a sentence gets, before names count."""
_EXPANDING, _EXPANSION, _SHARPNESS = 5, 0.6, 8.0
"""The best sentences that the question's vector is moved towards, by how much, and how much more for the better."""
# The weights of a logistic regression of "this is a gold sentence" on the signals below, fitted on the even questions
# of eight sets and tested on the odd ones: docs/decisions/0021-what-compression-keeps.md.
_BY_MEANING: Mapping[str, float] = {
    "words": 3.35,
    "words of the candidate": 0.46,
    "meaning": 1.29,
    "meaning with the best": 1.15,
    "title": -1.82,
    "title, first sentence": 1.52,
    "title asked for": 1.16,
    "names": -0.59,
    "names shared": 1.34,
    "bridge in": 1.13,
    "bridge out": -1.39,
    "title asked for elsewhere": -1.27,
    "pair out": 1.98,
    "pair in": 0.56,
    "leans": -0.3,
    "length": 0.59,
    "figure": 0.42,
    "constant": -6.97,
}
_BY_WORDS: Mapping[str, float] = {
    "words": 3.89,
    "words of the candidate": 1.0,
    "title": -1.4,
    "title, first sentence": 1.49,
    "title asked for": 1.07,
    "names": -0.17,
    "names shared": 1.44,
    "bridge in": 1.02,
    "bridge out": -1.04,
    "title asked for elsewhere": -1.2,
    "pair out": 2.59,
    "pair in": 1.23,
    "leans": -0.26,
    "length": 0.84,
    "figure": 0.41,
    "constant": -6.43,
}


class Relevance(NamedTuple):
    """Per sentence.

    Args:
        chance: of being needed, in (0, 1); what orders sentences.
        nearness: to the question alone, in [0, 1], the same for the same sentence whatever stands beside it: the larger
            of the cosine and of the share of the question's words. What a floor is set on.
        links: what ties the sentences together; None without any.
    """

    chance: Floats
    nearness: Floats
    links: Links | None


def relevance(
    question: str, candidates: Sequence[Candidate], records: Sequence[Record], embedder: Embedder | None
) -> Relevance:
    """Score the sentences of all candidates, in their order. Linear in their words and vectors."""
    signals, nearness, links = _signals(question, candidates, records, embedder)
    weights = _BY_WORDS if embedder is None else _BY_MEANING
    total = np.full(len(nearness), weights["constant"])
    for name, values in signals.items():
        total += weights.get(name, 0.0) * values
    # Rounded, so that equal sentences stay equal whatever order they were added up in.
    return Relevance(np.round(1 / (1 + np.exp(-total)), 9), nearness, links)


def _signals(
    question: str, candidates: Sequence[Candidate], records: Sequence[Record], embedder: Embedder | None
) -> tuple[dict[str, Floats], Floats, Links | None]:
    """What speaks for each sentence, by name, about in [0, 1]; its nearness to the question; and what links them."""
    sizes = [len(record) for record in records]
    count = sum(sizes)
    if not count:
        return {}, np.zeros(0), None
    groups = np.repeat(np.arange(len(records)), sizes)
    offsets = np.concatenate([[0], np.cumsum(sizes)])[:-1]
    found = np.concatenate([record.terms for record in records])
    rows = np.concatenate([record.rows + start for record, start in zip(records, offsets, strict=True)]).astype(
        np.int64
    )
    inside = np.concatenate([record.inside for record in records])
    leads = np.zeros(count, dtype=np.bool_)
    for candidate, start, size in zip(candidates, offsets, sizes, strict=True):
        if size and candidate.chunk.span.start == 0:
            leads[start] = True

    asked = list(dict.fromkeys(question_terms(question)))
    bm25, cover, known = _lexical(asked, found, rows, count)
    lexical = bm25 / max(1e-9, float(bm25.max()))
    raw, vectors, query = _cosines(question, records, embedder)
    cosines = _scaled(raw)
    alone = _scaled(bm25) + cosines
    worth = np.round(_scaled(alone + _COMPANY * _best_of(alone, groups)), 9)

    titles = Titles.read(question, candidates)
    share = np.where(titles.of >= 0, titles.shares[titles.of], 0.0) if len(titles.words) else np.zeros(len(records))
    named = np.where(titles.of >= 0, titles.asked[titles.of], 0.0) if len(titles.words) else np.zeros(len(records))
    bridge = bridges(titles, found[inside], rows[inside], groups, leads, worth, cover, cosines)
    names = name_hashes(question)
    own, shared = shared_names(records, groups, worth, names)
    figures = np.concatenate([record.figures for record in records]) & asks_for_a_figure(question)
    signals = {
        "words": lexical,
        "words of the candidate": _best_of(lexical, groups),
        "meaning": cosines,
        "meaning with the best": _expanded(vectors, query, worth),
        "title": share[groups],
        "title, first sentence": share[groups] * leads,
        "title asked for": named[groups],
        "names": own,
        "names shared": shared,
        "bridge in": bridge.into,
        "bridge out": bridge.out,
        "title asked for elsewhere": bridge.known,
        "pair out": bridge.pair_out,
        "pair in": bridge.pair_in,
        "leans": np.concatenate([record.leans for record in records]).astype(np.float64),
        "length": np.log(np.concatenate([record.tokens for record in records]) + 1.0) / 5,
        "figure": figures.astype(np.float64),
    }
    links = Links(groups, leads, cover, titles.of, bridge.sources, bridge.targets, frozenset(names))
    return signals, np.clip(np.maximum(raw, known * cover.sum(axis=1)), 0.0, 1.0), links


def _lexical(
    asked: Sequence[str], found: NDArray[np.uint32], rows: NDArray[np.int64], count: int
) -> tuple[Floats, Floats, float]:
    """BM25 of each sentence, the sentences being the collection; and which of the question's words it has.

    The latter is a matrix `(n, words)` whose rows add up to at most 1, a rare word being a larger part of it; words
    that no sentence has are not in it. Last, the share of the question that is not such words.

    Source: Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009.
    """
    lengths = np.bincount(rows, minlength=count).astype(np.float64)
    mean = float(lengths.mean()) if lengths.any() else 1.0
    norm = _K1 * (1 - _B + _B * lengths / mean)
    scores = np.zeros(count)
    hashes, nowhere = _looked_for(asked, found)
    cover = np.zeros((count, len(hashes)))
    for column, term in enumerate(hashes):
        times = np.bincount(rows[found == term], minlength=count)
        holders = np.flatnonzero(times)
        if len(holders):
            weight = math.log(1 + (count - len(holders) + 0.5) / (len(holders) + 0.5))
            scores[holders] += weight * times[holders] * (_K1 + 1) / (times[holders] + norm[holders])
            cover[holders, column] = weight
    weights = cover.max(axis=0, initial=0.0)
    total = float(weights.sum())
    # A word that no sentence has counts like the rarest there could be.
    missing = math.log(1 + (count + 0.5) / 0.5) * (nowhere + int((weights == 0.0).sum()))
    return scores, cover / max(1e-9, total), total / max(1e-9, total + missing)


def _looked_for(asked: Sequence[str], found: NDArray[np.uint32]) -> tuple[NDArray[np.uint32], int]:
    """The hashes of the question's words, of a long question the rarest that there are; and how many are nowhere."""
    hashes = np.array([stem_hash(term) for term in asked], dtype=np.uint32)
    if len(hashes) <= _MOST_ASKED:
        return hashes, 0
    kinds, counts = np.unique(found, return_counts=True)
    there = np.flatnonzero(np.isin(hashes, kinds))
    rarest = np.argsort(counts[np.searchsorted(kinds, hashes[there])], kind="stable")[:_MOST_ASKED]
    return hashes[there[np.sort(rarest)]], len(hashes) - len(there)


def _cosines(
    question: str, records: Sequence[Record], embedder: Embedder | None
) -> tuple[Floats, list[NDArray[np.float32]], NDArray[np.float32]]:
    """Cosine of each sentence and the question, the sentences' vectors by candidate, and the question's."""
    count = sum(len(record) for record in records)
    if embedder is None:
        return np.zeros(count), [], np.zeros(0, dtype=np.float32)
    query = embedded(embedder, [question])
    vectors = [record.vectors for record in records if record.vectors is not None]
    return _products(vectors, query[0]), vectors, query[0]


def _products(vectors: Sequence[NDArray[np.float32]], query: NDArray[np.float32]) -> Floats:
    products = np.concatenate([part @ query for part in vectors]).astype(np.float64)
    return np.asarray(np.round(np.nan_to_num(products), 4), dtype=np.float64)


def _expanded(vectors: Sequence[NDArray[np.float32]], query: NDArray[np.float32], worth: Floats) -> Floats:
    """Cosine to the question moved towards the best sentences: what belongs to the answer though not to the question.

    Source: Rocchio, "Relevance Feedback in Information Retrieval", 1971, without the negative part.
    """
    if not vectors:
        return np.zeros(len(worth))
    ends = np.cumsum([len(part) for part in vectors])
    best = np.argsort(-worth, kind="stable")[:_EXPANDING]
    owners = np.searchsorted(ends, best, side="right")
    rows = [vectors[owner][row - ends[owner]] for owner, row in zip(owners.tolist(), best.tolist(), strict=True)]
    shares = np.exp(_SHARPNESS * worth[best])
    moved = query + _EXPANSION * ((shares / shares.sum()) @ np.stack(rows).astype(np.float64))
    norm = float(np.linalg.norm(moved)) or 1.0
    return _scaled(_products(vectors, (moved / norm).astype(np.float32)))


def _scaled(values: Floats) -> Floats:
    low, high = float(values.min(initial=0.0)), float(values.max(initial=0.0))
    if len(values):
        low, high = float(values.min()), float(values.max())
    return (values - low) / (high - low) if high > low else np.zeros(len(values))


def _best_of(values: Floats, groups: NDArray[np.int64]) -> Floats:
    """For each sentence, the best value in its candidate."""
    best = np.full(int(groups[-1]) + 1, -np.inf)
    np.maximum.at(best, groups, values)
    return best[groups]


def lexical_scores(question: str, texts: Sequence[str]) -> Floats:
    """BM25 of each text for the question, the texts being the collection. Linear in their length."""
    asked = question_terms(question)
    rows = [Counter(terms(text)) for text in texts]
    lengths = np.array([sum(row.values()) for row in rows], dtype=np.float64)
    mean = float(lengths.mean()) if len(lengths) and lengths.any() else 1.0
    scores = np.zeros(len(texts))
    held = Counter(term for row in rows for term in row)
    for term in sorted(held.keys() & set(asked), key=lambda term: (held[term], term))[:_MOST_ASKED]:
        found = np.array([row[term] for row in rows], dtype=np.float64)
        holders = int((found > 0).sum())
        weight = math.log(1 + (len(texts) - holders + 0.5) / (holders + 0.5))
        scores += weight * found * (_K1 + 1) / (found + _K1 * (1 - _B + _B * lengths / mean))
    return scores
