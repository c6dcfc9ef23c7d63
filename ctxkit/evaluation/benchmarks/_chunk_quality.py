"""Chroma's chunking evaluation: what a retriever finds in the chunks, ours and those of peers, at equal mean sizes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctxkit.chunking import RecursiveChunker, SemanticGraphChunker, SentenceChunker
from ctxkit.documents import Chunk, Document, Span
from ctxkit.embedding import InContext
from ctxkit.evaluation.benchmarks._chunk_retrieval import FETCHED, found
from ctxkit.evaluation.benchmarks._frameworks import ask
from ctxkit.evaluation.benchmarks._omega import precision_omega, trimmed
from ctxkit.evaluation.benchmarks._vectors import Kept
from ctxkit.evaluation.bootstrap import paired_bootstrap
from ctxkit.evaluation.datasets import RetrievalSet
from ctxkit.evaluation.report import Bar, Report
from ctxkit.protocols import Chunker, Embedder
from ctxkit.retrieval.postings import BM25, InvertedIndex
from ctxkit.retrieval.terms import Analyzer
from ctxkit.storage import index_text
from ctxkit.tokens import get_counter

__all__ = ["CHOSEN", "PEERS", "SETTINGS", "System", "compare", "graph", "quality", "score", "theirs"]

ENCODING = "cl100k_base"
SETTINGS = ((55, 110), (90, 180), (130, 240), (200, 320), (300, 420), (400, 520))
"""Preferred and most tokens of our chunks: mean sizes from about 60 to over 300, so that no peer's is beyond them."""
CHOSEN = (90, 180)
"""The setting whose ablations are measured, and that the bars are about."""
FEW_SETTINGS = (CHOSEN, (130, 240), (200, 320), (300, 420))
FEW_SIZES = (200,)
"""What a short run has of ours and of peers."""
CONTROL = ("chroma_recursive", 200)
"""The peer whose chunks get vectors in context, too: what of the gain is the vectors'."""
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
MEASURES = ("recall", "precision", "iou", "omega")
IN_CONTEXT = ("recall_in_context", "precision_in_context", "iou_in_context")
"""The same with vectors of `InContext`, which costs another embedding of the text."""
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
    chunks: Sequence[tuple[Document, Sequence[Chunk]]] = ()


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
    full: bool = True,
) -> None:
    """Add the rows and the bars.

    Args:
        embedder: without one, Precision_Omega and BM25 alone, which need none.
        full: all sizes and all peers, each embedded; else the chosen size, and peers at one size, not embedded.
    """
    documents = questions.documents
    chunker = SemanticGraphChunker(counter=get_counter(ENCODING))
    ours = [
        graph(replace(chunker, preferred_tokens=low, max_tokens=high), documents, "graph")
        for low, high in (SETTINGS if full else FEW_SETTINGS)
    ]
    scored = []
    for system in ours:
        chosen = system.setting == "{}/{}".format(*CHOSEN)
        asked = embedder if full or chosen else None
        scored.append(score(report, system, questions, asked, in_context=chosen))
    own = [row for row in report.rows if row["measure"] == "quality" and row["chunker"] == "graph"]
    best = next(row for row in own if row["setting"] == "{}/{}".format(*CHOSEN))
    over = max(row["longest"] - int(row["setting"].split("/")[1]) for row in own)
    report.bars.append(Bar.at_most("tokens_over_the_maximum", over, 0))
    report.bars.append(Bar.at_least("omega", best["omega"], 47.0))
    if embedder is not None:
        report.bars.append(Bar.at_least("iou", best["iou_in_context"], 9.5))
        report.bars.append(Bar.at_least("recall", best["recall_in_context"], 79.0))
    at_chosen = replace(chunker, preferred_tokens=CHOSEN[0], max_tokens=CHOSEN[1])
    for name, changes in ABLATIONS.items():
        score(report, graph(replace(at_chosen, **changes), documents, name), questions, embedder if full else None)
    peers = PEERS if full else tuple(peer for peer in PEERS if peer[1] in FEW_SIZES)
    for name, make in OWN.items():
        for size in sorted({size for _, size in peers}):
            plain = _own(make(max_tokens=size, counter=get_counter(ENCODING)), documents, name, str(size))
            compare(report, scored, score(report, plain, questions, None))
    answer = ask("split", texts=[document.text for document in documents], settings=[list(peer) for peer in peers])
    if answer is None:
        report.data += "; peers left out: run `make peers`"
        return
    for (name, size), cuts in zip(peers, answer, strict=True):
        system = theirs(name, str(size), documents, cuts)
        control = full and (name, size) == CONTROL
        asked = embedder if full else None
        compare(report, scored, score(report, system, questions, asked, in_context=control))


def theirs(name: str, setting: str, documents: Sequence[Document], cuts: Mapping[str, Any]) -> System:
    """A peer's chunks, from what its worker answered."""
    spans = {document.id: [Span(*span) for span in cut] for document, cut in zip(documents, cuts["spans"], strict=True)}
    texts = {document.id: [span.slice(document.text) for span in spans[document.id]] for document in documents}
    chunks = [(document, [Chunk.of(document, span, 0) for span in spans[document.id]]) for document in documents]
    return System(name, setting, spans, texts, cuts["seconds"], chunks)


