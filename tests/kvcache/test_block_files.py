"""Blocks in a folder: whatever happens to the files, what is read is what was written, or nothing."""

from __future__ import annotations

import errno
import os
import random
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from ctxkit.errors import ConflictError
from ctxkit.kvcache import atomic
from ctxkit.kvcache.blocks import pack
from ctxkit.kvcache.files import KEPT_VERSIONS, BlockFiles, Problem
from ctxkit.kvcache.store import BlockStore
from tests.kvcache.stored import OTHER_ROOT, ROOT, blocks_of, ids_of, payload_of, same


@pytest.fixture
def problems() -> list[Problem]:
    return []


@pytest.fixture
def files(tmp_path: Path, problems: list[Problem]) -> BlockFiles:
    return BlockFiles(tmp_path / "kv", report=problems.append, durable=False)


def _all_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_what_is_written_is_read(files: BlockFiles, problems: list[Problem]) -> None:
    (block,) = blocks_of(ids_of(1, 1))
    assert files.read(block.key) is None
    stored = files.write(block, payload_of(block))
    found = files.read(block.key)
    assert found is not None
    assert found[0] == stored
    assert (stored.version, stored.ids, stored.parent) == (1, block.ids, ROOT)
    assert same(found[1], payload_of(block))
    assert not problems
    assert [entry.key for entry in files.entries()] == [block.key]
    total = sum(path.stat().st_size for path in _all_files(files.folder))
    assert next(files.entries()).nbytes == total
    files.remove(block.key)
    assert files.read(block.key) is None and not list(files.entries())


def test_a_flipped_bit_in_each_of_200_files_is_never_read(files: BlockFiles, problems: list[Problem]) -> None:
    blocks = [blocks_of(ids_of(number, 1))[0] for number in range(100)]
    for block in blocks:
        files.write(block, payload_of(block))
    paths = _all_files(files.folder)
    assert len(paths) == 200
    chance = random.Random(5)
    for path in paths:
        content = bytearray(path.read_bytes())
        place = chance.randrange(len(content))
        content[place] ^= 1 << chance.randrange(8)
        whole = path.read_bytes()
        path.write_bytes(content)
        key = path.parent.name
        before = len(problems)
        found = files.read(key)
        assert found is None, f"{path.name} was read with a flipped bit at {place}"
        assert len(problems) == before + 1
        # Moved out of the way; put everything back for the next file.
        for gone in (files.folder / "quarantine").iterdir():
            gone.replace(path.parent / gone.name.partition(".")[2])
        path.write_bytes(whole)
        assert files.read(key) is not None


def test_a_cut_file_is_never_read(files: BlockFiles, problems: list[Problem]) -> None:
    (block,) = blocks_of(ids_of(1, 1))
    for suffix in (".json", ".safetensors"):
        stored = files.write(block, payload_of(block))
        (path,) = [path for path in _all_files(files.folder) if path.suffix == suffix and path.parent.name == block.key]
        whole = path.read_bytes()
        for length in (0, 1, 7, 8, 9, len(whole) // 2, len(whole) - 1):
            place = files.folder / block.key[:2] / block.key
            path.write_bytes(whole[:length])
            assert files.read(block.key) is None
            for gone in (files.folder / "quarantine").iterdir():
                gone.replace(place / gone.name.partition(".")[2])
        path.write_bytes(whole)
        found = files.read(block.key)
        assert found is not None and found[0] == stored
        files.remove(block.key)
    assert len(problems) == 14


def test_a_block_under_another_key_is_foreign(files: BlockFiles, problems: list[Problem]) -> None:
    ours, theirs = blocks_of(ids_of(1, 1))[0], blocks_of(ids_of(1, 1), root=OTHER_ROOT)[0]
    files.write(theirs, payload_of(theirs))
    source, target = (files.folder / block.key[:2] / block.key for block in (theirs, ours))
    target.parent.mkdir(exist_ok=True)
    source.rename(target)
    assert files.read(ours.key) is None
    assert "belongs to" in problems[0].what


def test_a_manifest_cannot_name_a_file_elsewhere(files: BlockFiles, tmp_path: Path) -> None:
    (block,) = blocks_of(ids_of(1, 1))
    content = block.stored_as(version=1, file="../../../outside", content=b"")
    place = files.folder / block.key[:2] / block.key
    place.mkdir(parents=True)
    (tmp_path / "outside").write_bytes(b"")
    (place / "1.json").write_bytes(content.manifest())
    assert files.read(block.key) is None


def test_the_version_before_is_used_where_the_newest_is_damaged(files: BlockFiles, problems: list[Problem]) -> None:
    derived, exact = blocks_of(ids_of(1, 1), lineage="derived")[0], blocks_of(ids_of(1, 1))[0]
    files.write(derived, payload_of(derived))
    newest = files.write(exact, payload_of(exact), expected=1)
    assert newest.version == 2
    (files.folder / exact.key[:2] / exact.key / newest.file).write_bytes(b"garbage")
    found = files.read(exact.key)
    assert found is not None and found[0].lineage == "derived"
    assert len(problems) == 1


def test_the_last_three_versions_are_kept(files: BlockFiles) -> None:
    (block,) = blocks_of(ids_of(1, 1))
    for version in range(5):
        files.write(block, payload_of(block), expected=version)
    names = [path.name for path in _all_files(files.folder)]
    assert sorted(name for name in names if name.endswith(".json")) == ["3.json", "4.json", "5.json"]
    assert len(names) == 2 * KEPT_VERSIONS


def test_of_two_writers_of_one_version_one_wins(files: BlockFiles) -> None:
    blocks = [blocks_of(ids_of(number, 1))[0] for number in range(20)]
    lost: list[ConflictError] = []
    start = threading.Barrier(2)

    def write() -> None:
        start.wait()
        for block in blocks:
            try:
                files.write(block, payload_of(block))
            except ConflictError as error:
                lost.append(error)

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lost) == len(blocks)
    assert all(error.remedy for error in lost)
    for block in blocks:
        found = files.read(block.key)
        assert found is not None and same(found[1], payload_of(block))
    assert len(_all_files(files.folder)) == 2 * len(blocks), "the loser leaves nothing behind"


