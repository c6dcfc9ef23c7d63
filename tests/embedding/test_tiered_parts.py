"""What the tiered index is made of: the INT4 codec, code tables, key lists, FP16 files, LRU-K."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ctxkit.embedding import TieredIndex, load_tiered
from ctxkit.embedding.access import AccessHistory
from ctxkit.embedding.code_tables import BlockTable, FastScanTable, open_table, whole_numbers, works
from ctxkit.embedding.files import map_arrays, write_arrays
from ctxkit.embedding.halves import HalfFiles, product, to_halves
from ctxkit.embedding.int4 import dequantise, pack, padded, quantise, unpack
from ctxkit.embedding.key_lists import KeyList
from ctxkit.errors import EmbeddingError

FLOATS = st.floats(-65_504, 65_504, width=32) | st.floats(-1, 1, width=32) | st.just(0.0)
MATRICES = hnp.arrays(np.float32, st.tuples(st.integers(0, 5), st.integers(1, 70)), elements=FLOATS)
INT64 = st.integers(-(2**63), 2**63 - 1)
KEYS = st.one_of(
    st.lists(INT64, max_size=20, unique=True),
    st.lists(st.integers(-5, 60), max_size=60, unique=True),
    st.lists(st.integers(0, 2**33), max_size=20, unique=True),
)


@given(MATRICES)
@settings(max_examples=100)
def test_int4_is_half_a_scale_away_at_most(vectors: np.ndarray) -> None:
    codes, scales = quantise(vectors)
    count, dimension = vectors.shape
    assert codes.shape == (count, padded(dimension) // 2)
    assert scales.shape == (count, padded(dimension) // 32)
    back = dequantise(codes, scales, dimension)
    bound = np.repeat(scales.astype(np.float64), 32, axis=1)[:, :dimension] / 2
    error = np.abs(vectors.astype(np.float64) - back)
    assert (error <= bound * (1 + 1e-5)).all()
    assert (back[vectors == 0] == 0).all()


@given(MATRICES)
@settings(max_examples=100)
def test_int4_takes_what_it_gave(vectors: np.ndarray) -> None:
    codes, scales = quantise(vectors)
    np.testing.assert_array_equal(pack(unpack(codes)), codes)
    assert (scales >= 0).all()
    # No FP16 number below the scale would do without clipping.
    groups = np.zeros((len(vectors), padded(vectors.shape[1])), dtype=np.float64)
    groups[:, : vectors.shape[1]] = vectors
    groups = groups.reshape(*scales.shape, 32)
    smaller = np.nextafter(scales, np.float16(0)).astype(np.float64)[:, :, None]
    clipped = (groups > 7.5 * smaller) | (groups < -8.5 * smaller)
    assert clipped.any(axis=2)[scales > 0].all()


def test_a_row_of_the_lowest_product_is_given_too() -> None:
    codes = np.random.default_rng(5).integers(0, 16, (90, 64), dtype=np.uint8)
    codes[:40:2, 0] = 0
    query = np.eye(1, 64, dtype=np.float32)[0] * 17
    table = FastScanTable(64)
    table.append(pack(codes))
    for count in (1, 60, 89, 90):
        rows, products = table.scan(query, count)
        assert len(np.unique(rows)) == count
        assert products.tolist() == ((codes[rows, 0].astype(int) - 8) * 17).tolist()
        assert products.tolist() == sorted((codes[:, 0].astype(int) - 8) * 17)[::-1][:count]


@pytest.mark.parametrize("size", [1.1754944e-38, 4e-38, 1.0, 3e38])
def test_queries_of_any_size_are_whole_numbers(size: float) -> None:
    whole = whole_numbers(np.full(64, size, dtype=np.float32))
    assert whole is not None and whole.tolist() == [17.0] * 64


@given(hnp.arrays(np.float32, 64, elements=st.floats(-1, 1, width=32)), st.data())
@settings(max_examples=100)
def test_the_scan_is_integer_arithmetic_in_both_tables(query: np.ndarray, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 100))
    codes = np.random.default_rng(count).integers(0, 16, (count, 64), dtype=np.uint8)
    whole = whole_numbers(query)
    if whole is None:
        assert np.abs(query).max() < 2e-38
        return
    assert np.abs(whole).max() == 17
    truth = (codes.astype(np.int64) - 8) @ whole.astype(np.int64)
    k = data.draw(st.integers(1, count))
    for table in (FastScanTable(64), BlockTable(64)):
        table.append(pack(codes))
        rows, products = table.scan(whole, k)
        assert products.tolist() == sorted(truth.tolist(), reverse=True)[:k]
        assert products.tolist() == truth[rows].tolist()


@given(st.integers(1, 130), st.floats(0, 8))
def test_a_query_fits_the_sums_of_the_scan(groups: int, power: float) -> None:
    query = np.random.default_rng(groups).random(32 * groups, dtype=np.float32) ** np.float32(power)
    whole = whole_numbers(query)
    assert whole is not None
    assert np.abs(whole).sum() * 15 <= 65_535
    assert np.array_equal(whole, np.rint(whole))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 70)), max_size=5))
@settings(max_examples=100)
def test_both_tables_hold_the_same_rows(steps: list[tuple[bool, int]]) -> None:
    assert works()
    assert isinstance(open_table(32), FastScanTable)
    tables = (FastScanTable(32), BlockTable(32))
    truth = np.zeros((0, 16), dtype=np.uint8)
    for step, (whole, count) in enumerate(steps):
        more = np.random.default_rng(step).integers(0, 256, (count, 16), dtype=np.uint8)
        truth = more if whole else np.concatenate([truth, more])
        for table in tables:
            (table.replace if whole else table.append)(more)
    for table in tables:
        assert len(table) == len(truth)
        np.testing.assert_array_equal(table.take(np.arange(len(truth))), truth)
        np.testing.assert_array_equal(table.take(np.arange(len(truth))[::-3]), truth[::-3])


@given(KEYS, st.lists(INT64, max_size=10))
@settings(max_examples=100)
def test_key_lists(keys: list[int], others: list[int]) -> None:
    keys = sorted(keys)
    listed = KeyList(np.array(keys, dtype=np.int64))
    assert listed.all().tolist() == keys
    assert len(listed) == len(keys)
    assert listed.last() == (keys[-1] if keys else None)
    probes = np.array(keys + others + [key + 1 for key in keys if key < 2**63 - 1], dtype=np.int64)
    rows, there = listed.find(probes)
    assert there.tolist() == [key in set(keys) for key in probes.tolist()]
    assert listed.take(rows[there]).tolist() == probes[there].tolist()
    assert listed.nbytes <= 8 * len(keys)


@given(hnp.arrays(np.uint16, (3, 16)), hnp.arrays(np.float32, 16, elements=st.floats(-1, 1, width=32)))
@settings(max_examples=100)
def test_products_of_halves_are_exact_up_to_rounding(bits: np.ndarray, query: np.ndarray) -> None:
    bits[(bits & 0x7C00) == 0x7C00] &= 0x83FF  # no NaN and no infinity are ever stored
    truth = bits.view(np.float16).astype(np.float64) @ query.astype(np.float64)
    sizes = np.abs(bits.view(np.float16).astype(np.float64)) @ np.abs(query.astype(np.float64))
    assert (np.abs(product(bits, query) - truth) <= 1e-5 * sizes + 1e-30).all()


@given(st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=12, unique=True), max_size=12))
@settings(max_examples=100)
def test_the_newest_half_of_a_key_is_read(rounds: list[list[int]]) -> None:
    files = HalfFiles(4)
    truth: dict[int, int] = {}
    for number, keys in enumerate(rounds, 1):
        keys = sorted(keys)
        files.add(np.array(keys), to_halves(np.full((len(keys), 4), number, dtype=np.float32)))
        truth |= dict.fromkeys(keys, number)
    wanted = KeyList(np.array(sorted(truth), dtype=np.int64))
    if truth:
        halves = files.take(wanted.all(), np.arange(len(wanted)), wanted)
        assert halves.view(np.float16)[:, 0].tolist() == [truth[key] for key in sorted(truth)]
    assert len(files.key_lists) <= 7
    with pytest.raises(EmbeddingError, match="not in the index"):
        files.take(np.array([99]), np.array([0]), wanted)


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True), max_size=60), st.integers(0, 6))
@settings(max_examples=100)
def test_hot_are_those_whose_last_access_but_one_is_newest(searches: list[list[int]], capacity: int) -> None:
    history = AccessHistory()
    times: dict[int, list[int]] = {}
    for now, keys in enumerate(searches, 1):
        history.record(np.array(keys, dtype=np.int64))
        for key in keys:
            times.setdefault(key, []).append(now)
    history.settle(capacity)
    last_but_one = {key: (times[key][-2] if len(times[key]) > 1 else 0, times[key][-1]) for key in times}
    order = sorted(times, key=lambda key: (-last_but_one[key][0], -last_but_one[key][1], key))
    assert history.hot.tolist() == sorted(order[:capacity])
    slots = history.slots(np.arange(12))
    assert sorted(slots[slots >= 0].tolist()) == list(range(min(capacity, len(times))))
    assert history.nbytes <= 20 * capacity * 1.5


def test_one_pass_over_everything_does_not_push_out_what_is_asked_for_again() -> None:
    history = AccessHistory()
    for _ in range(2):
        history.record(np.array([1, 2, 3]))
    history.settle(3)
    for key in range(100, 1_000):
        if history.record(np.array([key])):
            assert len(history.settle(3)) == 0
    assert history.hot.tolist() == [1, 2, 3]


def test_forgotten_keys_are_neither_hot_nor_remembered() -> None:
    history = AccessHistory()
    for _ in range(2):
        history.record(np.array([1, 2, 3]))
    history.settle(3)
    history.forget(np.array([2]))
    assert history.hot.tolist() == [1, 3]
    history.record(np.array([2]))
    assert history.settle(3).tolist() == [2]
    other = AccessHistory()
    other.from_arrays(history.to_arrays())
    other.settle(2)
    assert other.hot.tolist() == [1, 3]


def saved(path: Path) -> TieredIndex:
    index = TieredIndex(8, hot_share=0.5)
    vectors = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)
    index.add(np.arange(6), vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    for query in vectors:
        index.search(query, 2)
    index.save(path, store="s1")
    return index


def test_a_saved_index_comes_back_with_its_hot_keys(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "index.npz"
    index = saved(path)
    index.settle()
    loaded = load_tiered(path, 8, hot_share=0.5)
    assert loaded is not None
    assert loaded[1] == {"store": "s1"}
    assert loaded[0].hot.tolist() == index.hot.tolist() != []
    assert [found.name for found in path.parent.iterdir()] == ["index.npz"]
    saved(path).remove(np.arange(5))  # a newer file in its place changes nothing for who has read the older one
    np.testing.assert_array_equal(loaded[0].vectors(np.arange(6)), index.vectors(np.arange(6)))
    assert load_tiered(path, 9) is None
    assert load_tiered(path, 8, rescore="int4") is not None
    assert load_tiered(tmp_path / "missing.npz", 8) is None


def test_a_file_that_is_damaged_at_any_byte_is_nothing_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "index.npz"
    index = saved(path)
    content = path.read_bytes()
    harmless = 0
    for position in range(0, len(content), 11):
        broken = bytearray(content)
        broken[position] ^= 1 + position % 255
        path.write_bytes(broken)
        loaded = load_tiered(path, 8)
        if loaded is not None:  # a byte of the container that carries no data
            harmless += 1
            np.testing.assert_array_equal(loaded[0].vectors(np.arange(6)), index.vectors(np.arange(6)))
            query = index.vectors(np.array([3]))[0]
            assert loaded[0].search(query, 6)[0].tolist() == index.search(query, 6)[0].tolist()
        if position % 5 == 0:
            path.write_bytes(content[:position])
            assert load_tiered(path, 8) is None
    assert harmless < len(content) / 11 / 3


Change = Callable[[dict[str, np.ndarray]], object]
CHANGES: list[Change] = [
    lambda arrays: arrays.pop("codes"),
    lambda arrays: arrays.pop("halves"),
    lambda arrays: arrays.pop("access_last"),
    lambda arrays: arrays.update(keys=arrays["keys"][::-1]),
    lambda arrays: arrays.update(keys=arrays["keys"].astype(np.float64)),
    lambda arrays: arrays.update(scales=-arrays["scales"]),
    lambda arrays: arrays.update(scales=arrays["scales"] * np.float16("nan")),
    lambda arrays: arrays.update(codes=arrays["codes"][:-1]),
    lambda arrays: arrays.update(halves=arrays["halves"][:, :-1]),
    lambda arrays: arrays.update(access_keys=arrays["access_keys"][::-1]),
    lambda arrays: arrays.update(access_last=arrays["access_last"].astype(np.int64)),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_of_something_else_is_nothing(change: Change, tmp_path: Path) -> None:
    arrays = saved(tmp_path / "index.npz").to_arrays()
    change(arrays)
    write_arrays(tmp_path / "other.npz", arrays, {})
    assert load_tiered(tmp_path / "other.npz", 8) is None


def test_mapped_arrays_are_those_that_were_written(tmp_path: Path) -> None:
    arrays = {"a": np.arange(12).reshape(3, 4), "b": np.zeros((0, 4)), "c": np.asfortranarray(np.ones((2, 3)))}
    write_arrays(tmp_path / "x.npz", arrays, {"of": "mine"}, sync=True)
    content = map_arrays(tmp_path / "x.npz", mapped=("a", "b", "missing"))
    assert content is not None
    assert content[1] == {"of": "mine"}
    assert isinstance(content[0]["a"], np.memmap)
    assert sorted(content[0]) == ["a", "b", "c"]
    for name, array in content[0].items():
        np.testing.assert_array_equal(array, arrays[name])
    assert map_arrays(tmp_path / "x.npz", mapped=("c",)) is None
    np.savez_compressed(tmp_path / "y.npz", header=np.frombuffer(b"{}", np.uint8), a=np.arange(3))
    assert map_arrays(tmp_path / "y.npz", mapped=()) is not None
    assert map_arrays(tmp_path / "y.npz", mapped=("a",)) is None
