"""Blocks in a folder: two files a block, shared by processes, checked byte for byte before use.

`<k>/<key>/<version>.<letters>.safetensors` holds the numbers and `<k>/<key>/<version>.json` the manifest, where `<k>`
is the beginning of the key. The numbers are written first; the manifest's name makes them a block. So a process that is
killed leaves at worst a file that nobody looks at, and of two writers of one version one wins.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ctxkit.errors import ConflictError, KVCacheError
from ctxkit.kvcache.atomic import TEMPORARY, create_whole, write_whole
from ctxkit.kvcache.blocks import Block, Payload, pack, read_manifest, unpack

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["KEPT_VERSIONS", "BlockFiles", "Entry", "Problem"]

KEPT_VERSIONS = 3
"""Versions of a block that are kept: the current one, and two to fall back to when it is damaged."""

_ABANDONED_AFTER = 600.0
"""Seconds after which a file without a manifest belongs to a writer that is gone."""

_OURS = re.compile(r"\d+\.(json|[0-9a-f]{8}\.safetensors)(\.[0-9a-f]{16}\.tmp)?", re.ASCII)
"""Names of files that a store writes; what else lies in its folder is somebody else's, and is left alone."""

_KEY = re.compile(r"[0-9a-f]{64}")

_QUARANTINE = "quarantine"
_QUARANTINED = 50
"""Files that the quarantine keeps for a look at them; older ones are deleted."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that was found wrong and worked around: the block counts as missing."""

    key: str
    what: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A block as the folder shows it, without reading it: bytes of all its files, and when it was last used."""

    key: str
    nbytes: int
    used_at: float


class BlockFiles:
    """Blocks as files under a folder.

    Args:
        folder: made when the first block is written.
        report: called with each `Problem`.
        durable: bring bytes to the disk before they get their name (fsync).

    A damaged, cut or foreign file is moved to `quarantine/`, reported, and counts as missing; where an older version
    is whole, that one is used. Files and folders that have none of the names above are never touched.
    """

    def __init__(
        self, folder: str | Path, *, report: Callable[[Problem], None] = lambda problem: None, durable: bool = True
    ) -> None:
        self.folder = Path(folder)
        self._report = report
        self._durable = durable

    def head(self, key: str) -> Block | None:
        """The current version's manifest, checked; None without one."""
        for version in reversed(self._versions(key)):
            block = self._manifest(key, version)
            if block is not None:
                return block
        return None

    def read(self, key: str) -> tuple[Block, dict[str, Tensor]] | None:
        """The block and its numbers, every byte checked; None where there is none that is whole."""
        for version in reversed(self._versions(key)):
            block = self._manifest(key, version)
            if block is None:
                continue
            try:
                content = (self._place(key) / block.file).read_bytes()
            except OSError as error:
                if isinstance(error, FileNotFoundError):
                    again = self._manifest(key, version)  # None or another: somebody collected it just now
                    if again is not None and again.file == block.file:
                        self._quarantine(key, version, "its file is missing")
                elif self._no_file(self._place(key) / block.file):
                    self._quarantine(key, version, f"its numbers are no file ({error.strerror})")
                else:
                    self._report(Problem(key, f"cannot be read ({error})"))
                continue
            try:
                return block, unpack(content, block)
            except KVCacheError as error:
                self._quarantine(key, version, error.message)
        return None

    def read_bytes(self, block: Block) -> bytes:
        """The bytes of a block's file as they are, to be copied elsewhere. Errors: `OSError`."""
        return (self._place(block.key) / block.file).read_bytes()

    def write(self, block: Block, payload: Payload, *, expected: int = 0) -> Block:
        """Store a version after `expected` (0: there is none yet).

        Errors: `ConflictError` where the current version is another one, `OSError` of the file system (a full disk, a
        read-only folder); then nothing is left behind.
        """
        return self.write_bytes(block, pack(payload, key=block.key), expected=expected)

    def write_bytes(self, block: Block, content: bytes, *, expected: int = 0) -> Block:
        """As `write`, of numbers that are packed already."""
        key = block.key
        place = self._place(key)
        versions = self._versions(key)
        version = expected + 1
        if (versions[-1] if versions else 0) != expected:
            raise self._conflict(key)
        place.mkdir(parents=True, exist_ok=True)
        stored = block.stored_as(version=version, file=f"{version}.{secrets.token_hex(4)}.safetensors", content=content)
        data = place / stored.file
        try:
            write_whole(data, content, durable=self._durable)
            if not create_whole(self._manifest_path(key, version), stored.manifest(), durable=self._durable):
                raise self._conflict(key)
        except BaseException:
            _remove(data)
            raise
        for old in versions[: max(0, len(versions) + 1 - KEPT_VERSIONS)]:
            self._remove_version(key, old)
        return stored

    def touch(self, key: str) -> None:
        """Note that a block is used now, for every process that looks. Where nothing can be written, nothing is."""
        versions = self._versions(key)
        if versions:
            with contextlib.suppress(OSError):
                os.utime(self._manifest_path(key, versions[-1]))

    def remove(self, key: str) -> None:
        """Delete a block. A reader that has its file open reads on. Errors: `OSError`."""
        place = self._place(key)
        names = [
            file.name for file in _files(place) if _OURS.fullmatch(file.name) and not file.name.endswith(TEMPORARY)
        ]
        manifests = [name for name in names if name.endswith(".json")]
        versions = {name.partition(".")[0] for name in manifests}
        # Numbers without a manifest are being written by another process, or `sweep` deletes them.
        numbers = [name for name in names if name.endswith(".safetensors") and name.partition(".")[0] in versions]
        for name in (*manifests, *numbers):  # in this order: what has no manifest is no block
            (place / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            place.rmdir()

    def entries(self) -> Iterator[Entry]:
        """All blocks, as the folder has them now, without reading one. About 20 µs a block."""
        for place in self._places():
            nbytes, used_at, manifests = 0, 0.0, 0
            for file in _files(Path(place.path)):
                with contextlib.suppress(OSError):
                    found = file.stat()
                    nbytes += found.st_size
                    if file.name.endswith(".json"):
                        manifests += 1
                        used_at = max(used_at, found.st_mtime)
            if manifests:
                yield Entry(place.name, nbytes, used_at)

    def sweep(self, *, now: float | None = None) -> int:
        """Delete what killed writers left behind and the oldest of the quarantine; the bytes that this freed."""
        now = time.time() if now is None else now
        kept = sorted(_files(self.folder / _QUARANTINE), key=lambda file: _changed_at(file, now), reverse=True)
        freed = sum(_remove(Path(file.path)) for file in kept[_QUARANTINED:])
        for place in self._places():
            files = [file for file in _files(Path(place.path)) if _OURS.fullmatch(file.name)]
            versions = {file.name.partition(".")[0] for file in files if file.name.endswith(".json")}
            for file in files:
                loose = file.name.endswith(TEMPORARY) or file.name.partition(".")[0] not in versions
                if loose and now - _changed_at(file, now) > _ABANDONED_AFTER:
                    freed += _remove(Path(file.path))
            with contextlib.suppress(OSError):
                os.rmdir(place.path)  # only where it is empty
        return freed

    def _places(self) -> Iterator[os.DirEntry[str]]:
        """The folder of each key."""
        for outer in _folders(self.folder):
            if len(outer.name) == 2:
                for place in _folders(Path(outer.path)):
                    if _KEY.fullmatch(place.name) and place.name.startswith(outer.name):
                        yield place

    def _place(self, key: str) -> Path:
        return self.folder / key[:2] / key

    def _manifest_path(self, key: str, version: int) -> Path:
        return self._place(key) / f"{version}.json"

    def _versions(self, key: str) -> list[int]:
        try:
            names = os.listdir(self._place(key))
        except OSError:
            return []
        stems = (name[: -len(".json")] for name in names if name.endswith(".json"))
        return sorted(int(stem) for stem in stems if stem.isdecimal() and stem.isascii())

    def _manifest(self, key: str, version: int) -> Block | None:
        try:
            content = self._manifest_path(key, version).read_bytes()
        except OSError as error:
            if self._no_file(self._manifest_path(key, version)):
                self._quarantine(key, version, f"its manifest is no file ({error.strerror})")
            elif not isinstance(error, FileNotFoundError):
                self._report(Problem(key, f"cannot be read ({error})"))
            return None
        try:
            block = read_manifest(content, key=key)
        except KVCacheError as error:
            self._quarantine(key, version, error.message)
            return None
        if block.version != version:
            self._quarantine(key, version, f"its manifest says version {block.version}")
            return None
        return block

    def _quarantine(self, key: str, version: int, what: str) -> None:
        """Out of the way, so that nobody reads it again; kept for a look at it."""
        self._report(Problem(key, what))
        aside = self.folder / _QUARANTINE
        with contextlib.suppress(OSError):
            aside.mkdir(parents=True, exist_ok=True)
            for path in (self._manifest_path(key, version), *self._place(key).glob(f"{version}.*.safetensors")):
                if path.is_file():
                    os.replace(path, aside / f"{key[:16]}.{path.name}")
                elif self._no_file(path):  # a folder cannot replace a file that lies there
                    os.replace(path, aside / f"{key[:16]}.{path.name}.{secrets.token_hex(4)}")

    @staticmethod
    def _no_file(path: Path) -> bool:
        """Whether a name is there and is neither a file nor a link to one."""
        return os.path.lexists(path) and not path.is_file()

    def _remove_version(self, key: str, version: int) -> None:
        with contextlib.suppress(OSError):
            self._manifest_path(key, version).unlink(missing_ok=True)
            for path in self._place(key).glob(f"{version}.*.safetensors"):
                _remove(path)

    def _conflict(self, key: str) -> ConflictError:
        return ConflictError(
            "another process stored this block first", subject=key, remedy="Read its version and write after that one."
        )


def _folders(folder: Path) -> Iterator[os.DirEntry[str]]:
    yield from (entry for entry in _scan(folder) if entry.is_dir(follow_symlinks=False))


def _files(folder: Path) -> Iterator[os.DirEntry[str]]:
    yield from (entry for entry in _scan(folder) if entry.is_file(follow_symlinks=False))


def _scan(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def _changed_at(file: os.DirEntry[str], now: float) -> float:
    """When a file was last written; now for one that somebody deleted since."""
    try:
        return file.stat().st_mtime
    except OSError:
        return now


def _remove(path: Path) -> int:
    """The bytes that deleting a file freed."""
    with contextlib.suppress(OSError):
        size = path.stat().st_size
        path.unlink()
        return size
    return 0