ABLATIONS: dict[str, dict[str, Any]] = {
    "graph, no context line": {"context_tokens": 0},
    "graph, no entities": {"extractor": None},
    "graph, no structure": {"structure_weight": 0.0},
    "graph, no words": {"word_weight": 0.0},
    "graph, sizes alone": {"extractor": None, "structure_weight": 0.0, "word_weight": 0.0, "context_tokens": 0},
}


def graph(chunker: SemanticGraphChunker, documents: Sequence[Document], name: str) -> System:
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
    return System(name, setting, spans, texts, seconds, list(zip(documents, chunked.values(), strict=True)))


def score(
    report: Report, system: System, questions: RetrievalSet, embedder: Embedder | None, *, in_context: bool = False
) -> Scores:
    text_of = {document.id: document.text for document in questions.documents}
    bare = {id_: [trimmed(text_of[id_], span) for span in spans] for id_, spans in system.spans.items()}
    count = get_counter(ENCODING).count
    tokens = [count(span.slice(text_of[id_])) for id_, spans in system.spans.items() for span in spans]
    wanted = list(questions.excerpts.values())
    strict = {"omega": _column(lambda question: precision_omega(bare, wanted[question]), len(wanted))}
    published = {
        "omega": _column(lambda question: precision_omega(system.spans, wanted[question], touching=True), len(wanted))
    }
    by_words = _by_words(system, questions)
    strict.update(zip(BY_WORDS, _found(bare, by_words, wanted)[::2], strict=True))
    if embedder is not None:
        kept = Kept(embedder)
        fetched = _fetched(kept.embed([text for texts in system.texts.values() for text in texts]), questions, kept)
        strict.update(zip(MEASURES, _found(bare, fetched, wanted), strict=False))
        published.update(zip(MEASURES, _found(system.spans, fetched, wanted), strict=False))
        if in_context:
            fetched = _fetched(InContext(embedder=kept).embed_chunks(system.chunks), questions, kept)
            strict.update(zip(IN_CONTEXT, _found(bare, fetched, wanted), strict=True))
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
    for name in (*IN_CONTEXT, *BY_WORDS):
        if name in strict:
            row[name] = round(100 * float(strict[name].mean()), 2)
    report.rows.append(row)
    if in_context and "recall" in strict:
        change = {"measure": "difference", "chunker": f"{system.name}, in context - plain", "setting": system.setting}
        for name, plain in zip(IN_CONTEXT, MEASURES, strict=False):
            change[plain] = _interval(strict[name], strict[plain])
        report.rows.append(change)
    return Scores(system.name, statistics.fmean(tokens), strict)


def _column(measure: Callable[[int], float], size: int) -> NDArray[np.float64]:
    return np.array([measure(number) for number in range(size)])


def _fetched(there: NDArray[np.float32], questions: RetrievalSet, embedder: Embedder) -> NDArray[np.int64]:
    """The five nearest chunks of all documents for each question, by exact cosine."""
    asked = embedder.embed(list(questions.queries.values()))
    nearest: NDArray[np.int64] = np.argsort(-(asked @ there.T), axis=1, kind="stable")[:, :FETCHED]
    return nearest


def _found(
    spans: Mapping[str, Sequence[Span]],
    fetched: Iterable[Iterable[int]],
    wanted: Sequence[Mapping[str, Sequence[Span]]],
) -> NDArray[np.float64]:
    """Recall, precision and IoU, a row each, a number a question."""
    flat = [(id_, span) for id_ in spans for span in spans[id_]]
    rows = [found([flat[at] for at in row], wanted[number]) for number, row in enumerate(fetched)]
    return np.array(rows, dtype=np.float64).T


def _by_words(system: System, questions: RetrievalSet) -> list[list[int]]:
    """The five best chunks of all documents for each question, by BM25."""
    analyzer, index = Analyzer(), InvertedIndex()
    texts = [analyzer.terms(text) for texts in system.texts.values() for text in texts]
    index.add(range(len(texts)), texts)
    return [
        index.search(analyzer.query_terms(text), FETCHED, BM25())[0].tolist() for text in questions.queries.values()
    ]


def compare(report: Report, ours: Sequence[Scores], peer: Scores) -> None:
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
        row[name] = _interval(here, peer.strict[name])
        if peer.name in OWN:
            continue
        if name in ("iou", "omega", "iou_bm25"):
            report.bars.append(Bar.at_least(f"{name}_above_{key}", difference.low, 0.0))
        elif name in ("recall", "recall_bm25"):
            report.bars.append(Bar.at_least(f"{name}_not_below_{key}", difference.high, 0.0))
    report.rows.append(row)


def _interval(ours: NDArray[np.float64], others: NDArray[np.float64]) -> str:
    difference = paired_bootstrap(100 * ours, 100 * others)
    return f"{difference.mean:+.2f} ({difference.low:+.2f} to {difference.high:+.2f})"
