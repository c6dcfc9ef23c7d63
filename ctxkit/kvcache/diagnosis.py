"""Why memory ran out: the cause that the measurements speak for, and the measurements."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ctxkit.kvcache.available import MemoryState

__all__ = ["CAUSES", "Diagnosis", "diagnose", "in_words"]

CAUSES = {
    "other processes": "Other processes took the memory meanwhile: stop them, or ask again when they have ended.",
    "fragmentation": "The allocator holds memory in pieces that are too small: set expandable segments "
    "(PYTORCH_ALLOC_CONF=expandable_segments:True) or begin a new process.",
    "leak": "This process holds memory beside the weights and the caches: drop references to old caches and outputs.",
    "prefill peak": "Reading the prompt takes it: read fewer tokens at once, or shorten the prompt.",
    "cache growth": "The keys and values of the context take it: shorten prompt or answer, or pack idle sequences.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """One cause of `CAUSES`, and what it was told by.

    Args:
        missing: bytes that the request still wanted, by its plan.
        taken_by_others: bytes that went to other processes while it ran.
        scattered: bytes that the allocator holds and no tensor uses.
        unexplained: bytes that were held before it, and are neither weights nor caches.
    """

    cause: str
    phase: str
    missing: int
    taken_by_others: int
    scattered: int
    unexplained: int
    planned_cache: int
    planned_peak: int
    before: MemoryState
    after: MemoryState

    @property
    def remedy(self) -> str:
        return CAUSES[self.cause]

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"remedy": self.remedy}

    def __str__(self) -> str:
        parts = {
            "planned for the cache": self.planned_cache,
            "for the peak of reading": self.planned_peak,
            "still missing": self.missing,
            "free at the start": self.before.free,
            "free now": self.after.free,
            "taken by others meanwhile": self.taken_by_others,
            "held in unused pieces": self.scattered,
            "held before without a known use": self.unexplained,
        }
        measured = ", ".join(f"{in_words(value)} {name}" for name, value in parts.items())
        return f"memory ran out in {self.phase}; cause: {self.cause} ({measured})"


def diagnose(
    *,
    phase: str,
    planned_cache: int,
    planned_peak: int,
    before: MemoryState,
    after: MemoryState,
    resting: MemoryState,
    caches: int = 0,
) -> Diagnosis:
    """Name the cause. Of those that alone would explain what is missing the first counts; else it is the request's own.

    Args:
        phase: `prefill` or `decode`.
        planned_cache, planned_peak: bytes that the request was to take, by its plan.
        before, after: the memory when it began, and when it failed.
        resting: the memory once the weights were loaded and nothing was asked.
        caches: bytes of caches that are held on purpose, at the start.
    """
    grown = max(0, after.used - before.used)
    missing = max(1, planned_cache + planned_peak - grown)
    taken = max(0, (before.free - after.free) - max(0, after.held - before.held))
    scattered = max(0, after.held - after.used)
    unexplained = max(0, before.used - resting.used - caches)
    if after.free < missing <= after.free + taken:
        cause = "other processes"
    elif scattered >= missing:
        cause = "fragmentation"
    elif unexplained >= missing:
        cause = "leak"
    elif phase == "prefill" and planned_peak > planned_cache:
        cause = "prefill peak"
    else:
        cause = "cache growth"
    return Diagnosis(
        cause=cause,
        phase=phase,
        missing=missing,
        taken_by_others=taken,
        scattered=scattered,
        unexplained=unexplained,
        planned_cache=planned_cache,
        planned_peak=planned_peak,
        before=before,
        after=after,
    )


def in_words(count: float) -> str:
    """Bytes for people: `1.5 GB`, powers of 1,000."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"
