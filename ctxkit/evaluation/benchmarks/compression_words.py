"""Pruning by words: answers kept, their likelihood and speed beside LLMLingua and Selective Context on one model."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ctxkit.compression import SentenceCompressor
from ctxkit.documents import Query
from ctxkit.evaluation.benchmarks._compression_answers import answer_rows
from ctxkit.evaluation.benchmarks._compression_sets import Question, load
from ctxkit.evaluation.benchmarks._compression_words import PEERS, curve, prune_with_peer, rows
from ctxkit.evaluation.report import Bar, Report
from ctxkit.protocols import Embedder

__all__ = ["FULL", "PART", "RATIOS", "run"]

RATIOS = (2, 3, 5, 10, 20)
PART: Mapping[str, int] = {"xquad_en": 3, "hotpotqa": 3, "2wiki": 3, "xquad_zh": 1, "musique": 1}
"""Questions of each set by default: LLMLingua reads one in a quarter of a minute on a quiet core, for five ratios."""
FULL: Mapping[str, int] = {"xquad_en": 60, "hotpotqa": 60, "2wiki": 60, "xquad_zh": 40, "musique": 40}
CURVE: Mapping[str, int] = {"xquad_en": 20, "xquad_zh": 10, "hotpotqa": 10}
FULL_CURVE: Mapping[str, int] = {"xquad_en": 240, "xquad_zh": 240, "hotpotqa": 100}
ANSWERS = ("xquad_en", "hotpotqa")
MOST_LOST, TIMES = 1.0, 20.0


def run(
    data: Path,
    *,
    full: bool = False,
    sizes: Mapping[str, int] | None = None,
    curve_sizes: Mapping[str, int] | None = None,
    cache: Path | None = None,
    peers: Sequence[str] = PEERS,
) -> Report:
    """Answers kept at each ratio, what each signal is worth, the curve by share of tokens, speed, and likelihood.

    Targets are tokens by o200k_base. An answer is kept where its characters stand in a row, white space apart.

    Args:
        full: hours of a core instead of some ten minutes.
        sizes, curve_sizes: questions by set, instead.
        cache: keeps what models computed, so that a run that was cut off goes on.
        peers: some of `PEERS`.
    """
    from ctxkit.embedding import minilm
    from ctxkit.models import LocalModel
    from ctxkit.models.catalogue import resolve

    model, embedder = LocalModel("local"), minilm()
    folder = resolve("local").folder()
    asked = {name: load(data, name, limit=size) for name, size in (sizes or (FULL if full else PART)).items()}
    curved = {
        name: load(data, name, limit=size) for name, size in (curve_sizes or (FULL_CURVE if full else CURVE)).items()
    }
    counts = ", ".join(f"{len(questions)} of {name}" for name, questions in asked.items())
    report = Report("compression-words", f"answers kept, in percent; {counts}; {model.name}, o200k_base")
    found = rows(asked, RATIOS, model=model, folder=folder, cache=cache, ablation=True, peers=peers)
    report.rows += found
    report.bars += _ahead(found, peers)
    by_share = curve(curved, model=model, cache=cache)
    report.rows += [{"system": "ctxkit words, the paragraph alone", **row} for row in by_share]
    kept = [(row["answer@68%"], row["questions"]) for row in by_share if row["questions"]]
    lost = 100 - sum(share * size for share, size in kept) / max(1, sum(size for _, size in kept))
    report.bars.append(Bar.at_most("answers lost at 68 % kept, in percent", lost, MOST_LOST))
    speeds = _speeds(asked["xquad_en"], embedder, folder, cache) if "llmlingua" in peers and "xquad_en" in asked else {}
    if speeds:
        report.rows.append({"set": "xquad_en", "system": "seconds a question, at 2x", **speeds})
        times = speeds["llmlingua"] / speeds["ctxkit sentences"]
        report.bars.append(Bar.at_least("LLMLingua's time, times our sentences' with MiniLM", times, TIMES))
    scored = {name: asked[name] for name in ANSWERS if name in asked}
    answers = answer_rows(
        scored, model=model, folder=folder, embedder=embedder, ratios=RATIOS, cache=cache, peers=peers
    )
    report.rows += answers
    report.bars += _answer_bars(answers)
    if not any(row["system"] in PEERS for row in found):
        report.data += "; no peers: run `make peers`"
    return report


def _ahead(found: Sequence[Mapping[str, Any]], peers: Sequence[str]) -> list[Bar]:
    """By how many points more answers are kept than by the best peer, all sets together, at each ratio."""
    bars = []
    for ratio in RATIOS:
        key = f"answer@{ratio}"
        means = {}
        for system in ("ctxkit words", *peers):
            mine = [row for row in found if row["system"] == system and row[key] is not None]
            sizes = sum(row["questions"] for row in mine)
            if mine:
                means[system] = sum(row[key] * row["questions"] for row in mine) / sizes
        others = [value for system, value in means.items() if system != "ctxkit words"]
        if others:
            lead = means["ctxkit words"] - max(others)
            bars.append(Bar.at_least(f"points ahead of the best peer at {ratio}x", lead, 0.0))
    return bars


def _answer_bars(answers: Sequence[Mapping[str, Any]]) -> list[Bar]:
    bars = []
    for row in answers:
        if row["system"] == "ctxkit sentences":
            bars.append(Bar.at_least(f"{row['set']}: our likelihood minus full", row["minus full"], 0.0))
        elif row["system"] not in ("full", "ctxkit words"):
            bars.append(Bar.at_least(f"{row['set']}: ours minus {row['system']}", row["ours minus it"], 0.0))
    return bars


def _speeds(questions: Sequence[Question], embedder: Embedder, folder: Path, cache: Path | None) -> dict[str, float]:
    """Median processor seconds a question; sentences are embedded anew each time."""
    told = prune_with_peer("llmlingua", questions, RATIOS, folder=folder, cache=cache)
    if told is None:
        return {}
    ours: dict[str, list[float]] = {"ctxkit sentences": [], "ctxkit sentences, words alone": []}
    for question in questions:
        for system, part in (("ctxkit sentences", embedder), ("ctxkit sentences, words alone", None)):
            stage = SentenceCompressor(target=max(1, question.tokens // RATIOS[0]), embedder=part)
            stage(Query(question.text), question.candidates[:1])  # so that nothing is loaded while the clock runs
            started = time.process_time()
            stage(Query(question.text), question.candidates)
            ours[system].append(time.process_time() - started)
    seconds = {system: float(np.median(values)) for system, values in ours.items()}
    return {"llmlingua": float(np.median([results[0]["seconds"] for results in told])), **seconds}
