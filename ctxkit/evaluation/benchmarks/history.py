"""History: valid windows, prefix reuse, what is kept and how fast, beside LangChain's `trim_messages`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from ctxkit.evaluation.benchmarks import _history_cache, _history_recall, _history_speed, _history_validity
from ctxkit.evaluation.conversations import locomo_messages, sgd, tau_bench
from ctxkit.evaluation.locomo import conversations
from ctxkit.evaluation.report import Report

__all__ = ["PARTS", "run"]

PARTS = ("validity", "cache", "evidence", "slots", "speed")


def run(data: Path, *, parts: Collection[str] = PARTS, traces: int = 100) -> Report:
    """About ten minutes on one core with everything; no model, no network.

    Args:
        parts: of `PARTS`.
        traces: of tau-bench, at most 100.
    """
    report = Report(
        "history",
        f"tau-bench ({traces} tool-calling traces), LoCoMo (7 conversations, all questions whose turns resolve), "
        "Schema-Guided Dialogue (196 dialogues)",
    )
    long = conversations(data)
    dialogues = [locomo_messages(conversation) for conversation in long]
    measures: dict[str, Callable[[], None]] = {
        "validity": lambda: _history_validity.measure(report, tau_bench(data)[:traces]),
        "cache": lambda: _history_cache.measure(report, dialogues),
        "evidence": lambda: _history_recall.evidence(report, long),
        "slots": lambda: _history_recall.slots(report, sgd(data)),
        "speed": lambda: _history_speed.measure(report, dialogues),
    }
    for part in PARTS:
        if part in parts:
            measures[part]()
    return report
