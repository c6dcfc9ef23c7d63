"""Sentences that LangChain's EmbeddingsFilter and LlamaIndex's SentenceEmbeddingOptimizer keep, by our vectors."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ctxkit.documents import Span
from ctxkit.evaluation.benchmarks._compression_sets import Question
from ctxkit.evaluation.benchmarks._compression_words import told_lines
from ctxkit.evaluation.peers import peer_python
from ctxkit.protocols import Embedder
from ctxkit.text import sentence_spans

__all__ = ["FILTERS", "filtered", "sentences_of"]

FILTERS: Mapping[str, str] = {
    "embeddings_filter": "LangChain EmbeddingsFilter",
    "sentence_optimizer": "LlamaIndex SentenceEmbeddingOptimizer",
}
_WORKER = Path(__file__).with_name("_sentence_filters_worker.py")


def sentences_of(question: Question) -> list[tuple[str, Span, str]]:
    """Every sentence of the candidates: its chunk's id, its span, its text."""
    return [
        (candidate.chunk.id, span.shift(candidate.chunk.span.start), span.slice(candidate.chunk.text))
        for candidate in question.candidates
        for span in sentence_spans(candidate.chunk.text)
    ]


def filtered(
    asked: Sequence[Question], ratios: Sequence[int], embedder: Embedder
) -> dict[str, list[list[dict[str, list[Span]]]]] | None:
    """By system, for each question and ratio, the kept spans by chunk; None where `make peers` was not run."""
    python = peer_python("frameworks")
    if python is None:
        return None
    pieces = [sentences_of(question) for question in asked]
    texts = list(dict.fromkeys([*(one.text for one in asked), *(text for some in pieces for _, _, text in some)]))
    items = [
        {
            "question": question.text,
            "sentences": [text for _, _, text in some],
            "targets": [max(1, int(question.tokens / ratio)) for ratio in ratios],
        }
        for question, some in zip(asked, pieces, strict=True)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vectors.npy"
        np.save(path, np.asarray(embedder.embed(texts), dtype=np.float32))
        request = {"items": items, "texts": texts, "vectors": str(path)}
        told = [json.loads(line) for line in told_lines(python, _WORKER, request)]
    found: dict[str, list[list[dict[str, list[Span]]]]] = {system: [] for system in FILTERS}
    for some, row in zip(pieces, told, strict=True):
        for system in FILTERS:
            results = []
            for places in row[system]:
                spans: dict[str, list[Span]] = {}
                for place in places:
                    chunk, span, _ = some[place]
                    spans.setdefault(chunk, []).append(span)
                results.append(spans)
            found[system].append(results)
    return found
