"""The tiers together: what is found, what is given up, what is counted."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxkit.errors import ConfigError, KVCacheError, MissingExtraError
from ctxkit.kvcache.identity import block_keys
from ctxkit.kvcache.store import BlockStore
from tests.kvcache.stored import OTHER_ROOT, ROOT, blocks_of, ids_of, payload_of, same

_SIZE = 64 * 4 + 3 * 2
"""Bytes of a payload in memory."""

_numbers = itertools.count()


def _disk_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _put(store: BlockStore, ids: list[int], **options: str) -> None:
    store.use([key for key, _ in block_keys(options.get("root", ROOT), ids)])
    for block in blocks_of(ids, **options):
        store.put(block, payload_of(block))
    store.flush()


def _found(store: BlockStore, ids: list[int], root: str = ROOT) -> int:
    found = store.prefix(block_keys(root, ids))
    assert all(same(payload, payload_of(block)) for block, payload in found)
    return len(found)


def test_the_longest_prefix_is_found_by_another_store_of_the_folder(tmp_path: Path) -> None:
    with BlockStore(tmp_path) as store:
        _put(store, ids_of(1, 4))
        assert _found(store, ids_of(1, 6)) == 4
        assert store.stats().memory_hits == 4
    with BlockStore(tmp_path) as again:
        assert _found(again, ids_of(1, 6)) == 4
        assert _found(again, ids_of(2, 6)) == 0
        assert _found(again, ids_of(1, 6), OTHER_ROOT) == 0
        stats = again.stats()
        assert (stats.disk_hits, stats.memory_blocks, stats.disk_blocks) == (4, 4, 4)
        assert stats.disk_bytes == _disk_bytes(tmp_path)


def test_a_prefix_ends_at_the_first_block_that_is_missing_or_refused(tmp_path: Path) -> None:
    with BlockStore(tmp_path) as store:
        _put(store, ids_of(1, 5))
        store.remove(blocks_of(ids_of(1, 5))[2].key)
        assert _found(store, ids_of(1, 5)) == 2
        assert len(store.prefix(block_keys(ROOT, ids_of(1, 5)), accept=lambda block: False)) == 0


def test_ids_are_compared_on_a_hit(tmp_path: Path) -> None:
    with BlockStore(tmp_path) as store:
        _put(store, ids_of(1, 1))
        key = blocks_of(ids_of(1, 1))[0].key
        assert store.get(key, ids=ids_of(2, 1)) is None
        assert "ids" in store.problems[-1].what


def test_only_an_exact_block_overwrites(tmp_path: Path) -> None:
    (derived,), (exact,) = blocks_of(ids_of(1, 1), lineage="derived"), blocks_of(ids_of(1, 1))
    with BlockStore(tmp_path) as store, BlockStore(tmp_path) as other:
        for block, version, lineage in ((derived, 1, "derived"), (exact, 2, "exact"), (derived, 2, "exact")):
            writer = other if block is exact else store
            writer.put(block, payload_of(block))
            writer.flush()
            with BlockStore(tmp_path) as reader:
                found = reader.get(exact.key)
                assert found is not None and (found[0].version, found[0].lineage) == (version, lineage)


def test_memory_stays_under_its_budget_and_gives_up_the_ends_first() -> None:
    store = BlockStore(None, memory_bytes=4 * _SIZE)
    _put(store, ids_of(1, 6))
    stats = store.stats()
    assert (stats.memory_blocks, stats.memory_bytes, stats.given_up) == (4, 4 * _SIZE, 2)
    assert _found(store, ids_of(1, 6)) == 4, "what is left is a prefix"


def test_pinned_blocks_stay() -> None:
    store = BlockStore(None, memory_bytes=2 * _SIZE)
    _put(store, ids_of(1, 1))
    with store.pinned([blocks_of(ids_of(1, 1))[0].key]):
        _put(store, ids_of(2, 3))
        assert _found(store, ids_of(1, 1)) == 1
    _put(store, ids_of(3, 3))
    assert store.stats().memory_bytes <= 2 * _SIZE


def test_the_disk_stays_under_its_budget_across_restarts(tmp_path: Path) -> None:
    with BlockStore(tmp_path, durable=False) as store:
        _put(store, ids_of(1, 2))
        one = _disk_bytes(tmp_path) // 2
    budget = 5 * one + one // 2
    for number in range(2, 8):
        with BlockStore(tmp_path, memory_bytes=0, disk_bytes=budget, durable=False) as store:
            _put(store, ids_of(number, 2))
            assert _disk_bytes(tmp_path) <= budget
            assert _found(store, ids_of(number, 2)) == 2, "the newest is there"
    with BlockStore(tmp_path, disk_bytes=2 * one + one // 2) as smaller:
        assert smaller.collect() > 0
        assert _disk_bytes(tmp_path) <= 2 * one + one // 2


def test_where_everything_is_pinned_nothing_is_written_over_the_budget(tmp_path: Path) -> None:
    with BlockStore(tmp_path, durable=False) as store:
        _put(store, ids_of(1, 1))
        size = _disk_bytes(tmp_path)
    with BlockStore(tmp_path, disk_bytes=size + size // 2, memory_bytes=0, durable=False) as store:
        with store.pinned([blocks_of(ids_of(1, 1))[0].key]):
            _put(store, ids_of(2, 1))
        assert _disk_bytes(tmp_path) == size
        assert "no room" in store.problems[-1].what


@pytest.mark.parametrize("protocol", ["memory", "file"])
def test_what_the_disk_gives_up_goes_to_the_archive_and_comes_back(tmp_path: Path, protocol: str) -> None:
    pytest.importorskip("fsspec")
    url = f"memory://kv-{os.getpid()}-{next(_numbers)}" if protocol == "memory" else f"file://{tmp_path / 'cold'}"
    folder = tmp_path / "kv"
    with BlockStore(folder, archive=url, durable=False) as store:
        _put(store, ids_of(1, 1))
        size = _disk_bytes(folder)
    with BlockStore(folder, archive=url, disk_bytes=2 * size + 500, memory_bytes=0, durable=False) as store:
        _put(store, ids_of(2, 2))
        assert store.stats().archive_blocks == 1
        assert _found(store, ids_of(1, 1)) == 1
        store.flush()
        assert store.stats().archive_hits == 1
        assert _disk_bytes(folder) <= 2 * size + 500
        assert not store.problems
    with BlockStore(tmp_path / "fresh", archive=url) as elsewhere:
        assert _found(elsewhere, ids_of(1, 1)) == 1, "another machine finds it"


def test_a_damaged_block_of_the_archive_is_a_miss(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    cold = tmp_path / "cold"
    with BlockStore(tmp_path / "kv", archive=f"file://{cold}", disk_bytes=0, memory_bytes=0) as store:
        assert store._lower is not None and store._lower.archive is not None
        (block,) = blocks_of(ids_of(1, 1))
        from ctxkit.kvcache.blocks import pack

        content = pack(payload_of(block), key=block.key)
        assert store._lower.archive.write(block.stored_as(version=1, file="1.x.safetensors", content=content), content)
        assert _found(store, ids_of(1, 1)) == 1
        (data,) = cold.rglob("*.safetensors")
        data.write_bytes(content[:-1])
        assert _found(store, ids_of(1, 1)) == 0
        assert any("damaged" in problem.what for problem in store.problems)
        assert not list(cold.rglob("*.json")), "it is not asked for again"


def test_an_archive_that_cannot_be_reached_is_reported(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    (tmp_path / "cold").write_text("a file where a folder should be")
    with BlockStore(tmp_path / "kv", archive=f"file://{tmp_path / 'cold'}", disk_bytes=1, memory_bytes=0) as store:
        _put(store, ids_of(1, 1))
        assert _found(store, ids_of(1, 1)) == 0
        assert store.problems


@pytest.mark.parametrize(
    "options",
    [
        {"memory_bytes": -1},
        {"disk_bytes": 1.5},
        {"archive": "nonsense://x"},
        {"archive": "memory://x", "folder": None},
        {"archive": ""},
        {"archive": 3},
        {"folder": ""},
        {"folder": 3},
        {"folder": "a\0b"},
        {"folder": "x" * 300},
        {"folder": __file__},
    ],
)
def test_wrong_options_say_what_is_wrong(tmp_path: Path, options: dict[str, object]) -> None:
    with pytest.raises((ConfigError, MissingExtraError)) as caught:
        BlockStore(**{"folder": tmp_path, **options})  # type: ignore[arg-type]
    assert caught.value.remedy


def test_verify_names_what_is_damaged(tmp_path: Path) -> None:
    with BlockStore(tmp_path) as store:
        _put(store, ids_of(1, 3))
        bad = blocks_of(ids_of(1, 3))[1].key
        (path,) = (tmp_path / bad[:2] / bad).glob("*.safetensors")
        path.write_bytes(path.read_bytes()[:-3])
        found = dict(store.verify())
        assert [key for key, block in found.items() if block is None] == [bad]
        assert store.stats().disk_blocks == 2
        assert bad not in dict(BlockStore(tmp_path, memory_bytes=0).verify())


def test_an_error_nobody_foresaw_comes_out_at_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = BlockStore(tmp_path)
    monkeypatch.setattr(store._lower, "store", lambda *parts: 1 / 0)
    (block,) = blocks_of(ids_of(1, 1))
    store.put(block, payload_of(block))
    with pytest.raises(KVCacheError, match="ZeroDivisionError"):
        store.flush()
    store.close()


@settings(max_examples=150)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.booleans()), max_size=6), st.integers(0, 6))
def test_whatever_is_put_and_given_up_what_is_found_is_right(requests: list[tuple[int, int, bool]], held: int) -> None:
    store = BlockStore(None, memory_bytes=held * _SIZE)
    for number, blocks, exact in requests:
        ids = ids_of(number, blocks)
        found = store.prefix(block_keys(ROOT, ids))
        assert all(same(payload, payload_of(block)) for block, payload in found)
        store.use([key for key, _ in block_keys(ROOT, ids)])
        for block in blocks_of(ids, lineage="exact" if exact else "derived")[len(found) :]:
            store.put(block, payload_of(block))
        assert store.stats().memory_bytes <= held * _SIZE
        assert store.stats().memory_bytes == store.stats().memory_blocks * _SIZE
