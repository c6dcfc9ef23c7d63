"""The tiered embedding cache: bytes, quality, latency and hit rate against faiss's flat, FP16, SQ8 and SQ4 indexes."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctxkit.embedding import TieredIndex, minilm
from ctxkit.embedding.access import AccessHistory
from ctxkit.evaluation import datasets
from ctxkit.evaluation.benchmarks._vectors import Kept
from ctxkit.evaluation.bootstrap import paired_bootstrap
from ctxkit.evaluation.datasets import RetrievalSet
from ctxkit.evaluation.metrics import mean, ndcg
from ctxkit.evaluation.report import Bar, Report
from ctxkit.protocols import Embedder
from ctxkit.settings import require
from ctxkit.storage import index_text

__all__ = ["SYSTEMS", "run"]

Vectors = NDArray[np.float32]
Keys = NDArray[np.int64]
Search = Callable[[Vectors, int], Keys]
_OURS, _INT4, _FLAT = "ctxkit tiered, 5 % hot", "ctxkit INT4 alone", "faiss flat float32"
SYSTEMS = (_OURS, _INT4, _FLAT, "faiss FP16", "faiss SQ8", "faiss SQ4")

_SIZES = (50_000, 200_000)
_FEW = 1_500
_SEARCHES = 3_000


def run(
    data: Path,
    *,
    full: bool = False,
    sizes: str | Sequence[int] | None = None,
    embedder: Embedder | None = None,
    rounds: int = 60,
) -> Report:
    """SciFact with MiniLM for quality and bytes; that and larger sets around its vectors for latency; one thread.

    About two minutes and, the first time, the embedding of the abstracts, whose vectors stay in the cache folder.

    Args:
        full: all 5,183 abstracts; else the 283 that are judged and so many others that they are 1,500.
        sizes: how many vectors, as a list or with commas. The vectors beyond SciFact's are normalised sums of two of
            them and noise: near each other as texts are, and none twice.
        embedder: default MiniLM.
        rounds: of interleaved searches, whose median counts.
    """
    faiss = require("faiss", extra="local", subject="the benchmark embedding-cache")
    judged = datasets.load(data, "scifact")
    if not full:
        judged = _few(judged)
    if sizes is None:
        sizes = (len(judged.documents), *_SIZES)
    numbers = [int(size) for size in sizes.split(",")] if isinstance(sizes, str) else list(sizes)
    documents, queries = _embedded(judged, Kept(embedder or minilm()))
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        return _measured(faiss, judged, documents, queries, numbers, rounds)
    finally:
        faiss.omp_set_num_threads(threads)


def _measured(
    faiss: Any, judged: RetrievalSet, documents: Vectors, queries: Vectors, sizes: Sequence[int], rounds: int
) -> Report:
    rows: dict[str, dict[str, Any]] = {name: {"system": name} for name in SYSTEMS}
    systems = {name: _System(faiss, name, documents) for name in SYSTEMS}
    trace = _trace(len(queries), _SEARCHES)
    tiers = systems[_OURS].index
    hits = _hit_rates(tiers, queries, trace)
    exact = [systems[_FLAT].search(query, 10) for query in queries]
    truth = _quality(judged, exact)
    for name, system in systems.items():
        found = [system.search(query, 10) for query in queries]
        quality = _quality(judged, found)
        difference = paired_bootstrap(quality, truth)
        rows[name]["bytes/float32"] = round(system.bytes / documents.nbytes, 4)
        rows[name]["disk/float32"] = round(system.disk_bytes / documents.nbytes, 4)
        rows[name]["nDCG@10"] = round(mean(quality), 4)
        rows[name]["less float32 (95 %)"] = f"{difference.mean:+.4f} ({difference.low:+.4f} to {difference.high:+.4f})"
        rows[name]["same top 10"] = round(
            mean(len(np.intersect1d(a, b)) / 10 for a, b in zip(found, exact, strict=True)), 4
        )
    bars = [
        Bar.at_most("bytes_5_percent_hot", tiers.memory_bytes / documents.nbytes, 0.17),
        Bar.at_most("scifact_ndcg10_loss", rows[_FLAT]["nDCG@10"] - rows[_OURS]["nDCG@10"], 0.005),
    ]
    for size in sizes:
        systems = {name: _System(faiss, name, _more(documents, size)) for name in SYSTEMS}
        for query in queries[trace[:400]]:
            systems[_OURS].search(query, 10)
        for k in (10, 100):
            ratios = _latency({name: system.search for name, system in systems.items()}, _FLAT, queries, k, rounds)
            for name, ratio in ratios.items():
                rows[name][f"time {size:,}, k {k}"] = round(ratio, 3)
            if k == 10:
                bars.append(Bar.at_most(f"latency_{size}", ratios[_OURS], 1.0))
    rows[_OURS] |= {f"hits, {name}": round(rate, 4) for name, rate in hits.items()}
    bars.append(Bar.at_least("hit_rate_minus_lru", hits["LRU-2"] - hits["LRU"], 0.0))
    text = (
        f"SciFact ({len(judged.documents):,} abstracts, {len(judged.queries):,} queries), dimension "
        f"{documents.shape[1]}; time: one thread, median of {rounds} interleaved searches, in faiss flat's; hits: the "
        f"part of {len(trace):,} searches' results that a tier of 5 % held, queries by a Zipf law, one in five "
        "asked once"
    )
    return Report(
        "embedding-cache", text, [{key: row.get(key, "") for key in rows[_OURS]} for row in rows.values()], bars
    )


class _System:
    """An index over rows that are their own keys."""

    def __init__(self, faiss: Any, name: str, vectors: Vectors) -> None:
        count, dimension = vectors.shape
        self.disk_bytes = 0
        self.index: Any
        if name in (_OURS, _INT4):
            self.index = TieredIndex(dimension, rescore="fp16" if name == _OURS else "int4")
            self.index.add(np.arange(count), vectors)
            self.search: Search = lambda query, k: self.index.search(query, k)[0]
            self.disk_bytes = self.index.disk_bytes
            return
        kinds = {"faiss FP16": "QT_fp16", "faiss SQ8": "QT_8bit", "faiss SQ4": "QT_4bit"}
        if name == _FLAT:
            self.index = faiss.IndexFlatIP(dimension)
        else:
            kind = getattr(faiss.ScalarQuantizer, kinds[name])
            self.index = faiss.IndexScalarQuantizer(dimension, kind, faiss.METRIC_INNER_PRODUCT)
            self.index.train(vectors)
        self.index.add(vectors)
        self.search = lambda query, k: self.index.search(query[None, :], k)[1][0]

    @property
    def bytes(self) -> int:
        if isinstance(self.index, TieredIndex):
            return self.index.memory_bytes
        return int(self.index.ntotal) * int(self.index.sa_code_size())


def _few(judged: RetrievalSet) -> RetrievalSet:
    """The abstracts that answer a question, and the first others."""
    wanted = {name for grades in judged.relevant.values() for name in grades}
    others = (document for document in judged.documents if document.id not in wanted)
    kept = {document.id for document in islice(others, max(0, _FEW - len(wanted)))} | wanted
    return replace(judged, documents=tuple(document for document in judged.documents if document.id in kept))


def _embedded(judged: RetrievalSet, embedder: Embedder) -> tuple[Vectors, Vectors]:
    texts = [index_text(document.title, (), document.text) for document in judged.documents]
    return embedder.embed(texts), embedder.embed(list(judged.queries.values()))


def _more(documents: Vectors, size: int) -> Vectors:
    if size <= len(documents):
        return documents[:size]
    generator = np.random.default_rng(0)
    more = np.empty((size, documents.shape[1]), dtype=np.float32)
    more[: len(documents)] = documents
    for start in range(len(documents), size, 10_000):
        part = more[start : start + 10_000]
        first, second = generator.integers(0, len(documents), (2, len(part)))
        part[:] = documents[first] + documents[second]
        part += 0.02 * generator.standard_normal(part.shape, dtype=np.float32)
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return more


def _quality(judged: RetrievalSet, found: Sequence[Keys]) -> list[float]:
    """nDCG@10 of each query."""
    names = [document.id for document in judged.documents]
    return [
        ndcg([names[row] for row in rows], judged.relevant[query], 10)
        for query, rows in zip(judged.queries, found, strict=True)
    ]


def _trace(queries: int, count: int) -> NDArray[np.intp]:
    """Which query is asked when: four of five by a Zipf law of exponent 1 over half of them, the rest in one pass."""
    generator = np.random.default_rng(1)
    order = generator.permutation(queries)
    popular, rest = order[: queries // 2], order[queries // 2 :]
    weights = 1 / np.arange(1, len(popular) + 1)
    trace = popular[generator.choice(len(popular), count, p=weights / weights.sum())]
    once = np.arange(0, count, 5)
    trace[once] = np.resize(rest, len(once))
    return trace


def _hit_rates(index: TieredIndex, queries: Vectors, trace: NDArray[np.intp]) -> dict[str, float]:
    """The part of the results that was held when they came, for LRU-2 as the index has it, and for plain LRU."""
    capacity = int(index.hot_share * len(index))
    results = {int(query): index.search(queries[query], 10)[0] for query in np.unique(trace)}
    history, lru = AccessHistory(), OrderedDict[int, None]()
    ours = theirs = total = 0
    for query in trace:
        keys = results[int(query)]
        total += len(keys)
        ours += int(np.count_nonzero(history.slots(keys) >= 0))
        if history.record(keys):
            history.settle(capacity)
        for key in keys.tolist():
            theirs += key in lru
            lru[key] = None
            lru.move_to_end(key)
            if len(lru) > capacity:
                lru.popitem(last=False)
    for query in trace:
        index.search(queries[query], 10)
    index.reads = index.hits = 0
    for query in trace[:500]:
        index.search(queries[query], 10)
    return {"LRU-2": ours / total, "LRU": theirs / total, "of the vectors read": index.hits / index.reads}


def _latency(searches: dict[str, Search], base: str, queries: Vectors, k: int, rounds: int) -> dict[str, float]:
    """The median over the rounds of each one's time, in the base's; each round has another query and order."""
    times: dict[str, list[float]] = {name: [] for name in searches}
    names = list(searches)
    for turn in range(rounds + 5):
        query = queries[turn % len(queries)]
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            # Each is asked four times and the best counts: what it needs is as near as when it serves alone, and a
            # search during which another process had the core is left out.
            best = float("inf")
            for _ in range(4):
                started = time.perf_counter()
                searches[name](query, k)
                best = min(best, time.perf_counter() - started)
            times[name].append(best)
    medians = {name: float(np.median(values[5:])) for name, values in times.items()}
    return {name: median / medians[base] for name, median in medians.items()}
