"""What a question costs with the graph and without, over ten thousand chunks, the embedder's own time left out."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import numpy as np

from ctxkit.chunking import RecursiveChunker
from ctxkit.documents import Query
from ctxkit.evaluation.benchmarks._filling import store_documents
from ctxkit.evaluation.datasets import load
from ctxkit.evaluation.report import Report
from ctxkit.retrieval import Hybrid
from ctxkit.storage import Store
from ctxkit.testing import HashEmbedder

__all__ = ["measure"]

CHUNKS = 10_000
QUESTIONS = 50


def measure(report: Report, data: Path) -> None:
    """p50 and p95 of a question's milliseconds, and the ratio of the medians; the systems take turns."""
    embedder = HashEmbedder(384)
    documents = load(data, "scifact").documents
    with Store.open("sqlite://") as store:
        chunks, items = 0, []
        for document in documents:
            pieces = list(RecursiveChunker(max_tokens=128).chunk(document))[: CHUNKS - chunks]
            chunks += len(pieces)
            items.append((document, pieces))
            if chunks >= CHUNKS:
                break
        store_documents(store, items, embedder)
        systems = {
            "without graph": Hybrid(store, embedder, weights={"dense": 1, "lexical": 1}),
            "with graph": Hybrid(store, embedder),
        }
        questions = [Query(re.split(r"(?<=[.?!]) ", document.text)[-1]) for document in documents[:QUESTIONS]]
        seconds: dict[str, list[float]] = {name: [] for name in systems}
        first: dict[str, float] = {}
        for name, system in systems.items():
            started = time.perf_counter()
            system.retrieve(questions[0], 10)
            first[name] = time.perf_counter() - started
        for question in questions:
            for name, system in systems.items():
                started = time.perf_counter()
                system.retrieve(question, 10)
                seconds[name].append(time.perf_counter() - started)
    plain = float(np.median(seconds["without graph"]))
    for name in systems:
        report.rows.append(_row(name, chunks, seconds[name], first[name], plain))


def _row(name: str, chunks: int, seconds: list[float], first: float, plain: float) -> dict[str, Any]:
    p50, p95 = np.percentile(np.array(seconds) * 1000, [50, 95])
    return {
        "system": name,
        "set": f"latency over {chunks:,} chunks",
        "p50_ms": round(float(p50), 1),
        "p95_ms": round(float(p95), 1),
        "ratio": round(float(p50) / 1000 / plain, 2),
        "first_question_s": round(first, 2),
    }
