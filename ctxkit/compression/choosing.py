"""Which sentences fit: exact accounting of what a choice costs, gap marks included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ctxkit.compression.units import BLANKS, Unit
from ctxkit.documents import GAP, Candidate, Span
from ctxkit.protocols import TokenCounter

__all__ = ["Choice", "GapCosts"]


class GapCosts:
    """What the three forms of the gap mark cost by a counter: between pieces, before the first, after the last."""

    def __init__(self, counter: TokenCounter) -> None:
        self.half = (counter.count(GAP) + 1) // 2
        self.before = counter.count(GAP.lstrip())
        self.after = counter.count(GAP.rstrip())


class Choice:
    """The sentences of one candidate that are taken, and what they cost, kept up to date in constant time a change.

    `cost` adds the tokens of each sentence and each gap mark; a tokenizer that merges across them may count a token
    or two otherwise, so the caller counts the text itself before it promises anything.
    """

    def __init__(self, candidate: Candidate, units: Sequence[Unit], tokens: Sequence[int], gaps: GapCosts) -> None:
        self.candidate = candidate
        self.units = units
        self._sum = 0
        self._tokens = tokens
        self._gaps = gaps
        self._uses = [0] * len(units)
        self._taken: set[int] = set()
        self._all_headings: bool | None = None
        self._compressed: Candidate | None = None

    @property
    def gap(self) -> int:
        """Tokens of half a gap mark: taking a sentence between two taken ones frees two of these."""
        return self._gaps.half

    @property
    def only_headings(self) -> bool:
        if self._all_headings is None:
            self._all_headings = all(unit.heading or unit.header for unit in self.units)
        return self._all_headings

    @property
    def short(self) -> list[int]:
        """The sentences beside one that is taken which may cost no more than the gap mark in their place."""
        longest = 2 * max(self._gaps.half, self._gaps.before, self._gaps.after)
        beside = {unit + step for unit in self._taken for step in (-1, 1)}
        return [at for at in sorted(beside) if 0 <= at < len(self.units) and self._tokens[at] <= longest]

    @property
    def cost(self) -> int:
        """Tokens of what is taken, with its gap marks."""
        if not self._taken:
            return 0
        half = self._gaps.half
        first = 0 if self._uses[0] else self._gaps.before - half
        return self._sum + first + (0 if self._uses[-1] else self._gaps.after - half)

    def __len__(self) -> int:
        return len(self._taken)

    def __contains__(self, unit: int) -> bool:
        """Whether the sentence would be sent, taken itself or needed by another."""
        return self._uses[unit] > 0

    def takes(self, unit: int) -> bool:
        """Whether the sentence was taken itself."""
        return unit in self._taken

    def marginal(self, unit: int) -> int:
        """What taking the sentence, and what it needs, would add to the cost; negative where it closes a gap."""
        before = self.cost
        self.add(unit)
        added = self.cost - before
        self.remove(unit)
        return added

    def add(self, unit: int) -> None:
        self._taken.add(unit)
        for one in (unit, *self.units[unit].needs):
            self._uses[one] += 1
            if self._uses[one] == 1:
                self._change(one, 1)

    def remove(self, unit: int) -> None:
        self._taken.discard(unit)
        for one in (unit, *self.units[unit].needs):
            self._uses[one] -= 1
            if self._uses[one] == 0:
                self._change(one, -1)

    def remove_lonely_headings(self) -> None:
        """Give back the headings with nothing taken under them, unless headings are all there is."""
        if self.only_headings:
            return
        under = {self.units[unit].under for unit in self._taken}
        for unit in sorted(self._taken):
            if self.units[unit].heading and unit not in under:
                self.remove(unit)

    def _change(self, unit: int, sign: int) -> None:
        """Account for one sentence that came (1) or went (-1); `_uses` already tells."""
        self._compressed = None
        # Gap marks are charged half a mark an open edge, so that a change looks at its two neighbours only.
        self._sum += sign * (self._tokens[unit] + self._edge(unit, -1) + self._edge(unit, 1))

    def _edge(self, unit: int, step: int) -> int:
        """How the marks on one side change when the sentence is taken: one more, or one less."""
        other = unit + step
        span = self.units[unit].span
        outside = self.candidate.chunk.span
        if not 0 <= other < len(self.units):
            open_ = span.start > outside.start if step < 0 else span.end < outside.end
            return (self._gaps.before if step < 0 else self._gaps.after) if open_ else 0
        touches = self.units[other].span.end == span.start if step < 0 else span.end == self.units[other].span.start
        return -self._gaps.half if self._uses[other] and touches else self._gaps.half

    def spans(self) -> tuple[Span, ...]:
        """The document spans that are taken. Blanks before a gap go: the mark brings its own."""
        runs: list[Span] = []
        for unit, uses in zip(self.units, self._uses, strict=True):
            if uses:
                if runs and runs[-1].end == unit.span.start:
                    runs[-1] = Span(runs[-1].start, unit.span.end)
                elif unit.span.length:
                    runs.append(unit.span)
        chunk = self.candidate.chunk
        last = self.units[-1].span.end if self.units else chunk.span.end
        for number, run in enumerate(runs):
            if run.end < last:
                text = run.slice(chunk.text, offset=chunk.span.start)
                runs[number] = Span(run.start, run.start + max(1, len(text.rstrip(BLANKS))))
        return tuple(runs)

    def compressed(self) -> Candidate:
        """The candidate with what is taken; itself where that is all of it."""
        if self._compressed is None:
            spans = self.spans()
            whole = spans == self.candidate.spans
            self._compressed = self.candidate if whole else replace(self.candidate, kept=spans, gap=GAP)
        return self._compressed
