"""Chroma's chunking evaluation: what a retriever finds in the chunks, ours and those of peers, at equal mean sizes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctxkit.chunking import RecursiveChunker, SemanticGraphChunker, SentenceChunker
from ctxkit.documents import Chunk, Document, Span
from ctxkit.evaluation.benchmarks._chunk_retrieval import FETCHED, found
from ctxkit.evaluation.benchmarks._frameworks import ask
from ctxkit.evaluation.benchmarks._omega import precision_omega, trimmed
from ctxkit.evaluation.benchmarks._vectors import vectors_of
from ctxkit.evaluation.bootstrap import paired_bootstrap
from ctxkit.evaluation.datasets import RetrievalSet
from ctxkit.evaluation.report import Bar, Report
from ctxkit.protocols import Chunker, Embedder
from ctxkit.retrieval.postings import BM25, InvertedIndex
from ctxkit.retrieval.terms import Analyzer
from ctxkit.storage import index_text
from ctxkit.tokens import get_counter

__all__ = ["PEERS", "SETTINGS", "quality"]

ENCODING = "cl100k_base"
SETTINGS = ((55, 110), (90, 180), (130, 240), (200, 320), (300, 420), (400, 520))
"""Preferred and most tokens of our chunks: mean sizes from about 60 to over 300, so that no peer's is beyond them."""
CHOSEN = (90, 180)
"""The setting whose ablations are measured."""
PEERS = tuple(
    (name, size)
    for size in (100, 200, 320)
    for name in (
        "chroma_recursive",
        "langchain_recursive",
        "fixed_tokens",
        "llamaindex_sentence",
        "chonkie_recursive",
        "chonkie_sentence",
    )
)
PEERS_RETRIEVED = (200,)
"""Sizes at which peers' chunks are embedded too: each costs two minutes of a processor."""
MEASURES = ("recall", "precision", "iou", "omega")
BY_WORDS = ("recall_bm25", "iou_bm25")
"""What BM25 finds in the chunks: without an embedder, so that every peer can be compared at every size."""
OWN = {"recursive": RecursiveChunker, "sentence": SentenceChunker}


@dataclass(frozen=True, slots=True)
class System:
    """Chunks by document: spans as cut, and what is embedded of each."""

    name: str
    setting: str
    spans: Mapping[str, Sequence[Span]]
    texts: Mapping[str, Sequence[str]]
    seconds: float


@dataclass(frozen=True, slots=True)
class Scores:
    """Measures of one system, a number a question: strict ranges and trimmed spans, and as published."""

    name: str
    mean_tokens: float
    strict: Mapping[str, NDArray[np.float64]]


def quality(
    report: Report,
    questions: RetrievalSet,
    embedder: Embedder | None,
    *,
    settings: Sequence[tuple[int, int]] = SETTINGS,
    peers: Sequence[tuple[str, int]] = PEERS,
    ablate: bool = False,
) -> None:
    """Add the rows and the bars.

    Args:
        embedder: without one, Precision_Omega alone, which needs none.
        settings: preferred and most tokens of our chunks, by growing size; `CHOSEN` among them.
        peers: names and sizes.
        ablate: whether every ablation and every peer is retrieved from, and not a few.
    """
    documents = questions.documents
    chunker = SemanticGraphChunker(counter=get_counter(ENCODING))
    ours = [
        _graph(replace(chunker, preferred_tokens=low, max_tokens=high), documents, "graph") for low, high in settings
    ]
    scored = [_score(report, system, questions, embedder) for system in ours]
    chosen = replace(chunker, preferred_tokens=CHOSEN[0], max_tokens=CHOSEN[1])
    for name, changes in ABLATIONS.items():
        asked = embedder if name in RETRIEVED or ablate else None
        _score(report, _graph(replace(chosen, **changes), documents, name), questions, asked)
    best = [row for row in report.rows if row["chunker"] == "graph" and row["setting"] == "{}/{}".format(*CHOSEN)]
    over = max(row["longest"] - int(row["setting"].split("/")[1]) for row in report.rows if row["chunker"] == "graph")
    report.bars.append(Bar.at_most("tokens_over_the_maximum", over, 0))
    report.bars.append(Bar.at_least("omega", best[0]["omega"], 47.0))
    if embedder is not None:
        report.bars.append(Bar.at_least("iou", best[0]["iou"], 9.5))
        report.bars.append(Bar.at_least("recall", best[0]["recall"], 79.0))
    for name, make in OWN.items():
        for size in sorted({size for _, size in peers}):
            own = _own(make(max_tokens=size, counter=get_counter(ENCODING)), documents, name, str(size))
            asked = embedder if size in PEERS_RETRIEVED or ablate else None
            _compare(report, scored, _score(report, own, questions, asked))
    answer = ask("split", texts=[document.text for document in documents], settings=[list(peer) for peer in peers])
    if answer is None:
        report.data += "; peers left out: run `make peers`"
        return
    for (name, size), cuts in zip(peers, answer, strict=True):
        spans = {
            document.id: [Span(*span) for span in cut] for document, cut in zip(documents, cuts["spans"], strict=True)
        }
        texts = {document.id: [span.slice(document.text) for span in spans[document.id]] for document in documents}
        asked = embedder if size in PEERS_RETRIEVED or ablate else None
        peer = _score(report, System(name, str(size), spans, texts, cuts["seconds"]), questions, asked)
        _compare(report, scored, peer)


ABLATIONS: dict[str, dict[str, Any]] = {
    "graph, no context line": {"context_tokens": 0},
    "graph, no entities": {"extractor": None},
    "graph, no structure": {"structure_weight": 0.0},
    "graph, no words": {"word_weight": 0.0},
    "graph, sizes alone": {"extractor": None, "structure_weight": 0.0, "word_weight": 0.0, "context_tokens": 0},
}

