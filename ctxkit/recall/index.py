"""The past of one dialogue in memory: entries, their words and their vectors, following the dialogue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from ctxkit.embedded import embedded
from ctxkit.messages import Message
from ctxkit.protocols import Embedder
from ctxkit.recall.entries import Entry, entries
from ctxkit.recall.lexicon import Lexicon
from ctxkit.retrieval import BM25, Analyzer

__all__ = ["PastIndex"]

Vectors = NDArray[np.float32]
Known = Callable[[], "dict[int, tuple[str, Vectors]]"]
Keep = Callable[["dict[int, tuple[str, Vectors]]"], None]

_BATCH = 256


class PastIndex:
    """Follows a dialogue: entries that are still the same stay, the others are read again."""

    def __init__(self, embedder: Embedder | None, *, analyzer: Analyzer, weights: BM25, pause: timedelta) -> None:
        self._embedder = embedder
        self._analyzer, self._weights, self._pause = analyzer, weights, pause
        self.entries: list[Entry] = []
        self.lexicon = Lexicon(analyzer, weights)
        self._digests: list[str] = []
        self._vectors: list[Vectors] = []

    def follow(self, messages: Sequence[Message], known: Known, keep: Keep) -> None:
        """Bring it up to date with the dialogue.

        Args:
            known: gives the vectors that are stored already; asked only when one is missing here.
            keep: stores those that were made.
        """
        now = entries(messages, self._pause)
        digests = [entry.digest for entry in now]
        same = 0
        while same < min(len(digests), len(self._digests)) and digests[same] == self._digests[same]:
            same += 1
        if same < len(self.lexicon):
            self.lexicon = Lexicon(self._analyzer, self._weights)
        for entry in now[len(self.lexicon) :]:
            self.lexicon.add(entry.indexed)
        old = dict(zip(self._digests, self._vectors, strict=False))
        self.entries, self._digests = now, digests
        if self._embedder is None:
            return
        vectors: list[Vectors | None] = [*self._vectors[:same], *(old.get(digest) for digest in digests[same:])]
        if any(vector is None for vector in vectors):
            stored = known()
            for at, vector in enumerate(vectors):
                if vector is None and stored.get(now[at].sequence, ("",))[0] == digests[at]:
                    vectors[at] = stored[now[at].sequence][1]
        missing = [at for at, vector in enumerate(vectors) if vector is None]
        for start in range(0, len(missing), _BATCH):
            some = missing[start : start + _BATCH]
            made = embedded(self._embedder, [now[at].indexed for at in some])
            for at, vector in zip(some, made, strict=True):
                vectors[at] = vector
            # Batch by batch, so that what was made stays when the process is killed.
            keep({now[at].sequence: (digests[at], made[row]) for row, at in enumerate(some) if now[at].sequence})
        self._vectors = [vector for vector in vectors if vector is not None]

    def cosines(self, vector: Vectors | None) -> NDArray[np.float64] | None:
        """Of every entry with a question's vector; None without one."""
        if vector is None or not self._vectors:
            return None
        found = np.stack(self._vectors) @ vector
        return np.asarray(np.clip(np.round(found.astype(np.float64), 6), 0.0, 1.0))
