"""The tiered index: results are those of the model, whatever was asked before and wherever a vector is read from."""

from __future__ import annotations

import gc
import itertools
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from ctxkit.embedding import TieredIndex, load_tiered, tiered
from ctxkit.embedding.code_tables import BlockTable
from ctxkit.errors import ConfigError, EmbeddingError
from ctxkit.protocols import VectorIndex
from ctxkit.testing import VectorIndexConformance


class TestTieredIndex(VectorIndexConformance):
    def make_index(self, dimension: int) -> VectorIndex:
        return TieredIndex(dimension)


class TestWithoutFaiss(VectorIndexConformance):
    @pytest.fixture(autouse=True)
    def _numpy_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tiered, "open_table", BlockTable)

    def make_index(self, dimension: int) -> VectorIndex:
        return TieredIndex(dimension)


def some_vectors(count: int, dimension: int = 192, seed: int = 3) -> np.ndarray:
    vectors = np.random.default_rng(seed).standard_normal((count, dimension)).astype(np.float32)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


def filled(count: int, dimension: int = 192, **options: object) -> TieredIndex:
    index = TieredIndex(dimension, **options)  # type: ignore[arg-type]
    index.add(np.arange(count, dtype=np.int64), some_vectors(count, dimension))
    return index


def same(first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray]) -> bool:
    return np.array_equal(first[0], second[0]) and np.array_equal(first[1], second[1])


PALETTE = some_vectors(6)
KEYS = st.lists(st.integers(0, 60), max_size=8, unique=True)


class AgainstADictionary(RuleBasedStateMachine):
    """Adding, replacing, removing, searching, deciding, saving and loading in any order."""

    folders: Path
    numbers = itertools.count()
    saved = Bundle("saved")

    def __init__(self) -> None:
        super().__init__()
        self.index = TieredIndex(192, hot_share=0.3)
        self.truth: dict[int, int] = {}

    @rule(keys=KEYS, first=st.integers(0, 5))
    def add(self, keys: list[int], first: int) -> None:
        chosen = [(first + key) % 6 for key in keys]
        self.index.add(np.array(keys, dtype=np.int64), PALETTE[chosen].reshape(-1, 192))
        self.truth |= dict(zip(keys, chosen, strict=True))

    @rule(keys=KEYS)
    def remove(self, keys: list[int]) -> None:
        self.index.remove(np.array(keys, dtype=np.int64))
        for key in keys:
            self.truth.pop(key, None)

    @rule(probe=st.integers(0, 5), k=st.integers(1, 80), odd=st.booleans())
    def search(self, probe: int, k: int, odd: bool) -> None:
        products = np.round(PALETTE.astype(np.float16).astype(np.float32) @ PALETTE[probe], 6)
        allowed = np.array([key for key in self.truth if key % 2], dtype=np.int64)
        order = sorted(self.truth, key=lambda key: (-products[self.truth[key]], key))
        found, scores = self.index.search(PALETTE[probe], k, keys=allowed if odd else None)
        assert found.tolist() == [key for key in order if key % 2 or not odd][:k]
        np.testing.assert_allclose(scores, [products[self.truth[key]] for key in found.tolist()], atol=2e-6)

    @rule()
    def decide_what_is_hot(self) -> None:
        self.index.settle()

    @rule(target=saved)
    def save(self) -> tuple[Path, dict[int, int]]:
        path = self.folders / f"{next(self.numbers)}.npz"
        self.index.save(path)
        return path, dict(self.truth)

    @rule(saved=saved)
    def load(self, saved: tuple[Path, dict[int, int]]) -> None:
        loaded = load_tiered(saved[0], 192, hot_share=0.3)
        assert loaded is not None
        self.index, self.truth = loaded[0], dict(saved[1])

    @invariant()
    def holds_what_it_should(self) -> None:
        keys = self.index.keys()
        assert keys.tolist() == sorted(self.truth)
        assert len(self.index) == len(self.truth)
        assert np.isin(self.index.hot, keys).all()
        truth = PALETTE[[self.truth[key] for key in keys.tolist()]].reshape(-1, 192)
        np.testing.assert_array_equal(self.index.vectors(keys), truth.astype(np.float16).astype(np.float32))


