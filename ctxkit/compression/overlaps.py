"""Chunks that overlap: what two of them share is sent once."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ctxkit.compression.units import Unit
from ctxkit.documents import Candidate, Chunk, Span

__all__ = ["Claims", "claims_of", "share_values"]

_VERSIONS = 8
"""Of one document that are told apart at one place: bounds the time where a thousand texts have one id."""


class Claims:
    """Which stretches of a text are taken, each by one candidate. O(log n) to ask."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._taken: list[tuple[int, Hashable]] = []  # the end of each, and whose it is

    def free(self, span: Span, owner: Hashable) -> bool:
        """Whether nobody else has taken a character of it."""
        at = max(0, bisect_right(self._starts, span.start) - 1)
        while at < len(self._starts) and self._starts[at] < span.end:
            end, whose = self._taken[at]
            if end > span.start and whose != owner:
                return False
            at += 1
        return True

    def claim(self, span: Span, owner: Hashable) -> None:
        at = bisect_left(self._starts, span.start)
        self._starts.insert(at, span.start)
        self._taken.insert(at, (span.end, owner))

    def release(self, span: Span) -> None:
        at = bisect_left(self._starts, span.start)
        del self._starts[at], self._taken[at]


@dataclass(slots=True)
class _Run:
    """Chunks of one text, each of which shares a stretch with one before it."""

    furthest: Chunk
    members: list[int] = field(default_factory=list)

    def shares(self, chunk: Chunk) -> bool:
        shared = min(chunk.span.end, self.furthest.span.end) - chunk.span.start
        return shared > 0 and self.furthest.text.startswith(
            chunk.text[:shared], chunk.span.start - self.furthest.span.start
        )


def claims_of(candidates: Sequence[Candidate]) -> list[Claims | None]:
    """For each candidate the claims that it shares with those that overlap it; None where none does.

    Two versions of a document, whose texts differ where they overlap, share nothing. O(n log n).
    """
    of: dict[str, list[int]] = {}
    for number, candidate in enumerate(candidates):
        of.setdefault(candidate.chunk.document_id, []).append(number)
    found: list[Claims | None] = [None] * len(candidates)
    for members in of.values():
        if len(members) > 1:
            for run in _runs(candidates, members):
                claims = Claims()
                for number in run.members:
                    found[number] = claims
    return found


def share_values(
    values: NDArray[np.float64], units: Sequence[Sequence[Unit]], claims: Sequence[Claims | None]
) -> NDArray[np.float64]:
    """The values of the sentences of all candidates; those of one that several have, the best of these.

    So the better candidate, which goes first among equals, keeps it. Linear.
    """
    best: dict[tuple[int, Span], float] = {}
    rows: list[tuple[int, tuple[int, Span]]] = []
    row = 0
    for own, shared in zip(units, claims, strict=True):
        if shared is not None:
            for at, unit in enumerate(own, row):
                key = (id(shared), unit.span)
                rows.append((at, key))
                best[key] = max(best.get(key, 0.0), float(values[at]))
        row += len(own)
    if not rows:
        return values
    found = values.copy()
    for at, key in rows:
        found[at] = best[key]
    return found


def _runs(candidates: Sequence[Candidate], members: Sequence[int]) -> list[_Run]:
    """The runs of two or more overlapping chunks of one document."""
    runs: list[_Run] = []
    open_: list[_Run] = []
    for number in sorted(members, key=lambda one: candidates[one].chunk.span):
        chunk = candidates[number].chunk
        open_ = [run for run in open_ if run.furthest.span.end > chunk.span.start]
        run = next((run for run in open_ if run.shares(chunk)), None)
        if run is None:
            run = _Run(chunk)
            runs.append(run)
            open_ = [*open_[1 - _VERSIONS :], run]
        elif chunk.span.end > run.furthest.span.end:
            run.furthest = chunk
        run.members.append(number)
    return [run for run in runs if len(run.members) > 1]
