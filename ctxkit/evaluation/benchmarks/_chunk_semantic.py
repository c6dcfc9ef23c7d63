"""Chroma's questions on three short corpora, beside chunkers that embed to cut: three times the text for each."""

from __future__ import annotations

from dataclasses import replace

from ctxkit.chunking import SemanticGraphChunker
from ctxkit.evaluation.benchmarks._chunk_quality import ENCODING, SETTINGS, compare, graph, score, theirs
from ctxkit.evaluation.benchmarks._frameworks import ask
from ctxkit.evaluation.datasets import RetrievalSet
from ctxkit.evaluation.report import Report
from ctxkit.protocols import Embedder
from ctxkit.tokens import get_counter

__all__ = ["semantic_peers"]

CORPORA = ("chatlogs", "state_of_the_union", "wikitexts")
PEERS = (
    *(("langchain", percentile) for percentile in (60, 75, 85)),
    *(("llamaindex", percentile) for percentile in (60, 75, 85)),
    *(("chonkie", most) for most in (100, 200, 320)),
)
"""Names, and the percentile of distances above which they cut or, of Chonkie's, the most tokens."""


def semantic_peers(report: Report, questions: RetrievalSet, embedder: Embedder) -> None:
    """Add the rows: every system over the same 276 questions, and ours at equal mean size less each peer's."""
    documents = tuple(document for document in questions.documents if document.id in CORPORA)
    asked = [number for number, excerpts in questions.excerpts.items() if set(excerpts) <= set(CORPORA)]
    few = RetrievalSet(
        "chunking_eval",
        documents,
        {number: questions.queries[number] for number in asked},
        {number: questions.relevant[number] for number in asked},
        {number: questions.excerpts[number] for number in asked},
    )
    answer = ask("semantic_split", texts=[document.text for document in documents], settings=PEERS)
    if answer is None:
        return
    chunker = SemanticGraphChunker(counter=get_counter(ENCODING))
    made = [replace(chunker, preferred_tokens=low, max_tokens=high) for low, high in SETTINGS]
    found = Report(report.name, "")
    ours = [score(found, graph(each, documents, "graph"), few, embedder) for each in made]
    for (name, amount), cuts in zip(PEERS, answer, strict=True):
        system = theirs(f"{name}_semantic", str(amount), documents, cuts)
        compare(found, ours, score(found, system, few, embedder))
    report.rows += [{**row, "measure": f"{row['measure']}, three corpora"} for row in found.rows]
    report.bars += found.bars
