"""Retrieval: words, meaning and five ways to fuse them, on eight sets in English and Chinese."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctxkit.chunking import RecursiveChunker
from ctxkit.documents import Candidate, Chunk, Document, Query, Span
from ctxkit.embedding import minilm
from ctxkit.evaluation import datasets
from ctxkit.evaluation.datasets import RetrievalSet
from ctxkit.evaluation.metrics import mean, ndcg, recall, span_recall
from ctxkit.evaluation.report import Bar, Report
from ctxkit.protocols import Embedder, Retriever
from ctxkit.retrieval import Dense, Hybrid, Lexical, max_normalised, min_max, reciprocal_rank, z_score
from ctxkit.storage import Store, index_text
from ctxkit.tokens import get_counter

__all__ = ["MEASURES", "SYSTEMS", "fill", "measure", "run"]

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
    "the shipped Hybrid": lambda store, embedder: Hybrid(store, embedder),
}

_SHIPPED = "the shipped Hybrid"
_TOKENS = 1_280


def run(
    data: Path,
    *,
    sets: str | Sequence[str] = tuple(MEASURES),
    embedder: Embedder | None = None,
    folder: str | Path | None = None,
    limit: int | None = 300,
) -> Report:
    """Every system on every set through the public classes; about ten minutes on two cores, nearly all of it MiniLM.

    Args:
        sets: names, as a list or with commas.
        embedder: default MiniLM.
        folder: keep the stores there and use them again; default a temporary folder.
        limit: of the queries of each set, None for all; 300 are all that SciFact has.
    """
    names = [name.strip() for name in sets.split(",")] if isinstance(sets, str) else list(sets)
    embedder = embedder or minilm()
    rows: dict[str, dict[str, Any]] = {name: {"system": name} for name in SYSTEMS}
    sizes = []
    with ExitStack() as stack:
        kept = Path(folder) if folder is not None else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name in names:
            judged = datasets.load(data, name)
            judged = replace(judged, queries=dict(islice(judged.queries.items(), limit)))
            store = stack.enter_context(Store.open(f"sqlite:///{kept / f'{name}.db'}"))
            fill(store, judged, embedder)
            remembering = _Remembering(embedder, list(judged.queries.values()))
            for system, make in SYSTEMS.items():
                rows[system][name] = round(measure(make(store, remembering), judged), 4)
            sizes.append(f"{name} ({len(judged.documents):,} documents, {len(judged.queries):,} queries)")
    for row in rows.values():
        row["mean"] = round(mean(row[name] for name in names), 4)
    report = Report("retrieval", "; ".join(sizes), list(rows.values()))
    if "scifact" in names and (limit is None or limit >= 300):
        report.bars.append(Bar.at_least("scifact_ndcg10", rows[_SHIPPED]["scifact"], 0.735))
    return report


def fill(store: Store, judged: RetrievalSet, embedder: Embedder) -> None:
    """Store the documents of a set with their vectors; those that are there already stay."""
    known = store.documents.states([document.id for document in judged.documents])
    new = [document for document in judged.documents if document.id not in known]
    chunks = [_chunks(document, whole=not judged.excerpts) for document in new]
    texts = [
        index_text(document.title, chunk.heading_path, chunk.text)
        for document, pieces in zip(new, chunks, strict=True)
        for chunk in pieces
    ]
    vectors = embedder.embed(texts)
    position = 0
    for document, pieces in zip(new, chunks, strict=True):
        own = vectors[position : position + len(pieces)]
        position += len(pieces)
        store.documents.put(document, pieces, recipe="benchmark", fingerprint=embedder.fingerprint, vectors=own)


def measure(retriever: Retriever, judged: RetrievalSet) -> float:
    """The set's measure, the mean over its queries."""
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
    return mean(values)


class _Remembering:
    """An embedder that has embedded the queries once, so that each system does not do it again."""

    def __init__(self, embedder: Embedder, texts: Sequence[str]) -> None:
        self._embedder = embedder
        self._vectors = dict(zip(texts, embedder.embed(texts), strict=True))
        self.dimension, self.fingerprint = embedder.dimension, embedder.fingerprint

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.stack([self._vectors[text] for text in texts])


def _fused(store: Store, embedder: Embedder, fusion: Any) -> Retriever:
    return Hybrid(store, embedder, fusion=fusion, join=False)


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
