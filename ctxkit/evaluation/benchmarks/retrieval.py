"""Retrieval: words, meaning, ways to fuse them, and the graph, on eight sets in English and Chinese and on LoCoMo."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from ctxkit.chunking import RecursiveChunker
from ctxkit.documents import Candidate, Chunk, Document, Query, Span
from ctxkit.embedding import minilm
from ctxkit.evaluation import datasets
from ctxkit.evaluation.benchmarks import _latency, _locomo
from ctxkit.evaluation.benchmarks._filling import Remembering, store_documents
from ctxkit.evaluation.benchmarks._vectors import Kept
from ctxkit.evaluation.bootstrap import paired_bootstrap
from ctxkit.evaluation.datasets import RetrievalSet
from ctxkit.evaluation.metrics import mean, ndcg, recall, span_recall
from ctxkit.evaluation.report import Bar, Report
from ctxkit.protocols import Embedder, Retriever, Stage
from ctxkit.retrieval import (
    Dense,
    Graph,
    Hybrid,
    Lexical,
    Neighbourhood,
    max_normalised,
    min_max,
    reciprocal_rank,
    z_score,
)
from ctxkit.storage import Store
from ctxkit.tokens import get_counter

__all__ = ["MEASURES", "SYSTEMS", "fill", "measure", "measured", "run"]

MEASURES: Mapping[str, str] = {
    "scifact": "nDCG@10",
    "chunking_eval": "excerpt recall in 1,280 tokens",
    "musique": "support recall@5",
    "hotpotqa": "support recall@5",
    "2wiki": "support recall@5",
    "xquad_en": "nDCG@10",
    "xquad_zh": "nDCG@10",
    "cmrc2018": "nDCG@10",
}
"""What is measured on each set. Documents are single chunks, but in `chunking_eval`, where chunks have 256 tokens."""

Make = Callable[[Store, Embedder], Retriever]
SYSTEMS: Mapping[str, Make] = {
    "BM25": lambda store, embedder: Lexical(store),
    "MiniLM": lambda store, embedder: Dense(store, embedder),
    "reciprocal rank, constant 60": lambda store, embedder: _fused(store, embedder, reciprocal_rank),
    "reciprocal rank, constant 10": lambda store, embedder: _fused(
        store, embedder, partial(reciprocal_rank, constant=10.0)
    ),
    "sum of min-max": lambda store, embedder: _fused(store, embedder, min_max),
    "sum of z-scores": lambda store, embedder: _fused(store, embedder, z_score),
    "sum of max-normalised": lambda store, embedder: _fused(store, embedder, max_normalised),
    "Hybrid without graph": lambda store, embedder: Hybrid(store, embedder, weights=_PLAIN),
    "graph, names in the question alone": lambda store, embedder: Hybrid(store, embedder, graph=Graph(store, hits=0)),
    "graph, hits alone": lambda store, embedder: Hybrid(
        store, embedder, graph=Graph(store, names_weight=0.0, subject=0.0)
    ),
    "the shipped Hybrid": lambda store, embedder: Hybrid(store, embedder),
    "with neighbourhood": lambda store, embedder: _Staged(Hybrid(store, embedder), Neighbourhood(store)),
}

_PLAIN: Mapping[str, float] = {"dense": 1.0, "lexical": 1.0}
_BEFORE = "Hybrid without graph"
_SHIPPED = "the shipped Hybrid"
_TOKENS = 1_280
FEW_SETS = ("musique", "hotpotqa", "2wiki")
FEW_SYSTEMS = ("BM25", "MiniLM", _BEFORE, _SHIPPED)
"""What a short run measures."""


def run(
    data: Path,
    *,
    full: bool = False,
    sets: str | Sequence[str] | None = None,
    embedder: Embedder | None = None,
    folder: str | Path | None = None,
    limit: int | None = 300,
    systems: str | Sequence[str] | None = None,
    locomo: bool | None = None,
    latency: bool | None = None,
) -> Report:
    """Systems on sets through the public classes. Vectors stay in the cache folder.

    A short run has the three multi-hop sets and the systems that its bars are about. A full run is half an hour on two
    cores, half of it MiniLM.

    Args:
        full: every set, every system, LoCoMo and latency, unless they are named.
        sets: names, as a list or with commas.
        embedder: default MiniLM.
        folder: keep the stores there and use them again; default a temporary folder.
        limit: of the queries of each set, None for all; 300 are all that SciFact has.
        systems: names from `SYSTEMS`, as a list or with semicolons.
        locomo: measure the turns found in LoCoMo's conversations, too.
        latency: measure the time of a question with and without the graph, too.
    """
    if sets is None:
        sets = tuple(MEASURES) if full else FEW_SETS
    if systems is None:
        systems = tuple(SYSTEMS) if full else FEW_SYSTEMS
    names = [name.strip() for name in sets.split(",")] if isinstance(sets, str) else list(sets)
    embedder = Kept(embedder or minilm())
    chosen = [name.strip() for name in systems.split(";")] if isinstance(systems, str) else list(systems)
    rows: dict[str, dict[str, Any]] = {name: {"system": name} for name in chosen}
    values: dict[tuple[str, str], list[float]] = {}
    report = Report("retrieval", "")
    sizes = []
    with ExitStack() as stack:
        kept = Path(folder) if folder is not None else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name in names:
            judged = datasets.load(data, name)
            judged = replace(judged, queries=dict(islice(judged.queries.items(), limit)))
            store = stack.enter_context(Store.open(f"sqlite:///{kept / f'{name}.db'}"))
            fill(store, judged, embedder)
            remembering = Remembering(embedder, list(judged.queries.values()))
            for system in chosen:
                values[system, name] = measured(SYSTEMS[system](store, remembering), judged)
                rows[system][name] = round(mean(values[system, name]), 4)
            sizes.append(f"{name} ({len(judged.documents):,} documents, {len(judged.queries):,} queries)")
        for row in rows.values():
            row["mean"] = round(mean(row[name] for name in names), 4)
        report.rows += rows.values()
        whole = limit is None or limit >= 300
        if "scifact" in names and whole and _SHIPPED in chosen:
            report.bars.append(Bar.at_least("scifact_ndcg10", rows[_SHIPPED]["scifact"], 0.735))
        if {_SHIPPED, _BEFORE} <= set(chosen):
            _compare(report, names, values)
        if full if locomo is None else locomo:
            _locomo.measure(report, data, embedder, folder=kept)
            sizes.append("LoCoMo (7 conversations, 1,340 questions)")
        if full if latency is None else latency:
            _latency.measure(report, data)
    report.data = "; ".join(sizes)
    return report


def _compare(report: Report, names: Sequence[str], values: Mapping[tuple[str, str], Sequence[float]]) -> None:
    """What the graph changes on each set, with the interval of a paired bootstrap over the questions."""
    for name in names:
        gain = paired_bootstrap(values[_SHIPPED, name], values[_BEFORE, name])
        report.rows.append(
            {
                "system": "what the graph changes",
                "set": name,
                "gain": round(gain.mean, 4),
                "low": round(gain.low, 4),
                "high": round(gain.high, 4),
            }
        )
        if name in ("hotpotqa", "2wiki"):
            # A loss is shown when the whole interval lies below 0.
            report.bars.append(Bar.at_least(f"{name}_gain_high", gain.high, 0.0))
    if "musique" in names:
        report.bars.append(Bar.at_least("musique_support_recall5", mean(values[_SHIPPED, "musique"]), 0.66))


def fill(store: Store, judged: RetrievalSet, embedder: Embedder) -> None:
    """Store the documents of a set with their vectors; those that are there already stay."""
    store_documents(
        store, [(document, _chunks(document, whole=not judged.excerpts)) for document in judged.documents], embedder
    )


def measure(retriever: Retriever, judged: RetrievalSet) -> float:
    """The set's measure, the mean over its queries."""
    return mean(measured(retriever, judged))


