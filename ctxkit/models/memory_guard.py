"""Keeps a local model's requests within the memory that there is, and says why it ran out where it did."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ctxkit.errors import KVCacheError, MemoryBudgetError
from ctxkit.kvcache.architecture import Architecture
from ctxkit.kvcache.available import MemoryState, memory_state
from ctxkit.kvcache.diagnosis import diagnose, in_words
from ctxkit.kvcache.planning import Plan, plan

__all__ = ["MemoryGuard", "Reading"]

_STEPS = (256, 128, 64, 32)
"""Tokens of one step of a prefill, the largest that fits first."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A request that was found to fit: tokens of one step of its prefill, its plan, and the memory at its start."""

    step: int
    plan: Plan | None
    before: MemoryState


class MemoryGuard:
    """Checks requests of one loaded model.

    Args:
        weights: a model of transformers; its memory now is what it takes while nothing is asked.
        name: for errors.

    A model whose configuration tells nothing of its layers is not checked.
    """

    def __init__(self, weights: Any, name: str) -> None:
        self._name = name
        self._device = str(weights.device)
        self._itemsize = int(weights.dtype.itemsize)
        self.resting = memory_state(self._device)
        try:
            # The window is checked elsewhere, and may be wider than the model's own.
            self.architecture: Architecture | None = replace(Architecture.of(weights.config), positions=0)
        except KVCacheError:
            self.architecture = None

    def check(self, tokens: int) -> Reading:
        """Whether prompt and answer of so many tokens fit the free memory, and how many tokens are read at once.

        Errors: `MemoryBudgetError` where they do not fit with the smallest steps either.
        """
        before = memory_state(self._device)
        if self.architecture is None:
            return Reading(_STEPS[0], None, before)
        for step in _STEPS:
            found = plan(self.architecture, context=tokens, itemsize=self._itemsize, codecs=("none",), prefill=step)
            needed = found.rows[0].active + found.prefill_peak
            if needed <= before.free:
                return Reading(step, found, before)
        report = {"plan": found.to_json(), "memory": before.to_json()}
        raise self._error(
            f"{tokens:,} tokens take {in_words(needed)} ({in_words(found.rows[0].active)} of keys and values, "
            f"{in_words(found.prefill_peak)} while the prompt is read), and {in_words(before.free)} are free",
            "Shorten the prompt or the answer, or free memory. `ctxkit kv plan` says what fits.",
            needed,
            before,
            report,
        )

    def explain(
        self, error: BaseException, reading: Reading, *, phase: str, caches: int = 0
    ) -> MemoryBudgetError | None:
        """The error that says why memory ran out; None for an error of another kind.

        Args:
            phase: `prefill` or `decode`.
            caches: bytes that are held on purpose.
        """
        if not ran_out(error):
            return None
        cache = reading.plan.rows[0].active if reading.plan else 0
        peak = reading.plan.prefill_peak if reading.plan else 0
        found = diagnose(
            phase=phase,
            planned_cache=cache,
            planned_peak=peak,
            before=reading.before,
            after=memory_state(self._device),
            resting=self.resting,
            caches=caches,
        )
        return self._error(str(found), found.remedy, cache + peak, reading.before, found.to_json())

    def _error(
        self, what: str, remedy: str, needed: int, state: MemoryState, report: dict[str, Any]
    ) -> MemoryBudgetError:
        error = MemoryBudgetError(what, subject=self._name, remedy=remedy)
        error.needed, error.free, error.report = needed, state.free, report
        return error


def ran_out(error: BaseException) -> bool:
    """Whether an error is of memory: of Python, of a GPU, or of torch's allocator of a CPU."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and ("out of memory" in text or "allocate memory" in text)
