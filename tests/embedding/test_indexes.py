"""Vector indexes: exact, deterministic, atomic on disk, alike with and without faiss."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.embedding import FaissIndex, FlatIndex, load_index, open_index
from ctxkit.errors import ConfigError, EmbeddingError, MissingExtraError
from ctxkit.protocols import VectorIndex
from ctxkit.testing import VectorIndexConformance

INDEXES = [FaissIndex, FlatIndex]


class TestFaissIndex(VectorIndexConformance):
    def make_index(self, dimension: int) -> VectorIndex:
        return FaissIndex(dimension)


class TestFlatIndex(VectorIndexConformance):
    def make_index(self, dimension: int) -> VectorIndex:
        return FlatIndex(dimension)


def unit(vectors: np.ndarray) -> np.ndarray:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


def some_vectors(count: int, seed: int = 3) -> np.ndarray:
    return unit(np.random.default_rng(seed).standard_normal((count, 8)))


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, list[int]]]:
    """Rounds of adding and removing keys; vectors come from a small set, so that many are equal."""
    rounds = st.tuples(st.sampled_from(["add", "remove"]), st.lists(st.integers(0, 30), max_size=8, unique=True))
    return draw(st.lists(rounds, max_size=6))


@given(histories(), st.integers(1, 12), st.integers(0, 5))
def test_any_history_gives_the_same_answers_as_a_plain_sort(
    history: list[tuple[str, list[int]]], k: int, probe: int
) -> None:
    palette = some_vectors(6)
    truth: dict[int, int] = {}
    faiss, flat = FaissIndex(8), FlatIndex(8)
    for round_number, (kind, keys) in enumerate(history):
        array = np.array(keys, dtype=np.int64)
        for index in (faiss, flat):
            if kind == "add":
                index.add(array, palette[[(key + round_number) % 6 for key in keys]].reshape(-1, 8))
            else:
                index.remove(array)
        for key in keys:
            if kind == "add":
                truth[key] = (key + round_number) % 6
            else:
                truth.pop(key, None)
    scores = np.round(palette @ palette[probe], 6)
    best = sorted(truth, key=lambda key: (-scores[truth[key]], key))[:k]
    for index in (faiss, flat):
        found, found_scores = index.search(palette[probe], k)
        assert found.tolist() == best
        np.testing.assert_allclose(found_scores, [scores[truth[key]] for key in best], atol=2e-6)
        assert index.keys().tolist() == sorted(truth)
        assert len(index) == len(truth)
        allowed = np.array([key for key in truth if key % 2], dtype=np.int64)
        assert (
            index.search(palette[probe], k, keys=allowed)[0].tolist()
            == [key for key in sorted(truth, key=lambda key: (-scores[truth[key]], key)) if key % 2][:k]
        )


@pytest.mark.parametrize("kind", INDEXES)
def test_equal_vectors_come_in_the_order_of_their_keys(kind: type[FaissIndex]) -> None:
    vector = some_vectors(1)
    index = kind(8)
    keys = np.random.default_rng(0).permutation(500).astype(np.int64)
    index.add(keys, np.repeat(vector, 500, axis=0))
    assert index.search(vector[0], 7)[0].tolist() == list(range(7))


@pytest.mark.parametrize("kind", INDEXES)
def test_keys_that_are_allowed_but_absent_do_not_matter(kind: type[FaissIndex]) -> None:
    vectors = some_vectors(4)
    index = kind(8)
    index.add(np.arange(4), vectors)
    assert index.search(vectors[2], 3, keys=np.array([2, 99]))[0].tolist() == [2]
    assert index.search(vectors[2], 3, keys=np.array([], dtype=np.int64))[0].tolist() == []


@pytest.mark.parametrize("kind", INDEXES)
def test_wrong_input_is_named(kind: type[FaissIndex]) -> None:
    with pytest.raises(ConfigError):
        kind(0)
    index = kind(8)
    with pytest.raises(ConfigError, match="shape"):
        index.add(np.arange(2), some_vectors(3))
    with pytest.raises(ConfigError, match="twice"):
        index.add(np.array([1, 1]), some_vectors(2))
    with pytest.raises(ConfigError, match="k is 0"):
        index.search(some_vectors(1)[0], 0)
    with pytest.raises(ConfigError, match="components"):
        index.search(np.ones(3, dtype=np.float32), 1)
    with pytest.raises(EmbeddingError):
        index.vectors(np.array([5]))


@pytest.mark.parametrize("kind", INDEXES)
def test_a_saved_index_comes_back_whole(kind: type[FaissIndex], tmp_path: Path) -> None:
    vectors = some_vectors(20)
    index = kind(8)
    index.add(np.arange(100, 120), vectors)
    index.save(tmp_path / "deep" / "index.npz", store="s1")
    loaded = load_index(tmp_path / "deep" / "index.npz", 8)
    assert loaded is not None
    assert loaded[1] == {"store": "s1"}
    assert loaded[0].keys().tolist() == list(range(100, 120))
    np.testing.assert_array_equal(loaded[0].vectors(np.arange(100, 120)), vectors)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["index.npz"]


def test_another_dimension_or_no_file_is_nothing(tmp_path: Path) -> None:
    index = FlatIndex(8)
    index.add(np.arange(3), some_vectors(3))
    index.save(tmp_path / "index.npz")
    assert load_index(tmp_path / "index.npz", 9) is None
    assert load_index(tmp_path / "missing.npz", 8) is None


@given(st.data())
def test_a_damaged_file_is_nothing_or_harmless(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    index = FlatIndex(8)
    vectors = some_vectors(5)
    index.add(np.arange(5), vectors)
    path = folder / "index.npz"
    index.save(path)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
        assert load_index(path, 8) is None
        return
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    loaded = load_index(path, 8)
    if loaded is not None:  # a byte of the container that carries no data
        np.testing.assert_array_equal(loaded[0].vectors(np.arange(5)), vectors)


def test_without_faiss_numpy_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtraError, match="local"):
        FaissIndex(8)
    assert isinstance(open_index(8), FlatIndex)
    with pytest.raises(ConfigError):
        open_index(0)


def test_with_faiss_faiss_does_it() -> None:
    assert isinstance(open_index(8), FaissIndex)
