"""The block store: memory, then a folder, then an object store, behind one `get` and one `put`.

A block that is found further down is brought up. What does not fit a budget is given up where nothing is below, and
moved down where something is. Nothing that can go wrong with a file stops a request: it is a miss, and is reported.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxkit.errors import ConfigError, ConflictError
from ctxkit.kvcache.archive import BlockArchive
from ctxkit.kvcache.blocks import Block, Payload, pack
from ctxkit.kvcache.files import BlockFiles, Problem
from ctxkit.kvcache.ledger import Ledger

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["BlockStore", "StoreStats"]

_log = logging.getLogger("ctxkit.kvcache")

_RECOUNT_EVERY = 128
"""Writes between two counts of the folder, which other processes write to as well."""

_MANIFEST_GROWS = 160
"""By at most so many bytes when the name, size and digest of the file are known."""

_REPORTED = 200
"""Problems that are remembered; all are counted and logged."""

GIBIBYTE = 1 << 30


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Blocks and bytes of each tier, and what happened since the store was opened."""

    memory_blocks: int
    memory_bytes: int
    disk_blocks: int
    disk_bytes: int
    archive_blocks: int
    archive_bytes: int
    memory_hits: int
    disk_hits: int
    archive_hits: int
    misses: int
    written: int
    given_up: int
    problems: int


