"""The block store: memory, then a folder, then an object store, behind one `get` and one `put`.

A block that is found further down is brought up. What does not fit a budget is given up where nothing is below, and
moved down where something is. Nothing that can go wrong with a file stops a request: it is a miss, and is reported.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxkit.errors import ConfigError, CtxkitError, KVCacheError
from ctxkit.kvcache.blocks import Block, Payload, pack
from ctxkit.kvcache.files import Problem
from ctxkit.kvcache.ledger import Ledger
from ctxkit.kvcache.tiers import LowerTiers

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["BlockStore", "StoreStats"]

_log = logging.getLogger("ctxkit.kvcache")

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
        if archive is not None and (not isinstance(archive, str) or not archive):
            raise ConfigError(
                f"archive is {archive!r}", remedy="Give a URL of fsspec, such as s3://bucket/kv, or None."
            )
        self.folder = None if folder is None else _folder(folder)
        self.problems: deque[Problem] = deque(maxlen=_REPORTED)
        self._counts: Counter[str] = Counter()
        self._lock = threading.RLock()
        self._held: dict[str, tuple[Block, dict[str, Tensor]]] = {}
        self._memory = Ledger(memory_bytes, what="memory_bytes")
        self._lower = (
            None
            if self.folder is None
            else LowerTiers(
                self.folder,
                disk_bytes=disk_bytes,
                archive=archive,
                archive_bytes=archive_bytes,
                durable=durable,
                report=self.report,
                counts=self._counts,
            )
        )
        self._writer: ThreadPoolExecutor | None = None
        self._writes: deque[Future[None]] = deque()
        self._dirty: set[str] = set()

    # Reading.

    def get(self, key: str, *, ids: Sequence[int] | None = None) -> tuple[Block, Payload] | None:
        """The block and its numbers, which nobody may write to; None for a miss.

        Args:
            ids: of the block; where they are not the stored ones it is a miss.
        """
        found = self._from_memory(key) or self._from_below(key)
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
        return self._lower.head(key) if self._lower else None

    def use(self, keys: Sequence[str]) -> None:
        """Note one request's use of blocks, in the order of the prompt: also of those that are about to be put."""
        self._memory.use(keys)
        if self._lower and keys:
            self._lower.disk.use(keys)
            self._later(partial(self._lower.touch, keys))

    @contextmanager
    def pinned(self, keys: Iterable[str]) -> Iterator[None]:
        """Keep blocks where they are while they are used.

        A file that another process deletes meanwhile stays readable to whoever has it open; not yet opened it is a
        miss, and the prefix that is reused ends there.
        """
        held = list(keys)
        with self._memory.pinned(held), self._lower.disk.pinned(held) if self._lower else nullcontext():
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
            if self._lower is None:
                self._shrink_memory()
                return
            self._dirty.add(key)
        self._later(partial(self._write, self._lower, block, payload))

    def remove(self, key: str) -> None:
        """Delete a block from every tier."""
        with self._lock:
            self._drop(key)
        if self._lower:
            self._lower.remove(key)

    def flush(self) -> None:
        """Wait until everything that was put is written. Errors: `KVCacheError` for what nobody foresaw."""
        while self._writes:
            finished(self._writes.popleft())

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
        self._shrink_memory()
        if self._lower is None:
            return 0
        before = self._lower.disk.nbytes
        swept = self._lower.files.sweep()
        self._lower.recount()
        self._lower.shrink_disk()
        self._lower.shrink_archive()
        return swept + max(0, before - self._lower.disk.nbytes)

    def verify(self) -> Iterator[tuple[str, Block | None]]:
        """Each block of the folder with its manifest; None for one that is damaged, which is quarantined."""
        self.flush()
        if self._lower is None:
            return
        for entry in list(self._lower.files.entries()):
            found = self._lower.files.read(entry.key)
            if found is None:
                self._lower.disk.remove(entry.key)
            yield entry.key, found[0] if found else None

    def stored_keys(self) -> list[str]:
        """Of all blocks in memory and on disk, in the order of the keys."""
        with self._lock:
            there = set(self._held)
        if self._lower:
            there.update(entry.key for entry in self._lower.files.entries())
        return sorted(there)

    def stats(self) -> StoreStats:
        disk, cold = (self._lower.disk, self._lower.cold) if self._lower else (None, None)
        counts = self._counts
        return StoreStats(
            memory_blocks=len(self._memory),
            memory_bytes=self._memory.nbytes,
            disk_blocks=len(disk) if disk else 0,
            disk_bytes=disk.nbytes if disk else 0,
            archive_blocks=len(cold) if cold else 0,
            archive_bytes=cold.nbytes if cold else 0,
            memory_hits=counts["memory"],
            disk_hits=counts["disk"],
            archive_hits=counts["archive"],
            misses=counts["misses"],
            written=counts["written"],
            given_up=counts["given_up"],
            problems=counts["problems"],
        )

    # The tiers.

    def _from_memory(self, key: str) -> tuple[Block, Payload] | None:
        with self._lock:
            found = self._held.get(key)
        if found is not None:
            self._counts["memory"] += 1
        return found

    def _from_below(self, key: str) -> tuple[Block, Payload] | None:
        """From the folder, else from the archive; a copy stays in each tier above."""
        if self._lower is None:
            return None
        found = self._lower.from_disk(key)
        if found is None:
            archived = self._lower.from_archive(key)
            if archived is None:
                return None
            block, content, payload = archived
            found = block, payload
            self._later(partial(self._lower.store, replace(block, version=0), content))
        self._promote(*found)
        return found

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
                if self._lower is None:
                    self._counts["given_up"] += 1

    def _write(self, lower: LowerTiers, block: Block, payload: Payload) -> None:
        try:
            lower.store(block, pack(payload, key=block.key))
        finally:
            with self._lock:
                self._dirty.discard(block.key)
                self._shrink_memory()

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


def finished(work: Future[None]) -> None:
    """Wait for work in a thread. Errors: `KVCacheError` for one that is not of ours."""
    try:
        work.result()
    except CtxkitError:
        raise
    except Exception as error:
        raise KVCacheError(
            f"keys and values could not be stored ({type(error).__name__}: {error})",
            remedy="Answers are not affected. Please report it with the traceback.",
        ) from error


def _folder(folder: Any) -> Path:
    """Errors: `ConfigError` for what is no folder's name, or the name of something else."""
    remedy = "Give the path of a folder; it is made when the first block is written."
    if not isinstance(folder, str | Path) or not str(folder) or "\0" in str(folder):
        raise ConfigError(f"the folder of a block store is {folder!r:.60}", remedy=remedy)
    path = Path(folder)
    try:
        other = path.exists() and not path.is_dir()
    except OSError as error:
        raise ConfigError(
            f"no folder can have this name ({error.strerror})", subject=str(path), remedy=remedy
        ) from error
    if other:
        raise ConfigError("it is not a folder", subject=str(path), remedy=remedy)
    return path


def check_store(store: Any) -> BlockStore:
    """A block store, or the one in a folder. Errors: `ConfigError`."""
    if isinstance(store, BlockStore):
        return store
    if isinstance(store, str | Path):
        return BlockStore(store)
    raise ConfigError(
        f"store is a {type(store).__name__}", subject=repr(store)[:60], remedy="Give a folder or a BlockStore."
    )
