"""The compressed key-value cache: quality per byte, decoding speed, and what a reader of the same text saves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from ctxkit.errors import ConfigError
from ctxkit.evaluation.report import Report

__all__ = ["PARTS", "run"]

PARTS = {
    "quality": "ctxkit.evaluation.benchmarks._kv_quality",
    "lookups": "ctxkit.evaluation.benchmarks._kv_lookups",
    "decode": "ctxkit.evaluation.benchmarks._kv_decode",
    "prefix": "ctxkit.evaluation.benchmarks._kv_prefix",
    "chunks": "ctxkit.evaluation.benchmarks._kv_chunks",
    "plan": "ctxkit.evaluation.benchmarks._kv_plan",
    "eviction": "ctxkit.evaluation.benchmarks._kv_eviction",
    "eviction-quality": "ctxkit.evaluation.benchmarks._kv_eviction_quality",
}
"""Part by part, the module whose `run(data, full=…)` gives a report of its own."""


def run(data: Path, *, parts: Sequence[str] = (), full: bool = False) -> Report:
    """Run the parts one after another; their rows and bars in one report.

    Args:
        parts: of `PARTS`; by default all.
        full: as many prefixes as the published tables hold.
    """
    chosen = list(parts) or list(PARTS)
    for part in chosen:
        if part not in PARTS:
            raise ConfigError("there is no such part", subject=part, remedy=f"Known: {', '.join(PARTS)}.")
    report = Report("kvcache", "SmolLM2-135M-Instruct, float32")
    for part in chosen:
        measure: Callable[..., Report] = import_module(PARTS[part]).run
        found = measure(data, full=full)
        report.data += f"; {part}: {found.data}"
        report.rows += [{"part": part, **row} for row in found.rows]
        report.bars += found.bars
    _align(report.rows)
    return report


def _align(rows: list[dict[str, Any]]) -> None:
    """Every row has every column, so that one table holds them all."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    rows[:] = [{column: row.get(column, "") for column in columns} for row in rows]
