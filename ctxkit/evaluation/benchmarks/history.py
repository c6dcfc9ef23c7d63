"""History: valid windows, prefix reuse, what is kept, what is found again and how fast, beside LangChain."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path

from ctxkit.embedding import minilm
from ctxkit.errors import ConfigError
from ctxkit.evaluation.benchmarks import (
    _history_cache,
    _history_decay,
    _history_past,
    _history_recall,
    _history_speed,
    _history_validity,
)
from ctxkit.evaluation.conversations import locomo_messages, sgd, tau_bench
from ctxkit.evaluation.locomo import conversations
from ctxkit.evaluation.report import Report
from ctxkit.protocols import Embedder

__all__ = ["PARTS", "run"]

PARTS = ("validity", "cache", "evidence", "slots", "speed", "recall", "decay")


def run(
    data: Path,
    *,
    parts: str | Collection[str] = PARTS,
    traces: int | None = None,
    embedder: Embedder | None = None,
    folder: str | Path | None = None,
    full: bool = False,
) -> Report:
    """About a quarter of an hour on one core, with 20 traces and without what each part of recall does; no network.

    Args:
        parts: of `PARTS`, as a list or with commas.
        traces: of tau-bench, at most 100.
        embedder: of recall; default MiniLM, which embeds 4,100 turns in some minutes.
        folder: keep the stores of recall there and use them again; default a temporary folder.
        full: all traces, and recall without each of its parts in turn; twice as long.
    """
    chosen = [part.strip() for part in parts.split(",")] if isinstance(parts, str) else list(parts)
    if unknown := sorted(set(chosen) - set(PARTS)):
        raise ConfigError(f"there is no part {unknown[0]!r}", remedy=f"Parts: {', '.join(PARTS)}.")
    traces = traces or (100 if full else 20)
    report = Report(
        "history",
        f"tau-bench ({traces} tool-calling traces), LoCoMo (7 conversations, all questions whose turns resolve), "
        "Schema-Guided Dialogue (196 dialogues), State of the Union (65 addresses)",
    )
    long = conversations(data)
    dialogues = [locomo_messages(conversation) for conversation in long]

    @cache
    def embedding() -> Embedder:
        return embedder or minilm()

    kept = None if folder is None else Path(folder)
    measures: dict[str, Callable[[], None]] = {
        "validity": lambda: _history_validity.measure(report, tau_bench(data)[:traces]),
        "cache": lambda: _history_cache.measure(report, dialogues),
        "evidence": lambda: _history_recall.evidence(report, long),
        "slots": lambda: _history_recall.slots(report, sgd(data)),
        "speed": lambda: _history_speed.measure(report, dialogues),
        "recall": lambda: _history_past.measure(report, data, embedding(), folder=kept, ablations=full),
        "decay": lambda: _history_decay.measure(report, data, long, embedding()),
    }
    for part in PARTS:
        if part in chosen:
            measures[part]()
    return report
