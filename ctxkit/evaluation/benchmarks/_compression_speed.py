"""How long choosing among the sentences of 100,000 tokens takes, beside embedding the question alone."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctxkit.compression import SentenceCompressor, SentenceStore
from ctxkit.documents import Candidate, Query
from ctxkit.evaluation.benchmarks._compression_sets import SETS
from ctxkit.protocols import Embedder
from ctxkit.testing import HashEmbedder
from ctxkit.tokens import get_counter

__all__ = ["speed"]

TOKENS, ROUNDS, RATIO = 100_000, 7, 10


@dataclass
class _Questions:
    """The embedder itself for a question; sentences get hashed vectors, which no timing depends on."""

    embedder: Embedder
    sentences: HashEmbedder

    @property
    def dimension(self) -> int:
        return self.embedder.dimension

    @property
    def fingerprint(self) -> str:
        return f"{self.embedder.fingerprint} for questions"

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self.embedder.embed(texts) if len(texts) == 1 else self.sentences.embed(texts)


def speed(data: Path, embedder: Embedder) -> dict[str, Any]:
    """Medians of interleaved runs in seconds of this process, and the ratio of each to embedding the question.

    `warm`: what ingest prepared is in memory; `cold`: it is read from its file first.
    """
    candidates: dict[str, Candidate] = {}
    tokens = 0
    for question in islice(SETS["qmsum"](data), 40):
        for candidate in question.candidates:
            if tokens < TOKENS and candidate.chunk.id not in candidates:
                candidates[candidate.chunk.id] = candidate
                tokens += candidate.chunk.token_count
    items = list(candidates.values())
    query = Query("What did the group decide about the recording of the meetings, and why?")
    ours = _Questions(embedder, HashEmbedder(embedder.dimension))
    counter = get_counter()
    seconds: dict[str, list[float]] = {"question": [], "warm": [], "cold": []}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sentences.db"
        warm = SentenceStore(path)
        warm.prepare([item.chunk for item in items], counter, ours)
        for _ in range(ROUNDS + 1):
            stages = {"warm": warm, "cold": SentenceStore(path)}
            started = time.process_time()
            ours.embed([query.text])
            seconds["question"].append(time.process_time() - started)
            for name, store in stages.items():
                stage = SentenceCompressor(ratio=RATIO, embedder=ours, sentences=store)
                started = time.process_time()
                stage(query, items)
                seconds[name].append(time.process_time() - started)
    median = {name: float(np.median(values[1:])) for name, values in seconds.items()}  # the first one warms up
    return {
        "tokens": tokens,
        **{f"{name} ms": round(1000 * value, 1) for name, value in median.items()},
        "warm, times": round(median["warm"] / median["question"], 2),
        "cold, times": round(median["cold"] / median["question"], 2),
    }
