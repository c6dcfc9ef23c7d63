"""Blocks in an object store, or anything else that fsspec reaches: the coldest tier."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ctxkit.errors import ConfigError, KVCacheError
from ctxkit.kvcache.blocks import Block, read_manifest, unpack
from ctxkit.kvcache.files import Entry, Problem
from ctxkit.settings import require

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["BlockArchive"]


class BlockArchive:
    """Blocks under a URL of fsspec (`s3://bucket/kv`, `gs://…`, `file:///…`, `memory://…`).

    An object store knows neither renames nor locks, but an object is whole or absent: the numbers get a name of their
    own by their SHA-256, then the manifest is written over the one before. What cannot be reached, or is damaged, is
    reported and counts as missing; a damaged block's manifest is deleted.

    Args:
        url: with the protocol.
        report: called with each `Problem`.
        options: for fsspec's file system, such as credentials.

    Errors: `MissingExtraError`, `ConfigError` for a protocol that fsspec does not know or whose package is missing.
    """

    def __init__(self, url: str, *, report: Callable[[Problem], None] = lambda problem: None, **options: Any) -> None:
        fsspec: Any = require("fsspec", extra="object-store", subject=url)
        try:
            self._files, self._root = fsspec.core.url_to_fs(url, **options)
        except (ValueError, ImportError) as error:
            raise ConfigError(
                f"fsspec does not open this ({error})",
                subject=url,
                remedy="Write PROTOCOL://PATH, such as s3://bucket/kv, and install the protocol's package.",
            ) from error
        self.url = url
        self._report = report

    def head(self, key: str) -> Block | None:
        """The manifest, checked; None without one."""
        content = self._get(f"{key}.json", key)
        if content is None:
            return None
        try:
            return read_manifest(content, key=key)
        except KVCacheError as error:
            self._damaged(key, error.message)
            return None

    def read(self, key: str) -> tuple[Block, bytes, dict[str, Tensor]] | None:
        """The block, the bytes of its file, and its numbers, every byte checked."""
        block = self.head(key)
        content = None if block is None else self._get(_data_name(block), key)
        if block is None or content is None:
            return None
        try:
            return block, content, unpack(content, block)
        except KVCacheError as error:
            self._damaged(key, error.message)
            return None

    def write(self, block: Block, content: bytes) -> bool:
        """Store a block with the bytes of its file; whether that went well."""
        try:
            self._files.makedirs(self._path(block.key, "").rpartition("/")[0], exist_ok=True)
            self._files.pipe_file(self._path(block.key, _data_name(block)), content)
            self._files.pipe_file(self._path(block.key, f"{block.key}.json"), block.manifest())
        except Exception as error:  # every protocol raises its own
            self._report(Problem(block.key, f"cannot be archived ({type(error).__name__}: {error})"))
            return False
        return True

    def remove(self, key: str) -> None:
        """Delete a block; what cannot be deleted is reported."""
        block = self.head(key)
        names = [f"{key}.json", *([_data_name(block)] if block else ())]
        for name in names:
            try:
                self._files.rm_file(self._path(key, name))
            except FileNotFoundError:
                continue
            except Exception as error:
                self._report(Problem(key, f"cannot be deleted ({type(error).__name__}: {error})"))

    def entries(self) -> Iterator[Entry]:
        """All blocks there are, by a listing of names."""
        try:
            found = self._files.find(self._root, detail=True)
        except FileNotFoundError:
            return
        except Exception as error:
            self._report(Problem("", f"cannot be listed ({type(error).__name__}: {error})"))
            return
        sizes: dict[str, int] = {}
        manifests = set()
        for path, facts in found.items():
            name = path.rpartition("/")[2]
            key = name.partition(".")[0]
            sizes[key] = sizes.get(key, 0) + int(facts.get("size") or 0)
            if name.endswith(".json"):
                manifests.add(key)
        yield from (Entry(key, sizes[key], 0.0) for key in sorted(manifests))

    def _path(self, key: str, name: str) -> str:
        return f"{self._root.rstrip('/')}/{key[:2]}/{name}"

    def _get(self, name: str, key: str) -> bytes | None:
        try:
            content: bytes = self._files.cat_file(self._path(key, name))
            return content
        except FileNotFoundError:
            return None
        except Exception as error:
            self._report(Problem(key, f"cannot be fetched ({type(error).__name__}: {error})"))
            return None

    def _damaged(self, key: str, what: str) -> None:
        self._report(Problem(key, what))
        try:
            self._files.rm_file(self._path(key, f"{key}.json"))
        except Exception as error:
            self._report(Problem(key, f"cannot be deleted ({type(error).__name__}: {error})"))


def _data_name(block: Block) -> str:
    return f"{block.key}.{block.sha256[:16]}.safetensors"