RETRIEVED = ("graph, no context line",)


def _graph(chunker: SemanticGraphChunker, documents: Sequence[Document], name: str) -> System:
    return _own(chunker, documents, name, f"{chunker.preferred_tokens}/{chunker.max_tokens}")


def _own(chunker: Chunker, documents: Sequence[Document], name: str, setting: str) -> System:
    spans, texts = {}, {}
    start = time.process_time()
    chunked: dict[str, list[Chunk]] = {document.id: list(chunker.chunk(document)) for document in documents}
    seconds = time.process_time() - start
    for document in documents:
        chunks = chunked[document.id]
        spans[document.id] = [chunk.span for chunk in chunks]
        texts[document.id] = [index_text("", (), chunk.text, chunk.context) for chunk in chunks]
    return System(name, setting, spans, texts, seconds)


def _score(report: Report, system: System, questions: RetrievalSet, embedder: Embedder | None) -> Scores:
    text_of = {document.id: document.text for document in questions.documents}
    bare = {id_: [trimmed(text_of[id_], span) for span in spans] for id_, spans in system.spans.items()}
    count = get_counter(ENCODING).count
    tokens = [count(span.slice(text_of[id_])) for id_, spans in system.spans.items() for span in spans]
    wanted = list(questions.excerpts.values())
    strict = {"omega": _column(lambda question: precision_omega(bare, wanted[question]), len(wanted))}
    published = {
        "omega": _column(lambda question: precision_omega(system.spans, wanted[question], touching=True), len(wanted))
    }
    flat = [(id_, span) for id_ in bare for span in bare[id_]]
    by_words = _by_words(system, questions)
    table = np.array([found([flat[at] for at in row], wanted[number]) for number, row in enumerate(by_words)])
    strict.update(zip(BY_WORDS, (table[:, 0], table[:, 2]), strict=True))
    if embedder is not None:
        fetched = _fetched(system, questions, embedder)
        for measures, spans_by_id in ((strict, bare), (published, system.spans)):
            flat = [(id_, span) for id_ in system.spans for span in spans_by_id[id_]]
            table = np.array([found([flat[at] for at in row], wanted[number]) for number, row in enumerate(fetched)])
            measures.update(zip(("recall", "precision", "iou"), table.T, strict=True))
    row: dict[str, Any] = {
        "measure": "quality",
        "chunker": system.name,
        "setting": system.setting,
        "chunks": len(tokens),
        "mean_tokens": round(statistics.fmean(tokens), 1),
        "longest": max(tokens),
        "seconds": round(system.seconds, 2),
    }
    for name in MEASURES:
        if name in strict:
            row[name] = round(100 * float(strict[name].mean()), 2)
            row[f"{name}_published"] = round(100 * float(published[name].mean()), 2)
    for name in BY_WORDS:
        row[name] = round(100 * float(strict[name].mean()), 2)
    report.rows.append(row)
    return Scores(system.name, statistics.fmean(tokens), strict)


def _column(measure: Callable[[int], float], size: int) -> NDArray[np.float64]:
    return np.array([measure(number) for number in range(size)])


def _fetched(system: System, questions: RetrievalSet, embedder: Embedder) -> NDArray[np.int64]:
    """The five nearest chunks of all documents for each question, by exact cosine."""
    asked = vectors_of(embedder, list(questions.queries.values()))
    there = vectors_of(embedder, [text for texts in system.texts.values() for text in texts])
    nearest: NDArray[np.int64] = np.argsort(-(asked @ there.T), axis=1, kind="stable")[:, :FETCHED]
    return nearest


def _by_words(system: System, questions: RetrievalSet) -> list[list[int]]:
    """The five best chunks of all documents for each question, by BM25."""
    analyzer, index = Analyzer(), InvertedIndex()
    texts = [analyzer.terms(text) for texts in system.texts.values() for text in texts]
    index.add(range(len(texts)), texts)
    return [
        index.search(analyzer.query_terms(text), FETCHED, BM25())[0].tolist() for text in questions.queries.values()
    ]


def _compare(report: Report, ours: Sequence[Scores], peer: Scores) -> None:
    """The paired difference at the peer's mean size, ours interpolated between our settings on a logarithmic scale."""
    sizes = [scores.mean_tokens for scores in ours]
    above = next((at for at, size in enumerate(sizes) if size >= peer.mean_tokens), len(sizes) - 1)
    low, high = ours[max(0, above - 1)], ours[above]
    part = 0.0
    if high.mean_tokens > low.mean_tokens:
        part = np.log(peer.mean_tokens / low.mean_tokens) / np.log(high.mean_tokens / low.mean_tokens)
    row: dict[str, Any] = {
        "measure": "difference",
        "chunker": f"graph - {peer.name}",
        "mean_tokens": round(peer.mean_tokens, 1),
    }
    for name in (*MEASURES, *BY_WORDS):
        if name not in peer.strict or name not in low.strict or name not in high.strict:
            continue
        here = (1 - part) * low.strict[name] + part * high.strict[name]
        key = f"{peer.name}_at_{peer.mean_tokens:.0f}"
        difference = paired_bootstrap(100 * here, 100 * peer.strict[name])
        row[name] = f"{difference.mean:+.2f} ({difference.low:+.2f} to {difference.high:+.2f})"
        if peer.name in OWN:
            continue
        if name in ("iou", "omega", "iou_bm25"):
            report.bars.append(Bar.at_least(f"{name}_above_{key}", difference.low, 0.0))
        elif name in ("recall", "recall_bm25"):
            report.bars.append(Bar.at_least(f"{name}_not_below_{key}", difference.high, 0.0))
    report.rows.append(row)
