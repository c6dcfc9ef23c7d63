"""Diversity, position, top-k and threshold."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ctxkit.documents import Candidate, Query
from ctxkit.errors import ConfigError, EmbeddingError
from ctxkit.protocols import Embedder, Stage
from ctxkit.reranking import Diversity, Position, Threshold, TopK, unit_scores
from ctxkit.testing import HashEmbedder, StageConformance
from ctxkit.testing.stages import make_candidates
from tests.strategies import texts
from tests.timing import at_most


class TestDiversityByWords(StageConformance):
    def make_stage(self) -> Stage:
        return Diversity()


class TestDiversityByMeaning(StageConformance):
    def make_stage(self) -> Stage:
        return Diversity(embedder=HashEmbedder(), relevance=0.4, batch_size=3)


class TestPosition(StageConformance):
    def make_stage(self) -> Stage:
        return Position()


class TestTopK(StageConformance):
    def make_stage(self) -> Stage:
        return TopK(k=3)


class TestThreshold(StageConformance):
    def make_stage(self) -> Stage:
        return Threshold(minimum=0.5)


def names(candidates: Sequence[Candidate]) -> list[int]:
    return [int(str(candidate.chunk.metadata["source"])[9:13]) for candidate in candidates]


# Diversity.

REPEATS = ["the signing key rotates monthly"] * 3 + ["a vault holds backups", "bananas are yellow"]


@pytest.mark.parametrize("embedder", [None, HashEmbedder(4096)])
def test_repeats_go_last(embedder: Embedder | None) -> None:
    given_ = make_candidates(REPEATS, scores=[0.9, 0.89, 0.88, 0.6, 0.5])
    assert names(Diversity(relevance=0.5, embedder=embedder)(Query("key"), given_)) == [0, 3, 4, 1, 2]
    assert names(Diversity(relevance=0.5, k=3, embedder=embedder)(Query("key"), given_)) == [0, 3, 4]
    assert names(Diversity(relevance=1.0, embedder=embedder)(Query("key"), given_)) == [0, 1, 2, 3, 4]


def test_chinese_repeats_are_seen() -> None:
    given_ = make_candidates(["密钥每个月更换一次", "密钥每个月更换一次。", "香蕉是黄色的"], scores=[0.9, 0.8, 0.5])
    assert names(Diversity(relevance=0.5)(Query("密钥"), given_)) == [0, 2, 1]


@given(st.lists(st.tuples(texts, st.floats(0, 1)), max_size=12), st.floats(0, 1), st.booleans())
def test_the_greedy_choice_is_the_definition(
    items: list[tuple[str, float]], relevance: float, by_meaning: bool
) -> None:
    """Against the formula written out over all pairs."""
    given_ = make_candidates([text for text, _ in items], scores=[score for _, score in items])
    embedder = HashEmbedder(16) if by_meaning else None
    result = Diversity(relevance=relevance, embedder=embedder)(Query("x"), given_)
    assert sorted(names(result)) == list(range(len(items)))
    finals = [candidate.score for candidate in result]
    assert all(a >= b - 1e-9 for a, b in pairwise(finals))
    vectors = HashEmbedder(16).embed([candidate.text for candidate in result]).astype(np.float64)
    for position, candidate in enumerate(result):
        if embedder is None:
            break
        nearest = max(
            (min(1.0, max(0.0, vectors[position] @ vectors[other])) for other in range(position)), default=0.0
        )
        score = items[names([candidate])[0]][1]
        assert candidate.scores["diversity"] == pytest.approx(1 - nearest, abs=1e-5)
        assert candidate.score == pytest.approx(relevance * score + (1 - relevance) * (1 - nearest), abs=1e-5)


def test_texts_are_embedded_in_batches_and_once() -> None:
    sizes: list[int] = []

    class Counting(HashEmbedder):
        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            sizes.append(len(texts))
            return super().embed(texts)

    Diversity(embedder=Counting(), batch_size=4)(Query("x"), make_candidates(["a b c"] * 10))
    assert sizes == [4, 4, 2]


def test_an_embedder_that_loses_rows() -> None:
    class Losing(HashEmbedder):
        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            return super().embed(texts)[1:]

    with pytest.raises(EmbeddingError, match="one row"):
        Diversity(embedder=Losing())(Query("x"), make_candidates(["a", "b"]))


def test_a_thousand_candidates_take_seconds_at_most() -> None:
    rng = np.random.default_rng(3)
    pool = [" ".join(f"w{n}" for n in rng.zipf(1.3, 60) % 5000) for _ in range(1000)]
    with at_most(10):
        assert len(Diversity()(Query("w1"), make_candidates(pool))) == 1000


# Position.


@pytest.mark.parametrize(
    ("count", "order"),
    [(0, []), (1, [0]), (2, [0, 1]), (3, [0, 2, 1]), (5, [0, 2, 4, 3, 1]), (6, [0, 2, 4, 5, 3, 1])],
)
def test_the_worst_are_in_the_middle(count: int, order: list[int]) -> None:
    given_ = make_candidates(["x"] * count)
    assert names(Position()(Query("x"), given_[::-1])) == order


def test_scores_stay_and_none_counts_as_the_worst() -> None:
    given_ = [*make_candidates(["x", "y"], scores=[0.2, 0.9]), Candidate(make_candidates(["z"] * 3)[2].chunk)]
    result = Position()(Query("x"), given_)
    assert names(result) == [1, 2, 0]
    assert {candidate.chunk.id: candidate.scores for candidate in result} == {c.chunk.id: c.scores for c in given_}


@given(st.lists(st.floats(0, 1), max_size=30))
def test_scores_fall_to_the_middle_and_rise_again(scores: list[float]) -> None:
    result = [c.score for c in Position()(Query("x"), make_candidates(["x"] * len(scores), scores=scores))]
    assert sorted(result) == sorted(scores)
    middle = (len(result) + 1) // 2
    assert result[:middle] == sorted(result[:middle], reverse=True)
    assert result[middle:] == sorted(result[middle:])


# Top-k and threshold.


def test_top_k() -> None:
    given_ = make_candidates(["x"] * 4, scores=[0.1, 0.4, 0.3, 0.4])
    assert names(TopK(k=3)(Query("x"), given_))[2] == 2
    assert set(names(TopK(k=2)(Query("x"), given_))) == {1, 3}


def test_threshold_never_leaves_nothing() -> None:
    given_ = make_candidates(["x"] * 3, scores=[0.1, 0.15, 0.05])
    assert names(Threshold(minimum=0.2)(Query("x"), given_)) == [1]
    assert names(Threshold(minimum=0.2, keep=0)(Query("x"), given_)) == []
    assert names(Threshold(minimum=0.1)(Query("x"), given_)) == [1, 0]


def test_threshold_at_a_part_of_the_best() -> None:
    given_ = make_candidates(["x"] * 4, scores=[0.4, 0.8, 0.55, 0.57])
    assert names(Threshold(minimum=0.0, relative=0.7)(Query("x"), given_)) == [1, 3]
    assert names(Threshold(minimum=0.0, relative=0.7, keep=3)(Query("x"), given_)) == [1, 3, 2]
    assert names(Threshold(minimum=0.6, relative=0.5)(Query("x"), given_)) == [1]
    assert names(Threshold(minimum=0.0, relative=1.0, keep=0)(Query("x"), given_)) == [1]
    assert Threshold(relative=0.7, keep=0)(Query("x"), []) == []


@given(st.lists(st.floats(), max_size=8))
def test_unit_scores(scores: list[float]) -> None:
    found = unit_scores(make_candidates(["x"] * len(scores), scores=scores))
    assert all(0.0 <= score <= 1.0 for score in found)
    finite = [(score, unit) for score, unit in zip(scores, found, strict=True) if np.isfinite(score)]
    assert all(a[1] <= b[1] for a in finite for b in finite if a[0] <= b[0])


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        (Diversity, {"relevance": 1.2}),
        (Diversity, {"relevance": "high"}),
        (Diversity, {"k": 0}),
        (Diversity, {"batch_size": 0}),
        (TopK, {"k": 0}),
        (Threshold, {"minimum": -1}),
        (Threshold, {"minimum": float("nan")}),
        (Threshold, {"keep": -1}),
        *(
            (kind, {name: value})
            for kind, name in (
                (Diversity, "relevance"),
                (Diversity, "k"),
                (Diversity, "embedder"),
                (Diversity, "batch_size"),
                (TopK, "k"),
                (Threshold, "minimum"),
                (Threshold, "relative"),
                (Threshold, "keep"),
            )
            for value in ("3", True, 1.5, float("nan"), float("inf"), -1, [], b"1", object())
        ),
        (Diversity, {"relevance": 10**400}),
        (Threshold, {"minimum": 10**400}),
        (Threshold, {"minimum": None}),
        (TopK, {"k": None}),
    ],
)
def test_wrong_parameters(kind: Any, parameters: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        kind(**parameters)
