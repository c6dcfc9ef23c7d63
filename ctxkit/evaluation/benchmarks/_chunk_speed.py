"""The graph chunker's time beside the semantic chunkers of LangChain and LlamaIndex, with the same MiniLM."""

from __future__ import annotations

import statistics
import time

from ctxkit.chunking import SemanticGraphChunker
from ctxkit.documents import Document
from ctxkit.evaluation.benchmarks._frameworks import ask
from ctxkit.evaluation.report import Bar, Report
from ctxkit.protocols import Embedder
from ctxkit.registry import create
from ctxkit.tokens import get_counter

__all__ = ["speed"]

ENCODING = "cl100k_base"
MOST = {"graph, MiniLM": 3.0, "graph, spaCy": 4.0, "graph, light": 50.0}


def speed(report: Report, document: Document, embedder: Embedder, *, characters: int = 40_000, rounds: int = 1) -> None:
    """Processor seconds, interleaved, over the middle of a document; a ratio for each peer and each of ours."""
    middle = len(document.text) // 2
    part = Document.from_text(document.text[middle : middle + characters], source=document.source)
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
        found = ask("semantic", texts=[part.text], names=["langchain", "llamaindex"])
        for row in found or ():
            seconds.setdefault(row["name"], []).append(row["seconds"])
        for name, each in ours.items():
            start = time.process_time()
            list(each.chunk(part))
            seconds.setdefault(name, []).append(time.process_time() - start)
    if "langchain" not in seconds:
        report.data += "; semantic peers left out: run `make peers`"
    for name in ours:
        row = {"measure": "speed", "chunker": name, "characters": len(part.text)}
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