class BlockStore:
    """Keys and values of token blocks, by content, shared by threads and processes, verified before use.

    Args:
        folder: of the disk tier; None keeps blocks in memory alone.
        memory_bytes: budget of the memory tier; 0 for none.
        disk_bytes: budget of the folder, counted again at start and while writing.
        archive: URL of fsspec for what the disk gives up; needs the `object-store` extra.
        archive_bytes: budget of the archive; None for no limit.
        durable: bring each file to the disk before it gets its name.

    Writing happens in a thread; `flush` waits for it, and so does `close`. A full disk, a read-only folder or an
    unreachable archive is reported in `problems`, and the store goes on with what works.

    Errors: `ConfigError` for a wrong budget or URL.

    Example:
        >>> store = BlockStore(None, memory_bytes=1 << 20)
        >>> store.get("00" * 32) is None
        True
    """

    def __init__(
        self,
        folder: str | Path | None,
        *,
        memory_bytes: int = GIBIBYTE // 4,
        disk_bytes: int | None = 4 * GIBIBYTE,
        archive: str | None = None,
        archive_bytes: int | None = None,
        durable: bool = True,
    ) -> None:
        if archive is not None and folder is None:
            raise ConfigError(
                "an archive needs a folder above it", subject=archive, remedy="Give the block store a folder."
            )
        self.folder = None if folder is None else Path(folder)
        self.problems: deque[Problem] = deque(maxlen=_REPORTED)
        self._counts = dict.fromkeys(("memory", "disk", "archive", "misses", "written", "given_up", "problems"), 0)
        self._lock = threading.RLock()
        self._held: dict[str, tuple[Block, dict[str, Tensor]]] = {}
        self._memory = Ledger(memory_bytes, what="memory_bytes")
        self._disk = Ledger(disk_bytes, what="disk_bytes")
        self._cold = Ledger(archive_bytes, what="archive_bytes")
        self._files = None if self.folder is None else BlockFiles(self.folder, report=self.report, durable=durable)
        self._archive = None if archive is None else BlockArchive(archive, report=self.report)
        self._writer: ThreadPoolExecutor | None = None
        self._writes: deque[Future[None]] = deque()
        self._dirty: set[str] = set()
        self._since_count = 0
        self._recount()

    # Reading.

    def get(self, key: str, *, ids: Sequence[int] | None = None) -> tuple[Block, Payload] | None:
        """The block and its numbers, which nobody may write to; None for a miss.

        Args:
            ids: of the block; where they are not the stored ones it is a miss.
        """
        found = self._memory_get(key) or self._disk_get(key) or self._archive_get(key)
        if found is not None and ids is not None and found[0].ids != tuple(ids):
            self.report(Problem(key, "its ids are not the ones that are asked for"))
            found = None
        if found is None:
            self._counts["misses"] += 1
        return found

    def prefix(
        self, blocks: Iterable[tuple[str, Sequence[int]]], *, accept: Callable[[Block], bool] = lambda block: True
    ) -> list[tuple[Block, Payload]]:
        """The longest run of stored blocks from the first on, which are kept while they are read.

        Args:
            blocks: key and ids of each block of a prompt, as `block_keys` gives them.
            accept: a block that it refuses ends the run.
        """
        wanted = list(blocks)
        found: list[tuple[Block, Payload]] = []
        with self.pinned(key for key, _ in wanted):
            for key, ids in wanted:
                block = self.get(key, ids=ids)
                if block is None or not accept(block[0]):
                    break
                found.append(block)
        return found

    def head(self, key: str) -> Block | None:
        """What is known of a block, without its numbers; in whatever tier it is."""
        with self._lock:
            if key in self._held:
                return self._held[key][0]
        block = self._files.head(key) if self._files else None
        if block is None and self._archive:
            block = self._archive.head(key)
        return block

    def use(self, keys: Sequence[str]) -> None:
        """Note one request's use of blocks, in the order of the prompt: also of those that are about to be put."""
        self._memory.use(keys)
        self._disk.use(keys)
        if self._files and keys:
            self._later(lambda: self._touch(keys))

    @contextmanager
    def pinned(self, keys: Iterable[str]) -> Iterator[None]:
        """Keep blocks where they are while they are used.

        A file that another process deletes meanwhile stays readable to whoever has it open; not yet opened it is a
        miss, and the prefix that is reused ends there.
        """
        held = list(keys)
        with self._memory.pinned(held), self._disk.pinned(held):
            yield
        self._shrink_memory()

    # Writing.

    def put(self, block: Block, payload: Payload) -> None:
        """Store a block: at once in memory, soon on disk.

        A block that is exact is never replaced, and one that is derived only by one that is exact.
        """
        key = block.key
        with self._lock:
            held = self._held.get(key)
            if held is not None and (held[0].lineage == "exact" or block.lineage == "derived"):
                return
            self._hold(block, dict(payload))
            if self._files is None:
                self._shrink_memory()
                return
            self._dirty.add(key)
        self._later(lambda: self._write(block, payload))

    def remove(self, key: str) -> None:
        """Delete a block from every tier."""
        with self._lock:
            self._drop(key)
        if self._files:
            self._files.remove(key)
            self._disk.remove(key)
        if self._archive:
            self._archive.remove(key)
            self._cold.remove(key)

    def flush(self) -> None:
        """Wait until everything that was put is written. Errors: what a writer ran into and nobody foresaw."""
        while self._writes:
            self._writes.popleft().result()

    def close(self) -> None:
        """Flush, and stop the writer. The store may be used again."""
        try:
            self.flush()
        finally:
            if self._writer is not None:
                self._writer.shutdown(wait=True)
                self._writer = None

    def __enter__(self) -> BlockStore:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # Keeping house.

    def collect(self) -> int:
        """Delete what killed writers left, count the tiers anew and bring them under their budgets; bytes freed."""
        self.flush()
        before = self._disk.nbytes
        swept = self._files.sweep() if self._files else 0
        self._recount()
        self._shrink_memory()
        self._shrink_disk()
        self._shrink_archive()
        return swept + max(0, before - self._disk.nbytes)

    def verify(self) -> Iterator[tuple[str, Block | None]]:
        """Each block of the folder with its manifest; None for one that is damaged, which is quarantined."""
        self.flush()
        for entry in list(self._files.entries()) if self._files else ():
            found = self._files.read(entry.key) if self._files else None
            if found is None:
                with self._lock:
                    self._disk.remove(entry.key)
            yield entry.key, found[0] if found else None

    def stored_keys(self) -> list[str]:
        """Of all blocks in memory and on disk, in the order of the keys."""
        with self._lock:
            there = set(self._held)
        if self._files:
            there.update(entry.key for entry in self._files.entries())
        return sorted(there)

    def stats(self) -> StoreStats:
        counts = self._counts
        return StoreStats(
            len(self._memory),
            self._memory.nbytes,
            len(self._disk),
            self._disk.nbytes,
            len(self._cold),
            self._cold.nbytes,
            counts["memory"],
            counts["disk"],
            counts["archive"],
            counts["misses"],
            counts["written"],
            counts["given_up"],
            counts["problems"],
        )

    # The tiers.

    def _memory_get(self, key: str) -> tuple[Block, Payload] | None:
        with self._lock:
            found = self._held.get(key)
        if found is not None:
            self._counts["memory"] += 1
        return found

    def _disk_get(self, key: str) -> tuple[Block, Payload] | None:
        found = self._files.read(key) if self._files else None
        if found is None:
            if self._files and key in self._disk:
                self._disk.remove(key)  # another process collected it, or it was damaged
            return None
        self._counts["disk"] += 1
        if key not in self._disk:
            self._disk.add(key, found[0].nbytes)
        self._promote(*found)
        return found

    def _archive_get(self, key: str) -> tuple[Block, Payload] | None:
        found = self._archive.read(key) if self._archive else None
        if found is None:
            return None
        block, content, payload = found
        self._counts["archive"] += 1
        self._promote(block, payload)
        self._later(lambda: self._store(replace(block, version=0), content))
        return block, payload

    def _promote(self, block: Block, payload: dict[str, Tensor]) -> None:
        with self._lock:
            self._hold(block, payload)
            self._shrink_memory()

    def _hold(self, block: Block, payload: dict[str, Tensor]) -> None:
        self._held[block.key] = (block, payload)
        self._memory.add(block.key, sum(tensor.numel() * tensor.element_size() for tensor in payload.values()))

    def _drop(self, key: str) -> None:
        self._held.pop(key, None)
        self._memory.remove(key)

    def _shrink_memory(self) -> None:
        with self._lock:
            while (key := self._memory.victim(spared=self._dirty)) is not None:
                self._drop(key)
                if self._files is None:
                    self._counts["given_up"] += 1

    def _write(self, block: Block, payload: Payload) -> None:
        try:
            self._store(block, pack(payload, key=block.key))
        finally:
            with self._lock:
                self._dirty.discard(block.key)
                self._shrink_memory()

    def _store(self, block: Block, content: bytes) -> None:
        """Into the folder, unless what is there is as good; tries again where another process was faster."""
        assert self._files is not None
        for _ in range(3):
            current = self._files.head(block.key)
            if current is not None and (current.lineage == "exact" or block.lineage == "derived"):
                if block.key not in self._disk:
                    self._disk.add(block.key, current.nbytes)
                return
            if not self._make_room(len(content) + len(block.manifest()) + _MANIFEST_GROWS):
                self.report(Problem(block.key, "the disk budget has no room for it: everything else is in use"))
                return
            try:
                stored = self._files.write_bytes(block, content, expected=current.version if current else 0)
            except ConflictError:
                continue
            except OSError as error:
                self.report(Problem(block.key, f"cannot be written ({error})"))
                return
            self._disk.add(block.key, stored.nbytes + len(stored.manifest()))
            self._counts["written"] += 1
            self._since_count += 1
            if self._since_count >= _RECOUNT_EVERY:
                self._recount()
            return

    def _make_room(self, nbytes: int) -> bool:
        self._shrink_disk(room_for=nbytes)
        return self._disk.budget is None or self._disk.nbytes + nbytes <= self._disk.budget

    def _shrink_disk(self, *, room_for: int = 0) -> None:
        if self._files is None:
            return
        while (key := self._disk.victim(room_for=room_for)) is not None:
            if self._archive:
                self._demote(key)
            else:
                self._counts["given_up"] += 1
            try:
                self._files.remove(key)
            except OSError as error:
                self.report(Problem(key, f"cannot be deleted ({error})"))
            self._disk.remove(key)

    def _demote(self, key: str) -> None:
        assert self._archive is not None
        if self._files is None or key in self._cold or (found := self._files.read(key)) is None:
            return
        block, _ = found
        if self._archive.write(block, self._files.read_bytes(block)):
            self._cold.add(key, block.nbytes + len(block.manifest()))
            self._shrink_archive()

    def _shrink_archive(self) -> None:
        while self._archive and (key := self._cold.victim()) is not None:
            self._archive.remove(key)
            self._cold.remove(key)
            self._counts["given_up"] += 1

    def _recount(self) -> None:
        """Byte accounting from what is there, never from what was once noted."""
        self._since_count = 0
        if self._files:
            entries = sorted(self._files.entries(), key=lambda entry: (entry.used_at, entry.key))
            self._disk.recount((entry.key, entry.nbytes) for entry in entries)
        if self._archive and self._cold.budget is not None:
            self._cold.recount((entry.key, entry.nbytes) for entry in self._archive.entries())

    def _touch(self, keys: Sequence[str]) -> None:
        for key in reversed(keys):
            if self._files:
                self._files.touch(key)

    def _later(self, work: Callable[[], Any]) -> None:
        with self._lock:
            if self._writer is None:
                self._writer = ThreadPoolExecutor(1, thread_name_prefix="ctxkit-kv")
            self._writes.append(self._writer.submit(work))
            while len(self._writes) > 1 and self._writes[0].done() and self._writes[0].exception() is None:
                self._writes.popleft()

    def report(self, problem: Problem) -> None:
        """Count, keep and log something that was worked around."""
        self._counts["problems"] += 1
        self.problems.append(problem)
        _log.warning("block %s: %s", problem.key[:16], problem.what)


def check_store(store: Any) -> BlockStore:
    """A block store, or the one in a folder. Errors: `ConfigError`."""
    if isinstance(store, BlockStore):
        return store
    if isinstance(store, str | Path):
        return BlockStore(store)
    raise ConfigError(
        f"store is a {type(store).__name__}", subject=repr(store)[:60], remedy="Give a folder or a BlockStore."
    )
