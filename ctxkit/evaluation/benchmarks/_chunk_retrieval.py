"""Full retrieval on Chroma's questions: what the spans hold that are kept at last, stage after stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctxkit.chunking import SemanticGraphChunker
from ctxkit.compression import SentenceCompressor
from ctxkit.documents import Candidate, Document, Query, Span, intersect_spans, total_length
from ctxkit.embedding import InContext, embed_chunks
from ctxkit.evaluation.benchmarks._omega import trimmed
from ctxkit.evaluation.benchmarks._vectors import Kept
from ctxkit.evaluation.bootstrap import paired_bootstrap
from ctxkit.evaluation.datasets import RetrievalSet
from ctxkit.evaluation.report import Bar, Report
from ctxkit.graph.building import document_graph
from ctxkit.protocols import Embedder, Stage
from ctxkit.reranking import Threshold
from ctxkit.retrieval import Hybrid
from ctxkit.storage import Store
from ctxkit.tokens import get_counter

__all__ = ["FETCHED", "found", "full_retrieval"]

_COUNTER = "cl100k_base"
_DENSE: Mapping[str, float] = {"dense": 1.0}
_PLAIN: Mapping[str, float] = {"dense": 1.0, "lexical": 1.0}
_GRAPH: Mapping[str, float] = {**_PLAIN, "graph": 3.0}

FETCHED = 5


@dataclass(frozen=True, slots=True)
class _System:
    """A retriever's signals, how many candidates it gives, and the stages behind it."""

    weights: Mapping[str, float]
    k: int = FETCHED
    stages: tuple[Stage, ...] = field(default=())


_CUT = Threshold(minimum=0.0, relative=0.7)
_COMPRESSED = SentenceCompressor(target=800, counter=get_counter(_COUNTER))
_BEFORE = "meaning, first 5"
_CHOSEN = "meaning + words + graph, 20 cut at .4, compressed to 800"
_SYSTEMS: Mapping[str, _System] = {
    _BEFORE: _System(_DENSE),
    "meaning + words, first 5": _System(_PLAIN),
    "meaning + words + graph, first 5": _System(_GRAPH),
    "meaning + words, first 3": _System(_PLAIN, 3),
    "meaning + words, first 10": _System(_PLAIN, 10),
    "meaning + words, 10 compressed to 300": _System(
        _PLAIN, 10, (SentenceCompressor(target=300, counter=get_counter(_COUNTER)),)
    ),
    "meaning + words, 20 cut at .6": _System(_PLAIN, 20, (Threshold(minimum=0.0, relative=0.6),)),
    "meaning + words, 20 cut at .7": _System(_PLAIN, 20, (_CUT,)),
    "meaning + words, 20 cut at .8": _System(_PLAIN, 20, (Threshold(minimum=0.0, relative=0.8),)),
    "meaning + words + graph, 20 cut at .4": _System(_GRAPH, 20, (Threshold(minimum=0.0, relative=0.4),)),
    "meaning + words, 20 cut at .7, compressed to 800": _System(_PLAIN, 20, (_CUT, _COMPRESSED)),
    _CHOSEN: _System(_GRAPH, 20, (Threshold(minimum=0.0, relative=0.4), _COMPRESSED)),
}


_IN_CONTEXT = (_BEFORE, "meaning + words, first 5", "meaning + words + graph, first 5", _CHOSEN)
"""What is measured with vectors of `InContext`, too."""


