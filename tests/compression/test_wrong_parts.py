"""Counters, embedders, scores and inner stages that give what they must not: an error that names them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ctxkit.compression import Cascade, Deduplicate, SentenceCompressor, SentenceStore, WorthIt, seconds_per_token
from ctxkit.compression import worth_it as worth
from ctxkit.documents import GAP, Candidate, Query
from ctxkit.errors import ConfigError, CtxkitError, EmbeddingError
from ctxkit.reranking import Diversity
from ctxkit.testing import HashEmbedder
from ctxkit.testing.stages import make_candidates

GIVEN = make_candidates(
    ["Keys rotate monthly. It rained. The port is 5432.", "Shelf 3 holds item 7. Nobody knows why."]
)
QUERY = Query("when do keys rotate?")


class Counting:
    """A counter that gives whatever it is made with."""

    name = "wrong"

    def __init__(self, given: Any) -> None:
        self.given = given

    def count(self, text: str) -> Any:
        return self.given if text else 0


class Nameless:
    def count(self, text: str) -> int:
        return len(text.split())


USES: list[Callable[[Any], object]] = [
    lambda counter: SentenceCompressor(target=5, counter=counter)(QUERY, GIVEN),
    lambda counter: Cascade(fine=lambda query, given: list(given), target=5, counter=counter)(QUERY, GIVEN),
    lambda counter: WorthIt(stage=Deduplicate(), compressing=1.0, reading=1.0, counter=counter)(QUERY, GIVEN),
    lambda counter: seconds_per_token(Deduplicate(), QUERY, GIVEN, counter=counter),
    lambda counter: SentenceStore().prepare([one.chunk for one in GIVEN], counter, None),
]


@pytest.mark.parametrize("given", [None, "3", math.nan, 1.5, 0, -1, True, 1 << 40])
@pytest.mark.parametrize("use", USES)
def test_a_counter_that_does_not_count_is_named(use: Callable[[Any], object], given: Any) -> None:
    with pytest.raises(ConfigError, match=r"wrong \(Counting\)") as caught:
        use(Counting(given))
    assert caught.value.remedy


@pytest.mark.parametrize("use", USES)
def test_a_counter_without_a_name_is_named(use: Callable[[Any], object]) -> None:
    with pytest.raises(ConfigError, match="Nameless") as caught:
        use(Nameless())
    assert "name" in caught.value.remedy


def test_counts_of_numpy_and_nothing_for_white_space_count() -> None:
    class Words:
        name = "words"

        def count(self, text: str) -> Any:
            return np.int64(len(text.split()))

    (left,) = SentenceCompressor(target=4, counter=Words())(QUERY, GIVEN[:1])
    assert left.text == f"Keys rotate monthly.{GAP.rstrip()}"


class Embedding(HashEmbedder):
    """An embedder that gives whatever a function makes of its vectors."""

    def __init__(self, change: Callable[[Any], Any]) -> None:
        super().__init__(8)
        self.change = change

    def embed(self, texts: Sequence[str]) -> Any:
        return self.change(super().embed(texts))


def test_an_embedder_without_a_dimension_or_a_fingerprint() -> None:
    class Bare:
        fingerprint = 3

        def embed(self, texts: Sequence[str]) -> Any:
            return np.ones((len(texts), 4))

    bare: Any = Bare()
    with pytest.raises(EmbeddingError, match=r"Bare: .*dimension"):
        SentenceCompressor(target=8, embedder=bare)(QUERY, GIVEN)
    with pytest.raises(EmbeddingError, match=r"Bare: .*fingerprint"):
        SentenceCompressor(target=8, embedder=bare, sentences=SentenceStore())(QUERY, GIVEN)


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: [["a"] * 8 for _ in rows],
        lambda rows: [[0.0] * (at + 1) for at in range(len(rows))] + [[0.0]],
        lambda rows: rows * math.nan,
        lambda rows: rows * math.inf,
        lambda rows: rows * 1e6,
        lambda rows: rows.astype(np.complex64),
        lambda rows: rows.reshape(-1),
        lambda rows: rows[:, :3],
        lambda rows: np.concatenate([rows, rows]),
        lambda rows: None,
        lambda rows: "vectors",
    ],
)
@pytest.mark.parametrize("stage", [SentenceCompressor, Diversity])
def test_an_embedder_that_gives_no_vectors_is_named(stage: Any, change: Callable[[Any], Any]) -> None:
    made = stage(embedder=Embedding(change), **({"target": 8} if stage is SentenceCompressor else {}))
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        warnings.simplefilter("error", np.exceptions.ComplexWarning)
        with pytest.raises(EmbeddingError, match="Embedding: ") as caught:
            made(QUERY, GIVEN)
    assert caught.value.remedy


@pytest.mark.parametrize("score", [None, "x", [1.0], 1j])
@pytest.mark.parametrize(
    "stage", [SentenceCompressor(target=8), Deduplicate(), Cascade(fine=SentenceCompressor(), target=3), Diversity()]
)
def test_a_score_that_is_no_number(stage: Any, score: Any) -> None:
    with pytest.raises(ConfigError, match=GIVEN[0].chunk.id) as caught:
        stage(QUERY, [replace(GIVEN[0], scores={"final": score}), GIVEN[1]])
    assert caught.value.remedy


@pytest.mark.parametrize("scores", [None, 0.5, "final"])
def test_scores_that_are_no_mapping(scores: Any) -> None:
    with pytest.raises(ConfigError, match="scores"):
        SentenceCompressor(target=8)(QUERY, [replace(GIVEN[0], scores=scores)])


@pytest.mark.parametrize("given", [None, 3, "x", [None], ["x"], [3]])
def test_an_inner_stage_that_gives_no_candidates(given: Any) -> None:
    def inner(query: Query, candidates: Sequence[Candidate]) -> Any:
        return given

    for stage in (
        Cascade(fine=inner, target=3),
        Cascade(finest=inner, target=3),
        WorthIt(stage=inner, compressing=0.0, reading=1.0),
    ):
        with pytest.raises(ConfigError, match="what a stage gave"):
            stage(QUERY, GIVEN)
    with pytest.raises(ConfigError, match="what a stage gave"):
        seconds_per_token(inner, QUERY, GIVEN)


@pytest.mark.parametrize(
    ("before", "after"), [("x", 1), (None, 1), (math.nan, 1), (-5, 3), (5, -3), (5, "x"), (1.5, 1)]
)
def test_tokens_that_are_no_number(before: Any, after: Any) -> None:
    with pytest.raises(ConfigError, match="tokens_"):
        worth(before, after, compressing=1.0, reading=1.0)


@pytest.mark.parametrize("runs", ["x", math.nan, 0, 1.5, None])
def test_runs_that_are_no_number(runs: Any) -> None:
    with pytest.raises(ConfigError, match="runs"):
        seconds_per_token(Deduplicate(), QUERY, GIVEN, runs=runs)


def test_every_error_of_a_wrong_part_is_of_the_tree() -> None:
    given: list[Any] = [None, "candidates", 3, [None], GIVEN[0], ["x"]]
    for one in given:
        for query in (QUERY, "a str"):
            if query is QUERY or one is None:
                with pytest.raises(CtxkitError):
                    SentenceCompressor(target=3)(query, one)  # type: ignore[arg-type]


@pytest.mark.parametrize("said", [None, "one text", [3], 3])
def test_a_history_that_gives_no_texts(said: Any) -> None:
    with pytest.raises(ConfigError):
        Deduplicate(history=lambda query: said)(QUERY, GIVEN)


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.forget("abc"),
        lambda store: store.forget([3]),
        lambda store: store.prepare("abc", None, None),
        lambda store: store.prepare([None], None, None),
        lambda store: store.prepare(None, None, None),
    ],
)
def test_ids_and_chunks_are_lists_of_such(use: Callable[[SentenceStore], object]) -> None:
    with pytest.raises(ConfigError):
        use(SentenceStore())