def measured(retriever: Retriever, judged: RetrievalSet) -> list[float]:
    """The set's measure of each query."""
    kind = MEASURES[judged.name]
    values = []
    for identifier, text in judged.queries.items():
        found = retriever.retrieve(Query(text), 20 if judged.excerpts else 10)
        if judged.excerpts:
            values.append(span_recall(_within(found, _TOKENS), judged.excerpts[identifier]))
            continue
        ranking = list(dict.fromkeys(candidate.chunk.document_id for candidate in found))
        relevant = judged.relevant[identifier]
        values.append(ndcg(ranking, relevant, 10) if kind == "nDCG@10" else recall(ranking, relevant, 5))
    return values


@dataclass
class _Staged:
    """A retriever with a stage behind it."""

    retriever: Retriever
    stage: Stage

    def retrieve(self, query: Query, k: int) -> list[Candidate]:
        return self.stage(query, self.retriever.retrieve(query, k))[:k]


def _fused(store: Store, embedder: Embedder, fusion: Any) -> Retriever:
    return Hybrid(store, embedder, fusion=fusion, weights=_PLAIN, join=False)


def _chunks(document: Document, *, whole: bool) -> list[Chunk]:
    if whole:
        return [Chunk.of(document, Span(0, len(document.text)), get_counter().count(document.text))]
    return list(RecursiveChunker(max_tokens=256).chunk(document))


def _within(found: Sequence[Candidate], tokens: int) -> dict[str, list[Span]]:
    """The spans of the first `tokens` tokens; of the candidate on the edge, its beginning."""
    spans: dict[str, list[Span]] = {}
    for candidate in found:
        chunk = candidate.chunk
        part = min(1.0, tokens / max(1, chunk.token_count))
        end = chunk.span.start + int(part * chunk.span.length)
        spans.setdefault(chunk.document_id, []).append(Span(chunk.span.start, end))
        tokens -= chunk.token_count
        if tokens <= 0:
            break
    return spans
