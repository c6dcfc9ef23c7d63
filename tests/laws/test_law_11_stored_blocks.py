"""Law 11 for stored keys and values: a process that dies at any step of writing leaves whole blocks or none."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxkit.errors import ConflictError
from ctxkit.kvcache import atomic
from ctxkit.kvcache.files import BlockFiles, Problem
from tests.kvcache.stored import blocks_of, ids_of, payload_of, same

BLOCKS = [blocks_of(ids_of(number, 1))[0] for number in range(4)]


class Crash(BaseException):
    """The process dies: nothing that expects errors may catch it, and nothing cleans up after it."""


@contextmanager
def failing_at(moment: int, failure: BaseException) -> Iterator[None]:
    """Raise at the system call of this number; after a crash no later call does anything any more."""
    left = [moment]
    patch = pytest.MonkeyPatch()

    def counted(real: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] == -1 or (left[0] < 0 and isinstance(failure, Crash)):
                raise failure
            return real(*arguments, **options)

        return call

    for name in ("fsync", "replace", "link", "unlink"):
        patch.setattr(atomic.os, name, counted(getattr(os, name)))
    patch.setattr(Path, "unlink", counted(Path.unlink))
    try:
        yield
    finally:
        patch.undo()


def write(files: BlockFiles, number: int) -> None:
    block = BLOCKS[number]
    current = files.head(block.key)
    files.write(block, payload_of(block), expected=current.version if current else 0)


@settings(max_examples=60)  # each writes and syncs files
@given(
    st.lists(st.integers(0, len(BLOCKS) - 1), min_size=1, max_size=6),
    st.integers(0, 40),
    st.sampled_from([Crash(), OSError(errno.ENOSPC, "No space left on device")]),
)
def test_whatever_step_fails_every_block_is_whole_or_absent(
    writes: list[int], moment: int, failure: BaseException
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        problems: list[Problem] = []
        files = BlockFiles(folder, report=problems.append)
        done: set[int] = set()
        with failing_at(moment, failure):
            for number in writes:
                try:
                    write(files, number)
                except Crash:
                    break
                except OSError:
                    continue
                done.add(number)
        again = BlockFiles(folder, report=problems.append)
        for number, block in enumerate(BLOCKS):
            found = again.read(block.key)
            if found is not None:
                assert found[0].ids == block.ids and same(found[1], payload_of(block))
            assert found is not None or number not in done, "what was written stays"
        assert not problems
        for number in writes:
            write(again, number)
            found = again.read(BLOCKS[number].key)
            assert found is not None and same(found[1], payload_of(BLOCKS[number]))
        again.sweep(now=2**40)
        left = [path.name for path in Path(folder).rglob("*") if path.is_file()]
        assert not [name for name in left if name.endswith(atomic.TEMPORARY)]


def test_a_conflict_is_no_crash() -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = BlockFiles(folder)
        files.write(BLOCKS[0], payload_of(BLOCKS[0]))
        with pytest.raises(ConflictError) as caught:
            files.write(BLOCKS[0], payload_of(BLOCKS[0]))
        assert caught.value.remedy
