"""Which sentences fit: exact accounting of what a choice costs, gap marks included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from ctxkit.compression.overlaps import Claims
from ctxkit.compression.units import BLANKS, Unit
from ctxkit.documents import GAP, Candidate, Span
from ctxkit.protocols import TokenCounter
from ctxkit.text import is_grapheme_boundary

__all__ = ["Choice", "GapCosts"]


class GapCosts:
    """What the three forms of the gap mark cost by a counter: between pieces, before the first, after the last.

    Each is counted beside sentences: a tokenizer that joins a full stop and the new line after it counts fewer so.
    """

    def __init__(self, counter: TokenCounter) -> None:
        alone = counter.count("It is.")
        self.half = (max(1, counter.count(f"It is.{GAP}It is.") - 2 * alone) + 1) // 2
        self.before = max(1, counter.count(f"{GAP.lstrip()}It is.") - alone)
        self.after = max(1, counter.count(f"It is.{GAP.rstrip()}") - alone)


class Choice:
    """The sentences of one candidate that are taken, and what they cost, kept up to date in constant time a change.

    `cost` adds the tokens of each sentence and each gap mark; a tokenizer that merges across them may count a token
    or two otherwise, so the caller counts the text itself before it promises anything.

    A sentence that is not taken may be sent in parts (`cut`); these are not in `cost`. Where other candidates overlap
    this one, `claims` says who has taken what; only what is `free` may be added or cut.
    """

    def __init__(
        self,
        candidate: Candidate,
        units: Sequence[Unit],
        tokens: Sequence[int],
        gaps: GapCosts,
        claims: Claims | None = None,
    ) -> None:
        self.candidate = candidate
        self.units = units
        self._sum = 0
        self._tokens = tokens
        self._gaps = gaps
        self._uses = [0] * len(units)
        self._taken: set[int] = set()
        self._parts: dict[int, tuple[Span, ...]] = {}
        self._marked = True
        self._claims = claims
        self._brought: dict[int, tuple[int, ...]] = {}
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
        return len(self._taken) + len(self._parts)

    def __contains__(self, unit: int) -> bool:
        """Whether the sentence would be sent, whole or in parts, taken itself or needed by another."""
        return self._uses[unit] > 0 or unit in self._parts

    def takes(self, unit: int) -> bool:
        """Whether the sentence was taken itself."""
        return unit in self._taken

    def free(self, unit: int) -> bool:
        """Whether no candidate that overlaps this one has taken a part of the sentence."""
        return self._claims is None or self._claims.free(self.units[unit].span, self)

    def marginal(self, unit: int) -> int:
        """What taking the sentence, and what it needs, would add to the cost; negative where it closes a gap."""
        before = self.cost
        self.add(unit)
        added = self.cost - before
        self.remove(unit)
        return added

    def least(self, unit: int) -> int:
        """What a sentence costs with what it needs and nothing else, marks included."""
        sent = (*self.units[unit].needs, unit)  # a header stands above its rows
        apart = sum(left + 1 != right for left, right in pairwise(sent))
        ends = self._gaps.before * (sent[0] > 0) + self._gaps.after * (unit + 1 < len(self.units))
        return sum(self._tokens[one] for one in sent) + 2 * self._gaps.half * apart + ends

    def add(self, unit: int, *, bare: bool = False) -> None:
        """Take a sentence, with what it needs unless it is to be `bare`."""
        self._taken.add(unit)
        needs = self.units[unit].needs
        if bare:
            needs = self._brought[unit] = ()
        elif self._claims is not None and needs:  # a header that another candidate sends is not sent again
            needs = self._brought[unit] = tuple(filter(self.free, needs))
        for one in (unit, *needs):
            self._uses[one] += 1
            if self._uses[one] == 1:
                self._change(one, 1)

    def remove(self, unit: int) -> None:
        self._taken.discard(unit)
        for one in (unit, *self._brought.pop(unit, self.units[unit].needs)):
            self._uses[one] -= 1
            if self._uses[one] == 0:
                self._change(one, -1)

    def cut(self, unit: int, parts: Sequence[Span], *, marked: bool = True) -> None:
        """Send these parts of a sentence, spans of its text; none of it where there are none.

        Without `marked` the candidate has no gap marks: for a target that has no room for them.
        """
        self._compressed = None
        self._marked = marked
        span = self.units[unit].span
        if self._claims is not None and bool(parts) != (unit in self._parts):
            if parts:
                self._claims.claim(span, self)
            else:
                self._claims.release(span)
        if parts:
            start = span.start
            self._parts[unit] = tuple(part.shift(start) for part in parts)
        else:
            self._parts.pop(unit, None)

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
        if self._claims is not None:
            if sign > 0:
                self._claims.claim(self.units[unit].span, self)
            else:
                self._claims.release(self.units[unit].span)
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
        chunk = self.candidate.chunk
        runs: list[Span] = []
        for number, (unit, uses) in enumerate(zip(self.units, self._uses, strict=True)):
            for span in (unit.span,) if uses else self._parts.get(number, ()):
                if runs and runs[-1].end == span.start:
                    runs[-1] = Span(runs[-1].start, span.end)
                elif span.length:
                    runs.append(span if uses else self._without_blanks(span))
        last = self.units[-1].span.end if self.units else chunk.span.end
        for number, run in enumerate(runs):
            if run.end < last:
                text = run.slice(chunk.text, offset=chunk.span.start)
                runs[number] = Span(run.start, run.start + max(1, len(text.rstrip(BLANKS))))
        return tuple(runs)

    def _without_blanks(self, part: Span) -> Span:
        """The part of a sentence without the blanks before it; with them where it begins a line, as code does."""
        chunk = self.candidate.chunk
        text = part.slice(chunk.text, offset=chunk.span.start)
        start = part.start + len(text) - len(text.lstrip(BLANKS))
        line = chunk.text[: part.start - chunk.span.start].endswith(("\n", "\r"))
        whole = start < part.end and is_grapheme_boundary(chunk.text, start - chunk.span.start)
        return Span(start, part.end) if whole and not line else part

    def compressed(self) -> Candidate:
        """The candidate with what is taken; itself where that is all of it."""
        if self._compressed is None:
            spans = self.spans()
            whole = spans == self.candidate.spans
            gap = GAP if self._marked else ""
            self._compressed = self.candidate if whole else replace(self.candidate, kept=spans, gap=gap)
        return self._compressed