def test_a_full_disk_leaves_nothing_behind(files: BlockFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = blocks_of(ids_of(1, 1))

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    durable = BlockFiles(files.folder)
    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(OSError, match="space"):
        durable.write(block, payload_of(block))
    assert not _all_files(files.folder)
    monkeypatch.undo()
    durable.write(block, payload_of(block))
    assert files.read(block.key) is not None


def in_child(work: Callable[[], None]) -> int:
    """The id of a process forked from this one that does this work, and then ends with 0, or 1 after an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this process has threads: the child uses none of them
        child = os.fork()
    if child:
        return child
    try:
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def succeeded(child: int) -> bool:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")


@needs_fork
def test_where_the_system_refuses_to_write_blocks_stay_in_memory(tmp_path: Path) -> None:
    def work() -> None:
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (700, 700))
        with BlockStore(tmp_path / "kv") as store:
            for block in blocks_of(ids_of(1, 3)):
                store.put(block, payload_of(block, numbers=4096))
            store.flush()
            assert store.stats().written == 0, store.stats()
            assert len(store.problems) == 3, store.problems
            for block in blocks_of(ids_of(1, 3)):
                found = store.get(block.key)
                assert found is not None and same(found[1], payload_of(block, numbers=4096))

    assert succeeded(in_child(work))
    assert not _all_files(tmp_path / "kv")


@needs_fork
def test_a_read_only_folder_is_read_and_reported(files: BlockFiles, tmp_path: Path) -> None:
    first, second = blocks_of(ids_of(1, 2))
    files.write(first, payload_of(first))

    def work() -> None:
        if os.geteuid() == 0:
            os.setuid(65534)  # nothing is read-only for root
        with BlockStore(files.folder) as store:
            found = store.get(first.key)
            assert found is not None and same(found[1], payload_of(first))
            store.use([first.key])
            store.put(second, payload_of(second))
            store.flush()
            store.collect()
            found = store.get(second.key)
            assert found is not None and same(found[1], payload_of(second))
            assert len(store.problems) == 1 and "cannot be written" in store.problems[0].what, store.problems

    folders = [files.folder, *(path for path in files.folder.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    for folder in [tmp_path, *tmp_path.parents]:  # another user must be able to get here
        if folder.stat().st_uid == os.geteuid() and folder != Path(folder.root):
            folder.chmod(folder.stat().st_mode | 0o111)
    try:
        assert succeeded(in_child(work))
    finally:
        for folder in folders:
            folder.chmod(0o755)


@needs_fork
def test_killed_during_200_writes_the_folder_opens_clean(files: BlockFiles, problems: list[Problem]) -> None:
    blocks = {block.key: block for number in range(200) for block in blocks_of(ids_of(number, 1))}
    packed = {key: pack(payload_of(block, numbers=2_000), key=key) for key, block in blocks.items()}
    chance = random.Random(3)

    def work() -> None:
        for _ in range(1_000):
            for key, block in blocks.items():
                files.write_bytes(block, packed[key], expected=(current.version if (current := files.head(key)) else 0))

    for _ in range(10):
        child = in_child(work)
        time.sleep(0.02 + chance.random() / 20)
        os.kill(child, signal.SIGKILL)
        assert not succeeded(child)
        for entry in files.entries():
            found = files.read(entry.key)
            assert found is not None and same(found[1], payload_of(blocks[entry.key], numbers=2_000))
    assert list(files.entries())
    assert not problems, "a kill leaves no block that looks damaged"
    left = sum(path.stat().st_size for path in _all_files(files.folder) if path.name.endswith(".tmp"))
    assert files.sweep(now=time.time() + 10_000) >= left
    assert not [path for path in _all_files(files.folder) if path.name.endswith(".tmp")]


def test_two_processes_share_a_folder(tmp_path: Path) -> None:
    with BlockStore(tmp_path, durable=False) as one, BlockStore(tmp_path, durable=False) as two:
        for block in blocks_of(ids_of(1, 4)):
            one.put(block, payload_of(block))
        one.flush()
        for block in blocks_of(ids_of(1, 4)):
            found = two.get(block.key, ids=block.ids)
            assert found is not None and same(found[1], payload_of(block))
        two.remove(blocks_of(ids_of(1, 1))[0].key)
        assert two.get(blocks_of(ids_of(1, 1))[0].key) is None


def test_what_a_store_did_not_write_is_left_alone(tmp_path: Path) -> None:
    """A store's folder may be given by mistake: a project, a home."""
    block = blocks_of(ids_of(1, 1))[0]
    files = BlockFiles(tmp_path, durable=False)
    files.write(block, payload_of(block))
    place = tmp_path / block.key[:2] / block.key
    others = [tmp_path / "src" / "pkg" / "code.py", tmp_path / "ab" / "foo" / "1.json", place / "notes.txt"]
    for path in others:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
        os.utime(path, (1e9, 1e9))
    (tmp_path / "ab" / "empty").mkdir()
    loose = place / "7.0123abcd.safetensors"
    loose.write_bytes(b"left by a killed writer")
    assert [entry.key for entry in files.entries()] == [block.key]
    assert files.sweep(now=time.time() + 10_000) == 23
    assert all(path.read_text() == "mine" for path in others) and (tmp_path / "ab" / "empty").is_dir()
    assert not loose.exists() and files.read(block.key) is not None


@pytest.mark.parametrize("kind", ["folder", "broken link", "circle"])
@pytest.mark.parametrize("suffix", ["json", "safetensors"])
def test_a_name_that_is_no_file_is_put_aside(
    files: BlockFiles, problems: list[Problem], kind: str, suffix: str
) -> None:
    block = blocks_of(ids_of(1, 1))[0]
    files.write(block, payload_of(block))
    (path,) = (files.folder / block.key[:2] / block.key).glob(f"*.{suffix}")
    path.unlink()
    path.mkdir() if kind == "folder" else path.symlink_to("nowhere" if kind == "broken link" else path.name)
    assert files.read(block.key) is None and len(problems) == 1
    files.write(block, payload_of(block))
    assert files.read(block.key) is not None and len(problems) == 1


@needs_fork
def test_collectors_and_deleters_meet_writers(tmp_path: Path) -> None:
    blocks = [block for number in range(6) for block in blocks_of(ids_of(number, 2))]

    def write() -> None:
        with BlockStore(tmp_path, memory_bytes=0, durable=False) as store:
            for _ in range(30):
                for block in blocks:
                    store.put(block, payload_of(block))
                store.flush()
                for block in blocks:
                    found = store.get(block.key)
                    assert found is None or same(found[1], payload_of(block))
            assert not store.problems, list(store.problems)

    def collect() -> None:
        files = BlockFiles(tmp_path)
        for _ in range(150):
            files.sweep()
            for entry in list(files.entries())[::2]:
                files.remove(entry.key)

    children = [in_child(write), in_child(collect), in_child(collect)]
    assert [succeeded(child) for child in children] == [True] * 3


def test_without_hard_links_a_failed_write_leaves_no_empty_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "not here")

    monkeypatch.setattr(os, "link", refuse)
    assert atomic.create_whole(tmp_path / "a", b"a", durable=False)
    assert not atomic.create_whole(tmp_path / "a", b"b", durable=False)
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="not here"):
        atomic.create_whole(tmp_path / "b", b"b", durable=False)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