def test_any_history_equals_a_dictionary(tmp_path: Path) -> None:
    AgainstADictionary.folders = tmp_path
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        AgainstADictionary,
        settings=settings(max_examples=40, stateful_step_count=15, suppress_health_check=list(HealthCheck)),
    )


@pytest.mark.parametrize("table", ["faiss", "numpy"])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 1.0])
def test_results_do_not_depend_on_what_was_asked_before(
    share: float, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if table == "numpy":
        monkeypatch.setattr(tiered, "open_table", BlockTable)
    fresh, used = filled(400, hot_share=share), filled(400, hot_share=share)
    queries = some_vectors(30, seed=8)
    assert not fresh._uneven
    for query in np.random.default_rng(1).choice(30, 200):
        used.search(queries[query], 7)
    used.settle()
    assert len(used.hot) == min(int(share * 400), len(used.hot))
    assert (len(used.hot) > 0) == (share > 0)
    for query in queries:
        for k in (1, 10, 50, 500):
            assert same(fresh.search(query, k), used.search(query, k))


def test_both_scans_give_the_same_results(monkeypatch: pytest.MonkeyPatch) -> None:
    for dimension in (24, 384, 1_536):
        by_faiss = filled(300, dimension)
        monkeypatch.setattr(tiered, "open_table", BlockTable)
        by_numpy = filled(300, dimension)
        monkeypatch.undo()
        for query in some_vectors(20, dimension, seed=5):
            assert by_faiss._uneven == by_numpy._uneven == (dimension < 100)
            assert same(by_faiss.search(query, 10), by_numpy.search(query, 10))
            even = np.arange(0, 300, 2)
            assert same(by_faiss.search(query, 10, keys=even), by_numpy.search(query, 10, keys=even))


def test_the_nearest_are_found() -> None:
    """Of 2,000 vectors around 60 topics, as texts lie; every shortlist holds what all bits would choose."""
    generator = np.random.default_rng(4)
    topics = some_vectors(60, 384)
    vectors = topics[generator.integers(0, 60, 2_000)] + 0.04 * generator.standard_normal((2_000, 384))
    vectors = np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)
    index = TieredIndex(384)
    index.add(np.arange(2_000), vectors)
    halves = index.vectors(np.arange(2_000))
    agreed = 0
    for query in topics:
        truth = np.lexsort((np.arange(2_000), -np.round(halves @ query, 6)))[:10]
        agreed += len(np.intersect1d(truth, index.search(query, 10)[0]))
    assert agreed >= 598


@pytest.mark.parametrize("keys", [["n"], [None], [1 << 70]])
def test_keys_that_are_no_whole_numbers_are_refused(keys: list[object]) -> None:
    index = TieredIndex(8)
    with pytest.raises(ConfigError, match="no whole numbers"):
        index.add(keys, np.ones((1, 8), dtype=np.float32))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no whole numbers"):
        index.remove(keys)  # type: ignore[arg-type]


def test_the_order_of_adding_does_not_matter() -> None:
    vectors = some_vectors(300)
    at_once, one_by_one = TieredIndex(192), TieredIndex(192)
    at_once.add(np.arange(300), vectors)
    for part in np.split(np.random.default_rng(0).permutation(300), 25):
        one_by_one.add(part, vectors[part])
    for query in some_vectors(20, seed=5):
        assert same(at_once.search(query, 10), one_by_one.search(query, 10))


def test_equal_vectors_come_in_the_order_of_their_keys() -> None:
    index = TieredIndex(192)
    index.add(np.random.default_rng(0).permutation(900).astype(np.int64), np.repeat(some_vectors(1), 900, axis=0))
    assert index.search(some_vectors(1)[0], 7)[0].tolist() == list(range(7))
    assert index.search(np.zeros(192, dtype=np.float32), 3)[0].tolist() == [0, 1, 2]