def full_retrieval(
    report: Report, questions: RetrievalSet, embedder: Embedder, chunker: SemanticGraphChunker, *, full: bool = True
) -> None:
    """Add a row for each system, the paired difference of the chosen one, and its bars: recall 88 at IoU 14.

    Args:
        full: with the systems whose vectors are made in context, too.
    """
    kept = Kept(embedder)
    scores = _scores(report, questions, kept, chunker, _SYSTEMS)
    if full:
        few = {name: _SYSTEMS[name] for name in _IN_CONTEXT}
        _scores(report, questions, InContext(embedder=kept), chunker, few, note="in context: ")
    row: dict[str, Any] = {"measure": "difference", "chunker": f"{_CHOSEN} - {_BEFORE}"}
    for at, name in ((0, "recall"), (2, "iou")):
        change = paired_bootstrap(scores[_CHOSEN][:, at], scores[_BEFORE][:, at])
        row[name] = f"{change.mean:+.2f} ({change.low:+.2f} to {change.high:+.2f})"
        report.bars.append(
            Bar.at_least(f"full_retrieval_{name}", float(scores[_CHOSEN][:, at].mean()), {0: 88.0, 2: 14.0}[at])
        )
    report.rows.append(row)


def _scores(
    report: Report,
    questions: RetrievalSet,
    embedder: Embedder,
    chunker: SemanticGraphChunker,
    systems: Mapping[str, _System],
    *,
    note: str = "",
) -> dict[str, NDArray[np.float64]]:
    """Recall, precision and IoU of each system in percent, a row a question; adds the means to the report."""
    asked = _Known(embedder, list(questions.queries.values()))
    scores: dict[str, NDArray[np.float64]] = {}
    with Store.open("sqlite://") as store:
        fill(store, questions.documents, embedder, chunker)
        text_of = {document.id: document.text for document in questions.documents}
        retrieved: dict[tuple[str, ...], list[list[Candidate]]] = {}
        for name, system in systems.items():
            key = tuple(system.weights)
            if key not in retrieved:
                hybrid = Hybrid(store, asked, weights=system.weights)
                retrieved[key] = [hybrid.retrieve(Query(text), 20) for text in questions.queries.values()]
            rows, tokens = [], []
            for (number, text), candidates in zip(questions.queries.items(), retrieved[key], strict=True):
                kept: Sequence[Candidate] = candidates[: system.k]
                for stage in system.stages:
                    kept = stage(Query(text), kept)
                spans = [
                    (candidate.chunk.document_id, trimmed(text_of[candidate.chunk.document_id], span))
                    for candidate in kept
                    for span in candidate.spans
                ]
                rows.append(found(spans, questions.excerpts[number]))
                tokens.append(sum(chunker.counter.count(span.slice(text_of[id_])) for id_, span in spans))
            scores[name] = 100 * np.array(rows)
            row: dict[str, Any] = {
                "measure": "full retrieval",
                "chunker": note + name,
                "setting": f"{chunker.preferred_tokens}/{chunker.max_tokens}",
                "mean_tokens": round(float(np.mean(tokens)), 1),
            }
            row.update(zip(("recall", "precision", "iou"), scores[name].mean(axis=0).round(2).tolist(), strict=True))
            report.rows.append(row)
    return scores


def fill(store: Store, documents: Sequence[Document], embedder: Embedder, chunker: SemanticGraphChunker) -> None:
    """Store documents as an ingest does."""
    for document in documents:
        pieces = list(chunker.chunk(document))
        store.documents.put(
            document,
            pieces,
            recipe="benchmark",
            fingerprint=embedder.fingerprint,
            vectors=embed_chunks(embedder, [(document, pieces)]),
            graph=document_graph(document.text, pieces),
        )


def found(fetched: Sequence[tuple[str, Span]], excerpts: Mapping[str, Sequence[Span]]) -> tuple[float, float, float]:
    """Recall, precision and IoU in characters."""
    wanted = hit = 0
    size = sum(span.length for _, span in fetched)
    for document, spans in excerpts.items():
        wanted += total_length(spans)
        hit += total_length(intersect_spans([span for id_, span in fetched if id_ == document], spans))
    return hit / wanted, hit / size if size else 0.0, hit / (size + wanted - hit)


class _Known:
    """An embedder that looks the questions up."""

    def __init__(self, embedder: Embedder, texts: Sequence[str]) -> None:
        self._vectors = dict(zip(texts, embedder.embed(texts), strict=True))
        self.dimension, self.fingerprint = embedder.dimension, embedder.fingerprint

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.stack([self._vectors[text] for text in texts])
