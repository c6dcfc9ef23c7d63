"""What every index derived from the store shares: it follows the store, and keeps a copy beside it.

The store is the truth. An index in memory is brought up to date before each query by two cheap questions: has the
tenant's revision changed, and if so, which keys came and which went (keys are never used twice). The copy on disk only
saves work at the next start: one that is missing, damaged, of another store, tenant or recipe, or from the future of a
restored backup is not used, and what it lacks is added from the store. Several processes may write it; each write
replaces the file as a whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ctxkit.embedding.files import map_arrays, write_arrays
from ctxkit.settings import cache_dir

if TYPE_CHECKING:
    from ctxkit.storage import Store

__all__ = ["DerivedIndex", "index_path"]

Keys = NDArray[np.int64]

_SAVE_AFTER = 0.1
"""The copy is written when more than this part of the keys has changed since: appending one document to a million
must not rewrite a gigabyte."""


class DerivedIndex(ABC):
    """An index of a tenant's chunks that follows the store. Safe to use from several threads and processes.

    Args:
        kind: names the index in its file's name.
        recipe: names everything that its content depends on beside the chunks.
    """

    mapped: tuple[str, ...] = ()
    """The arrays of the copy that stay on disk and are read from there."""

    def __init__(self, store: Store, *, kind: str, recipe: str) -> None:
        self.store = store
        self.path = index_path(store, kind, recipe)
        self._header = {"kind": kind, "recipe": recipe, "store": store.id, "tenant": store.tenant}
        self._lock = threading.RLock()
        self._holders = 0
        self._revision: int | None = None
        self._known: Keys = np.zeros(0, dtype=np.int64)
        self._unsaved = 0

    @abstractmethod
    def clear(self) -> None:
        """Forget everything."""

    @abstractmethod
    def add(self, keys: Keys) -> None:
        """Take these chunks from the store; ones that are gone by now are left out."""

    @abstractmethod
    def remove(self, keys: Keys) -> None:
        """Forget these chunks."""

    @abstractmethod
    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The content as arrays, for the copy on disk."""

    @abstractmethod
    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take over the content of a copy. Raises `KeyError` or `ValueError` when it is none."""

    def save(self) -> None:
        """Write the copy now, for the next start; changes of the store do it when there are enough of them."""
        with self.current():
            self._save()

    @contextmanager
    def current(self) -> Iterator[None]:
        """Holds the index still, as of now: every change of the store that was committed before is in it.

        Nested, it asks the store once, so that several searches for one answer see one state.
        """
        with self._lock:
            if self._holders == 0:
                self._follow()
            self._holders += 1
            try:
                yield
            finally:
                self._holders -= 1

    def _follow(self) -> None:
        # The revision is read before the keys: a change in between is seen twice, never missed.
        revision = self.store.documents.revision()
        if revision == self._revision:
            return
        if self._revision is None:
            self._load(revision)
        keys = self.store.documents.keys()
        gone, new = np.setdiff1d(self._known, keys), np.setdiff1d(keys, self._known)
        # Until all is done the index counts as out of date: an error half way leaves work, not a lie.
        self._revision = -1
        if len(gone):
            self.remove(gone)
        if len(new):
            self.add(new)
        self._known, self._revision = keys, revision
        self._unsaved += len(gone) + len(new)
        if self._unsaved > _SAVE_AFTER * len(keys):
            self._save()

    def _load(self, revision: int) -> None:
        self.clear()
        self._known = np.zeros(0, dtype=np.int64)
        content = map_arrays(self.path, mapped=self.mapped) if self.path is not None else None
        if content is None:
            return
        arrays, header = content
        saved = header.pop("revision", None)
        if header != self._header or not isinstance(saved, str) or not saved.isdecimal() or int(saved) > revision:
            return
        try:
            known = arrays.pop("known")
            if known.dtype != np.int64 or known.ndim != 1:
                return
            self.from_arrays(arrays)
        except (KeyError, ValueError, IndexError, TypeError):
            self.clear()
            return
        self._known = known

    def _save(self) -> None:
        self._unsaved = 0
        if self.path is None:
            return
        # A folder that cannot be written costs the next start some time and nobody an answer.
        with contextlib.suppress(OSError):
            arrays = {**self.to_arrays(), "known": self._known}
            write_arrays(self.path, arrays, {**self._header, "revision": str(self._revision)})


def index_path(store: Store, kind: str, recipe: str) -> Path | None:
    """Where the copy lies: beside the SQLite file, else under `cache_dir()`; None for a store in memory.

    The tenant is part of the name as a hash (law 10): any text may be a tenant's name, not every text a file's.
    """
    owner = hashlib.sha256(store.tenant.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    name = f"{kind}-{owner}-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}.npz"
    if store.path is not None:
        return store.path.with_name(f"{store.path.name}.index") / name
    return None if store.kind == "sqlite" else cache_dir() / store.id / name
