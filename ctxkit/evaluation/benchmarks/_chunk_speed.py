"""The graph chunker's time beside the semantic chunkers of LangChain and LlamaIndex, with the same MiniLM."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

from ctxkit.chunking import SemanticGraphChunker
from ctxkit.documents import Document
from ctxkit.evaluation.benchmarks._frameworks import ask
from ctxkit.evaluation.benchmarks._omega import precision_omega, trimmed
from ctxkit.evaluation.bootstrap import paired_bootstrap
from ctxkit.evaluation.datasets import RetrievalSet
from ctxkit.evaluation.report import Bar, Report
from ctxkit.protocols import Embedder
from ctxkit.registry import create
from ctxkit.tokens import get_counter

__all__ = ["entity_cost", "speed"]

ENCODING = "cl100k_base"
MOST = {"graph, MiniLM": 3.0, "graph, spaCy": 4.0, "graph, light": 50.0}


def speed(report: Report, document: Document, embedder: Embedder, *, characters: int = 24_000, rounds: int = 2) -> None:
    """Processor seconds, interleaved, over three places of a document; a ratio for each peer and each of ours."""
    length = characters // 3
    parts = [
        Document.from_text(document.text[place : place + length], source=document.source)
        for place in (len(document.text) * quarter // 4 for quarter in (1, 2, 3))
    ]
    chunker = SemanticGraphChunker(counter=get_counter(ENCODING), extractor=None)
    ours = {
        "graph, MiniLM": SemanticGraphChunker(counter=chunker.counter, extractor=None, embedder=embedder),
        "graph, spaCy": SemanticGraphChunker(counter=chunker.counter, extractor=create("extractor", "spacy")),
        "graph, light": SemanticGraphChunker(counter=chunker.counter),
        "graph, no entities": chunker,
    }
    warm = Document.from_text("Warm up. Twice.", source="warm")
    for each in ours.values():
        list(each.chunk(warm))
    seconds: dict[str, list[float]] = {}
    for _ in range(max(1, rounds)):
        found = ask("semantic", texts=[part.text for part in parts], names=["langchain", "llamaindex"])
        for row in found or ():
            seconds.setdefault(row["name"], []).append(row["seconds"])
        for name, each in ours.items():
            start = time.process_time()
            for part in parts:
                list(each.chunk(part))
            seconds.setdefault(name, []).append(time.process_time() - start)
    if "langchain" not in seconds:
        report.data += "; semantic peers left out: run `make peers`"
    for name in ours:
        row = {"measure": "speed", "chunker": name, "characters": sum(len(part.text) for part in parts)}
        row["seconds"] = round(statistics.median(seconds[name]), 3)
        for peer in ("langchain", "llamaindex"):
            if peer not in seconds:
                continue
            ratio = statistics.median(theirs / own for theirs, own in zip(seconds[peer], seconds[name], strict=True))
            row[f"times_{peer}"] = round(ratio, 1)
            if name in MOST:
                key = f"{name.split(', ')[1].lower()}_times_{peer}"
                report.bars.append(Bar.at_least(key, ratio, MOST[name]))
        report.rows.append(row)


def entity_cost(report: Report, questions: RetrievalSet, *, preferred: Sequence[int] = (80, 100, 130)) -> None:
    """Precision_Omega (strict, trimmed) without entities, with `light` and with `spacy`, on the shortest corpora."""
    documents = sorted(questions.documents, key=lambda each: len(each.text))[:2]
    known = {document.id for document in documents}
    wanted = [excerpts for excerpts in questions.excerpts.values() if set(excerpts) <= known]
    counter = get_counter(ENCODING)
    values: dict[tuple[str, int], list[float]] = {}
    for name in ("none", "light", "spacy"):
        extractor = None if name == "none" else create("extractor", name)
        for size in preferred:
            chunker = SemanticGraphChunker(
                counter=counter, preferred_tokens=size, max_tokens=2 * size, extractor=extractor, context_tokens=0
            )
            spans = {
                document.id: [trimmed(document.text, chunk.span) for chunk in chunker.chunk(document)]
                for document in documents
            }
            values[name, size] = [precision_omega(spans, excerpts) for excerpts in wanted]
            difference = paired_bootstrap(values[name, size], values["none", size])
            report.rows.append(
                {
                    "measure": "entities' omega",
                    "extractor": name,
                    "preferred": size,
                    "chunks": sum(map(len, spans.values())),
                    "questions": len(wanted),
                    "omega": round(100 * statistics.fmean(values[name, size]), 1),
                    "over_none": "{:+.3f} [{:+.3f}, {:+.3f}]".format(*difference),
                }
            )
