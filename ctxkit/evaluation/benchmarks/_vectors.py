"""Vectors of a benchmark's texts, kept in the user's cache folder: a second run embeds only what has changed."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from contextlib import closing

import numpy as np
from numpy.typing import NDArray

from ctxkit.protocols import Embedder
from ctxkit.settings import cache_dir

__all__ = ["Kept", "vectors_of"]

_AT_ONCE = 500


def vectors_of(embedder: Embedder, texts: Sequence[str]) -> NDArray[np.float32]:
    """The vectors of `texts`, `(n, dimension)`; those that are new are embedded and kept."""
    folder = cache_dir() / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    keys = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() for text in texts]
    name = hashlib.sha256(embedder.fingerprint.encode()).hexdigest()[:16]
    with closing(sqlite3.connect(folder / f"vectors-{name}.db", timeout=60)) as database:
        database.execute("CREATE TABLE IF NOT EXISTS vectors (key TEXT PRIMARY KEY, vector BLOB)")
        known: dict[str, NDArray[np.float32]] = {}
        for at in range(0, len(keys), _AT_ONCE):
            part = keys[at : at + _AT_ONCE]
            marks = ",".join("?" * len(part))
            query = f"SELECT key, vector FROM vectors WHERE key IN ({marks})"  # noqa: S608
            for key, vector in database.execute(query, part):
                known[key] = np.frombuffer(vector, np.float32)
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        waiting = sorted(missing, key=lambda key: len(missing[key]))
        for at in range(0, len(waiting), _AT_ONCE):  # what is done is kept when the run is stopped
            part = waiting[at : at + _AT_ONCE]
            new = embedder.embed([missing[key] for key in part])
            known.update(zip(part, new, strict=True))
            rows = [(key, vector.tobytes()) for key, vector in zip(part, new, strict=True)]
            database.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", rows)
            database.commit()
    return np.stack([known[key] for key in keys])


class Kept:
    """An embedder whose vectors stay in the cache folder."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.dimension, self.fingerprint = embedder.dimension, embedder.fingerprint

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if not texts:
            return self._embedder.embed(texts)
        return vectors_of(self._embedder, texts)