def test_sparse_vectors_and_vectors_of_all_lengths_are_found() -> None:
    """Their scales differ so much that a scan without scales would miss them."""
    generator = np.random.default_rng(2)
    vectors = np.zeros((800, 64), dtype=np.float32)
    for row in range(800):
        chosen = generator.integers(0, 64, generator.integers(1, 40))
        vectors[row, chosen] = generator.standard_normal(len(chosen))
    vectors[:400] /= np.linalg.norm(vectors[:400], axis=1, keepdims=True)
    vectors[700:] = 0
    index = TieredIndex(64)
    index.add(np.arange(800), vectors)
    assert index._uneven
    for query in some_vectors(30, 64):
        truth = np.round(vectors.astype(np.float16).astype(np.float32) @ query, 6)
        assert index.search(query, 10)[0].tolist() == np.lexsort((np.arange(800), -truth))[:10].tolist()


def test_int4_alone_keeps_nothing_on_disk() -> None:
    index = filled(200, rescore="int4")
    for query in some_vectors(40, seed=9):
        found, scores = index.search(query, 5)
        np.testing.assert_allclose(scores, index.vectors(found) @ query, atol=2e-6)
    assert index.disk_bytes == 0
    assert len(index.hot) == 0


@given(st.floats(0, 1), st.integers(0, 30))
@settings(max_examples=15)
def test_the_hot_tier_keeps_its_size(share: float, more: int) -> None:
    index = filled(50, 8, hot_share=share)
    for query in some_vectors(20, 8, seed=more):
        index.search(query, 10)
    index.add(np.arange(100, 100 + more), some_vectors(more, 8) if more else np.zeros((0, 8), dtype=np.float32))
    index.remove(np.arange(0, 50, 3))
    index.settle()
    assert len(index.hot) <= share * len(index)
    limited = filled(50, 8, hot_share=share, hot_bytes=100)
    for query in some_vectors(20, 8, seed=more):
        limited.search(query, 10)
    limited.settle()
    assert len(limited.hot) == 6


def test_the_memory_that_is_reported_is_the_memory_that_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiered, "open_table", BlockTable)  # numpy's memory can be traced, faiss's cannot
    vectors, keys = some_vectors(3_000, 384), np.arange(3_000, dtype=np.int64)
    queries = some_vectors(80, 384, seed=6)
    gc.collect()
    tracemalloc.start()
    try:
        index = TieredIndex(384)
        index.add(keys, vectors)
        for query in queries:
            index.search(query, 10)
        index.settle()
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert index.memory_bytes <= held <= index.memory_bytes + 60_000
    assert len(index.hot) == 150
    assert index.memory_bytes <= 0.17 * vectors.nbytes


def test_wrong_input_is_named() -> None:
    for options in ({"hot_share": 1.5}, {"hot_share": float("nan")}, {"hot_bytes": -1}, {"rescore": "int8"}):
        with pytest.raises(ConfigError):
            TieredIndex(8, **options)  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        TieredIndex(0)
    index = filled(5, 8)
    with pytest.raises(ConfigError, match="twice"):
        index.add(np.array([1, 1]), some_vectors(2, 8))
    with pytest.raises(ConfigError, match="shape"):
        index.add(np.arange(2), some_vectors(3, 8))
    with pytest.raises(ConfigError, match="k is 0"):
        index.search(some_vectors(1, 8)[0], 0)
    with pytest.raises(ConfigError, match="components"):
        index.search(np.ones(3, dtype=np.float32), 1)
    with pytest.raises(EmbeddingError, match="not in the index"):
        index.vectors(np.array([99]))
    for wrong in (np.nan, np.inf, -1e6, 1e30):
        broken = some_vectors(2, 8)
        broken[1, 3] = wrong
        with pytest.raises(EmbeddingError, match="NaN"):
            index.add(np.array([1, 77]), broken)
        with pytest.raises(EmbeddingError, match="NaN"):
            index.search(broken[1], 1)
    assert index.keys().tolist() == [0, 1, 2, 3, 4]
