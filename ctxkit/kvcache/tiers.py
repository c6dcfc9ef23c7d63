"""The tiers below memory: a folder, and an archive for what the folder gives up, each under a budget of bytes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ctxkit.errors import ConflictError
from ctxkit.kvcache.archive import BlockArchive
from ctxkit.kvcache.blocks import Block
from ctxkit.kvcache.files import BlockFiles, Problem
from ctxkit.kvcache.ledger import Ledger

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["LowerTiers"]

_RECOUNT_EVERY = 128
"""Writes between two counts of the folder, which other processes write to as well."""

_TRIES = 20
"""At a write that another process gets in the way of."""

_PAUSE = 0.0005
"""Seconds before a block is written again, out of step with who deletes."""

_MANIFEST_GROWS = 160
"""By at most so many bytes when the name, size and digest of the file are known."""


class LowerTiers:
    """Blocks in a folder and in an archive. What is given up in the folder goes to the archive where there is one.

    Args:
        counts: of `disk` and `archive` hits, of blocks `written` and `given_up`; counted up here.
    """

    def __init__(
        self,
        folder: Path,
        *,
        disk_bytes: int | None,
        archive: str | None,
        archive_bytes: int | None,
        durable: bool,
        report: Callable[[Problem], None],
        counts: Counter[str],
    ) -> None:
        self.files = BlockFiles(folder, report=report, durable=durable)
        self.disk = Ledger(disk_bytes, what="disk_bytes")
        self.archive = None if archive is None else BlockArchive(archive, report=report)
        self.cold = Ledger(archive_bytes, what="archive_bytes")
        self._report = report
        self._counts = counts
        self._since_count = 0
        self.recount()

    def from_disk(self, key: str) -> tuple[Block, dict[str, Tensor]] | None:
        found = self.files.read(key)
        if found is None:
            if key in self.disk:
                self.disk.remove(key)  # another process collected it, or it was damaged
            return None
        self._counts["disk"] += 1
        if key not in self.disk:
            self.disk.add(key, found[0].nbytes)
        return found

    def from_archive(self, key: str) -> tuple[Block, bytes, dict[str, Tensor]] | None:
        found = self.archive.read(key) if self.archive else None
        if found is not None:
            self._counts["archive"] += 1
        return found

    def head(self, key: str) -> Block | None:
        block = self.files.head(key)
        return self.archive.head(key) if block is None and self.archive else block

    def store(self, block: Block, content: bytes) -> None:
        """Into the folder, unless what is there is as good; tries again where another process was faster."""
        failure: OSError | None = None
        for _ in range(_TRIES):
            current = self.files.head(block.key)
            if current is not None and (current.lineage == "exact" or block.lineage == "derived"):
                if block.key not in self.disk:
                    self.disk.add(block.key, current.nbytes)
                return
            needed = len(content) + len(block.manifest()) + _MANIFEST_GROWS
            self.shrink_disk(room_for=needed)
            if self.disk.budget is not None and self.disk.nbytes + needed > self.disk.budget:
                self._report(Problem(block.key, "the disk budget has no room for it: everything else is in use"))
                return
            try:
                stored = self.files.write_bytes(block, content, expected=current.version if current else 0)
            except ConflictError:
                continue
            except (FileNotFoundError, FileExistsError) as error:
                # Another process deleted the block, and its empty folder, while this one wrote it.
                failure = error
                time.sleep(_PAUSE)
                continue
            except OSError as error:
                self._report(Problem(block.key, f"cannot be written ({error})"))
                return
            self.disk.add(block.key, stored.nbytes + len(stored.manifest()))
            self._counts["written"] += 1
            self._since_count += 1
            if self._since_count >= _RECOUNT_EVERY:
                self.recount()
            return
        if failure is not None:
            self._report(Problem(block.key, f"cannot be written ({failure})"))

    def remove(self, key: str) -> None:
        self.files.remove(key)
        self.disk.remove(key)
        if self.archive:
            self.archive.remove(key)
            self.cold.remove(key)

    def touch(self, keys: Sequence[str]) -> None:
        """Note a use in the folder, for every process and the next start."""
        for key in reversed(keys):
            self.files.touch(key)

    def shrink_disk(self, *, room_for: int = 0) -> None:
        """Give up blocks until the folder, and so many bytes more, are under its budget."""
        while (key := self.disk.victim(room_for=room_for)) is not None:
            if self.archive:
                self._demote(self.archive, key)
            else:
                self._counts["given_up"] += 1
            try:
                self.files.remove(key)
            except OSError as error:
                self._report(Problem(key, f"cannot be deleted ({error})"))
            self.disk.remove(key)

    def shrink_archive(self) -> None:
        while self.archive and (key := self.cold.victim()) is not None:
            self.archive.remove(key)
            self.cold.remove(key)
            self._counts["given_up"] += 1

    def recount(self) -> None:
        """Byte accounting from what is there, never from what was once noted."""
        self._since_count = 0
        entries = sorted(self.files.entries(), key=lambda entry: (entry.used_at, entry.key))
        self.disk.recount((entry.key, entry.nbytes) for entry in entries)
        if self.archive and self.cold.budget is not None:
            self.cold.recount((entry.key, entry.nbytes) for entry in self.archive.entries())

    def _demote(self, archive: BlockArchive, key: str) -> None:
        if key in self.cold or (found := self.files.read(key)) is None:
            return
        block, _ = found
        try:
            content = self.files.read_bytes(block)
        except OSError as error:
            self._report(Problem(key, f"cannot be read ({error})"))
            return
        if archive.write(block, content):
            self.cold.add(key, block.nbytes + len(block.manifest()))
            self.shrink_archive()
