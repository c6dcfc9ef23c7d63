"""Compression: gold sentences of HotpotQA that survive a given ratio, beside simpler choices of sentences."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctxkit.compression import SentenceCompressor
from ctxkit.compression.relevance import lexical_scores
from ctxkit.documents import Candidate, Chunk, Document, Query, Span, subtract_spans
from ctxkit.errors import ConfigError
from ctxkit.evaluation.report import Bar, Report
from ctxkit.protocols import Embedder
from ctxkit.text import sentence_spans
from ctxkit.tokens import get_counter

__all__ = ["Question", "questions", "run"]

RATIOS = (2, 3, 5, 10)
# Measured with rank fusion of MiniLM and BM25 on the same hundred questions, gap marks not counted.
FLOORS = {2: 94.1, 3: 89.0, 5: 78.1, 10: 61.2}
_TOLERANCE = 1.0

Choose = Callable[["Question", int], Sequence[Candidate]]


@dataclass(frozen=True, slots=True)
class Question:
    """A question, its ten paragraphs as candidates without scores, and the gold sentences by chunk id."""

    text: str
    answer: str
    candidates: tuple[Candidate, ...]
    gold: dict[str, tuple[Span, ...]]
    tokens: int


def questions(data: Path, *, limit: int | None = None) -> list[Question]:
    """HotpotQA's questions with their sentences' places. Raises `ConfigError` when the file is not there."""
    path = data / "multihop" / "hotpotqa.jsonl.gz"
    if not path.is_file():
        raise ConfigError("the data file is not here", subject=str(path), remedy="Set CTXKIT_DATA to the data folder.")
    lines = gzip.decompress(path.read_bytes()).decode("utf-8").splitlines()
    return [_question(json.loads(line)) for line in lines[:limit]]


def run(data: Path, *, limit: int | None = None, embedder: Embedder | None = None) -> Report:
    """Share of gold sentences that are kept whole, in percent, at each ratio; a few minutes on two cores.

    Every system gets the same budget, the question's tokens divided by the ratio. Ours pays for its gap marks, the
    others are not charged for any. `tokens` is what was used of the budget, in percent.

    Args:
        limit: only the first questions.
        embedder: by default MiniLM.
    """
    if embedder is None:
        from ctxkit.embedding import minilm

        embedder = minilm()
    remembering = _Remembering(embedder)
    asked = questions(data, limit=limit)
    systems: dict[str, Choose] = {
        "ctxkit": _ours(embedder=remembering),
        "ctxkit, drop=True": _ours(embedder=remembering, drop=True),
        "ctxkit, words alone": _ours(embedder=None),
        "MiniLM alone": _ranked(lambda question, texts: _cosines(remembering, question, texts)),
        "BM25 alone": _ranked(lexical_scores),
        "first sentences": _ranked(lambda question, texts: np.zeros(len(texts))),
    }
    report = Report("compression", f"HotpotQA, {len(asked)} questions, gold sentences kept; o200k_base")
    for choose in systems.values():  # so that the timings below are of choosing, not of embedding
        for question in asked:
            choose(question, question.tokens // 2)
    for name, choose in systems.items():
        row: dict[str, Any] = {"system": name}
        started = time.perf_counter()
        for ratio in RATIOS:
            gold, answers, used = _measure(asked, choose, ratio)
            row |= {f"gold@{ratio}": gold, f"answer@{ratio}": answers, f"tokens@{ratio}": used}
        row["ms a question"] = round(1000 * (time.perf_counter() - started) / (len(asked) * len(RATIOS)), 1)
        report.rows.append(row)
    if limit is None:
        for ratio, floor in FLOORS.items():
            value = report.rows[0][f"gold@{ratio}"]
            report.bars.append(Bar.at_least(f"gold kept at {ratio}x", value, floor - _TOLERANCE))
    return report


def _measure(asked: Sequence[Question], choose: Choose, ratio: int) -> tuple[float, float, float]:
    kept = total = answered = answerable = 0
    used: list[float] = []
    for question in asked:
        budget = int(question.tokens / ratio)
        result = choose(question, budget)
        spans = {candidate.chunk.id: candidate.spans for candidate in result}
        for chunk, gold in question.gold.items():
            total += len(gold)
            kept += sum(not subtract_spans([span], spans.get(chunk, ())) for span in gold)
        if question.answer.lower() not in ("yes", "no"):
            answerable += 1
            answered += any(question.answer in candidate.text for candidate in result)
        used.append(sum(get_counter().count(candidate.text) for candidate in result) / max(1, budget))
    return (
        round(100 * kept / max(1, total), 1),
        round(100 * answered / max(1, answerable), 1),
        round(100 * float(np.mean(used)), 1),
    )


def _ours(*, embedder: Embedder | None, drop: bool = False) -> Choose:
    def choose(question: Question, budget: int) -> Sequence[Candidate]:
        stage = SentenceCompressor(target=max(1, budget), embedder=embedder, drop=drop)
        return stage(Query(question.text), question.candidates)

    return choose


def _ranked(score: Callable[[str, Sequence[str]], NDArray[np.float64]]) -> Choose:
    """Sentences by one score while they fit; the first of each paragraph first among equals."""

    def choose(question: Question, budget: int) -> Sequence[Candidate]:
        places = _sentences(question)
        scores = score(question.text, [text for _, _, text in places])
        position = [span.start - candidate.chunk.span.start for candidate, span, _ in places]
        taken: dict[str, list[Span]] = {}
        left = budget
        for index in sorted(range(len(places)), key=lambda index: (-scores[index], position[index], index)):
            candidate, span, text = places[index]
            cost = get_counter().count(text)
            if cost <= left:
                left -= cost
                taken.setdefault(candidate.chunk.id, []).append(span)
        return [one.keeping(taken[one.chunk.id]) for one in question.candidates if one.chunk.id in taken]

    return choose


def _sentences(question: Question) -> list[tuple[Candidate, Span, str]]:
    return [
        (candidate, span.shift(candidate.chunk.span.start), span.slice(candidate.chunk.text))
        for candidate in question.candidates
        for span in sentence_spans(candidate.chunk.text)
    ]


def _cosines(embedder: Embedder, question: str, texts: Sequence[str]) -> NDArray[np.float64]:
    vectors = embedder.embed([question, *texts])
    return np.asarray(vectors[1:] @ vectors[0], dtype=np.float64)


class _Remembering:
    """An embedder that embeds each text once in a run."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._known: dict[str, NDArray[np.float32]] = {}
        self.dimension = embedder.dimension
        self.fingerprint = embedder.fingerprint

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            self._known.update(zip(new, self._embedder.embed(new), strict=True))
        return np.stack([self._known[text] for text in texts]) if texts else self._embedder.embed([])


def _question(row: dict[str, Any]) -> Question:
    support = {(title, position) for title, position in row["supporting_facts"]}
    candidates: list[Candidate] = []
    gold: dict[str, tuple[Span, ...]] = {}
    for title, sentences in row["context"]:
        document = Document.from_text("".join(sentences), source=f"hotpotqa/{title}", title=title)
        whole = Span(0, len(document.text))
        plain = Chunk.of(document, whole, get_counter().count(document.text))
        chunk = replace(plain, metadata={"source": document.source, "title": title})  # as a store gives it
        candidates.append(Candidate(chunk))
        spans: list[Span] = []
        position = 0
        for number, sentence in enumerate(sentences):
            if (title, number) in support and sentence.strip():
                start = position + len(sentence) - len(sentence.lstrip())
                spans.append(Span(start, position + len(sentence.rstrip())))
            position += len(sentence)
        if spans:
            gold[chunk.id] = tuple(spans)
    tokens = sum(candidate.chunk.token_count for candidate in candidates)
    return Question(row["question"], row["answer"], tuple(candidates), gold, tokens)
