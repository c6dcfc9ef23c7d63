"""Compression: evidence kept at each ratio beside other frameworks' filters and truncation, and what it costs.

Every system gets the same budget, the tokens of all candidates divided by the ratio. Ours pays for its gap marks out of
it; the sentences of the others are joined as they stood, without any.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctxkit.compression import SentenceCompressor, SentenceStore
from ctxkit.documents import Query, Span
from ctxkit.evaluation.benchmarks._compression_filters import FILTERS, filtered, sentences_of
from ctxkit.evaluation.benchmarks._compression_sets import Question, kept, load
from ctxkit.evaluation.benchmarks._compression_speed import speed
from ctxkit.evaluation.benchmarks._vectors import Kept as Stored
from ctxkit.evaluation.bootstrap import paired_bootstrap
from ctxkit.evaluation.report import Bar, Report
from ctxkit.protocols import Embedder
from ctxkit.tokens import get_counter

__all__ = ["FULL", "PART", "RATIOS", "run"]

RATIOS = (2, 3, 5, 10, 20)
PART: Mapping[str, int] = {
    "hotpotqa": 20,
    "2wiki": 10,
    "musique": 5,
    "xquad_en": 40,
    "xquad_zh": 40,
    "chunking_eval": 3,
    "leval": 1,
    "qmsum": 1,
}
"""Questions of each set that a run measures by default, in a few minutes: too few for the bars."""
FULL: Mapping[str, int] = {
    "hotpotqa": 100,
    "2wiki": 100,
    "musique": 100,
    "xquad_en": 240,
    "xquad_zh": 240,
    "chunking_eval": 50,
    "leval": 20,
    "qmsum": 35,
}
TARGETS: Mapping[tuple[str, int], float] = {
    ("hotpotqa", 3): 94.0,
    ("hotpotqa", 5): 88.0,
    ("hotpotqa", 10): 75.0,
    ("xquad_en", 10): 98.0,
    ("xquad_en", 20): 93.0,
    ("xquad_zh", 10): 98.0,
    ("xquad_zh", 20): 93.0,
}
MOST_TIMES = 3.0
OURS = "ctxkit"

Kept = Sequence[Sequence[Mapping[str, Sequence[Span]]]]
"""For each question and ratio, the spans that are kept, by chunk."""


def run(
    data: Path,
    *,
    full: bool = False,
    sizes: Mapping[str, int] | None = None,
    embedder: Embedder | None = None,
    timing: bool = True,
) -> Report:
    """The share of the gold that is kept, in percent, by set, system and ratio.

    Gold: supporting sentences (HotpotQA, 2WikiMultihopQA; of MuSiQue the sentence with each step's answer), the answer
    in its place among eight paragraphs (XQuAD); whole or not at all. Of meetings (QMSum), excerpts (chunking_eval) and
    contracts (L-Eval) the share of the gold's characters. `odd@`: of the odd questions alone, on which no weight was
    fitted. `tokens@`: what was used of the budget.

    Args:
        full: the larger part of all sets, and the bars on them; three minutes once the vectors are in the cache folder.
        sizes: questions by set, instead.
        embedder: by default MiniLM.
        timing: also time the choosing among 100,000 tokens.
    """
    default = embedder is None
    if embedder is None:
        from ctxkit.embedding import minilm

        embedder = minilm()
    chosen = (FULL if full else PART) if sizes is None else sizes
    remembering = _Remembering(Stored(embedder) if default else embedder)
    asked = {name: load(data, name, limit=limit) for name, limit in chosen.items()}
    counts = ", ".join(f"{len(questions)} of {name}" for name, questions in asked.items())
    report = Report("compression", f"gold kept, in percent; {counts}; o200k_base")
    lead: list[float] = []
    for name, questions in asked.items():
        scores: dict[str, NDArray[np.float64]] = {}
        weights = np.array([sum(map(len, one.gold.values())) if one.whole else 1 for one in questions], dtype=float)
        for system, results, seconds in _systems(questions, remembering):
            scores[system] = np.array([_shares(one, found) for one, found in zip(questions, results, strict=True)])
            report.rows.append(_row(name, system, questions, results, scores[system], weights, seconds))
        lead.extend(_lead(name, scores, weights, report))
    if full and sizes is None:
        values = {(row["set"], row["system"]): row for row in report.rows}
        report.bars.extend(
            Bar.at_least(f"{name}: gold kept at {ratio}x", values[name, OURS][f"gold@{ratio}"], target)
            for (name, ratio), target in TARGETS.items()
        )
        report.bars.append(Bar.at_least("points ahead of the best peer, worst set and ratio", min(lead), 0.0))
    if timing:
        times = speed(data, embedder)
        report.rows.append({"set": "100,000 tokens", "system": OURS, **times})
        report.bars.append(Bar.at_most("choosing, times embedding the question", times["warm, times"], MOST_TIMES))
    if not {row["system"] for row in report.rows} & set(FILTERS.values()):
        report.data += "; no peers: run `make peers`"
    return report


_OWN: Mapping[str, Callable[[Embedder], Embedder | None]] = {
    OURS: lambda embedder: embedder,
    "ctxkit, words alone": lambda _: None,
}


def _systems(questions: Sequence[Question], embedder: Embedder) -> Iterator[tuple[str, Kept, float | None]]:
    """Each system's name, what it keeps, and its seconds a choice, sentences prepared, where it is ours."""
    for name, part in _OWN.items():
        results = []
        prepared = SentenceStore()
        for question in questions:
            prepared.prepare([one.chunk for one in question.candidates], get_counter(), part(embedder))
        started = time.process_time()
        for question in questions:
            row = []
            for ratio in RATIOS:
                target = max(1, int(question.tokens / ratio))
                stage = SentenceCompressor(target=target, embedder=part(embedder), sentences=prepared)
                left = stage(Query(question.text), question.candidates)
                row.append({one.chunk.id: one.spans for one in left})
            results.append(row)
        yield name, results, (time.process_time() - started) / (len(questions) * len(RATIOS))
    for system, found in (filtered(questions, RATIOS, embedder) or {}).items():
        yield FILTERS[system], found, None
    yield "truncation", [[_first(question, ratio) for ratio in RATIOS] for question in questions], None


def _first(question: Question, ratio: float) -> dict[str, list[Span]]:
    """The first sentences that fit."""
    left = int(question.tokens / ratio)
    found: dict[str, list[Span]] = {}
    for chunk, span, text in sentences_of(question):
        left -= get_counter().count(text)
        if left < 0:
            break
        found.setdefault(chunk, []).append(span)
    return found


def _shares(question: Question, results: Sequence[Mapping[str, Sequence[Span]]]) -> list[float]:
    """Of one question, the share of its gold that is kept, at each ratio."""
    return [found / count for count, found in (kept(question, spans) for spans in results)]


def _row(
    name: str,
    system: str,
    questions: Sequence[Question],
    results: Kept,
    scores: NDArray[np.float64],
    weights: NDArray[np.float64],
    seconds: float | None,
) -> dict[str, Any]:
    row: dict[str, Any] = {"set": name, "system": system}
    odd = np.arange(len(questions)) % 2 == 1
    for column, ratio in enumerate(RATIOS):
        row[f"gold@{ratio}"] = round(100 * float(np.average(scores[:, column], weights=weights)), 1)
        if system in _OWN and odd.any():
            row[f"odd@{ratio}"] = round(100 * float(np.average(scores[odd, column], weights=weights[odd])), 1)
    if system in _OWN:
        row["tokens@5"] = round(100 * _used(questions, results), 1)
    if seconds is not None:
        row["ms"] = round(1000 * seconds, 1)
    return row


def _used(questions: Sequence[Question], results: Kept) -> float:
    """Of the budget at ratio 5, what was used, gap marks included."""
    column = RATIOS.index(5)
    parts = []
    for question, found in zip(questions, results, strict=True):
        spans = found[column]
        texts = [one.keeping(spans[one.chunk.id]).text for one in question.candidates if one.chunk.id in spans]
        parts.append(sum(map(get_counter().count, texts)) / max(1, int(question.tokens / RATIOS[column])))
    return float(np.mean(parts))


def _lead(
    name: str, scores: Mapping[str, NDArray[np.float64]], weights: NDArray[np.float64], report: Report
) -> list[float]:
    """Points between ours and the best peer at each ratio; a row with them and their intervals."""
    row: dict[str, Any] = {"set": name, "system": "ahead of the best peer"}
    found = []
    for column, ratio in enumerate(RATIOS):
        peers = {system: values[:, column] for system, values in scores.items() if system not in _OWN}
        best = max(peers.values(), key=lambda values: float(np.average(values, weights=weights)))
        scale = 100 * weights / weights.mean()
        difference = paired_bootstrap(scores[OURS][:, column] * scale, best * scale)
        found.append(round(difference.mean, 1))
        row[f"gold@{ratio}"] = f"{difference.mean:+.1f} [{difference.low:+.1f}, {difference.high:+.1f}]"
    report.rows.append(row)
    return found


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
