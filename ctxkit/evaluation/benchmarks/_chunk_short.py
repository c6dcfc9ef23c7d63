"""Chroma's questions on three short corpora, beside all peers, those among them that embed to cut."""

from __future__ import annotations

from dataclasses import replace

from ctxkit.chunking import SemanticGraphChunker
from ctxkit.evaluation.benchmarks._chunk_quality import ENCODING, PEERS, SETTINGS, compare, graph, score, theirs
from ctxkit.evaluation.benchmarks._frameworks import ask
from ctxkit.evaluation.datasets import RetrievalSet
from ctxkit.evaluation.report import Report
from ctxkit.protocols import Embedder
from ctxkit.tokens import get_counter

__all__ = ["short_corpora"]

CORPORA = ("chatlogs", "state_of_the_union", "wikitexts")
SEMANTIC = (
    *(("langchain", percentile) for percentile in (60, 75, 85)),
    *(("llamaindex", percentile) for percentile in (60, 75, 85)),
    *(("chonkie", most) for most in (100, 200, 320)),
)
"""Names, and the percentile of distances above which they cut or, of Chonkie's, the most tokens."""


def short_corpora(report: Report, questions: RetrievalSet, embedder: Embedder) -> None:
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
    texts = [document.text for document in documents]
    plain = ask("split", texts=texts, settings=PEERS)
    if plain is None:
        return
    semantic = ask("semantic_split", texts=texts, settings=SEMANTIC)
    chunker = SemanticGraphChunker(counter=get_counter(ENCODING))
    made = [replace(chunker, preferred_tokens=low, max_tokens=high) for low, high in SETTINGS]
    found = Report(report.name, "")
    ours = [score(found, graph(each, documents, "graph"), few, embedder) for each in made]
    names = [*((name, size) for name, size in PEERS), *((f"{name}_semantic", amount) for name, amount in SEMANTIC)]
    for (name, amount), cuts in zip(names, [*plain, *semantic], strict=True):
        compare(found, ours, score(found, theirs(name, str(amount), documents, cuts), few, embedder))
    report.rows += [{**row, "measure": f"{row['measure']}, three corpora"} for row in found.rows]
    report.bars += [replace(bar, key=f"{bar.key}_three_corpora") for bar in found.bars]
