"""Candidates on their way into the prompt: what each is worth, what it costs, and the blocks of text they become."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ctxkit.assembly.delimiters import NO_TAG, closing, fence_tag, opening
from ctxkit.documents import GAP, Candidate, Source, Span, merge_spans, subtract_spans
from ctxkit.trace import label

__all__ = ["Block", "Pool"]

_FENCE_HINT = 16
"""About the tokens of a fence, for hints."""


@dataclass(frozen=True, slots=True)
class Block:
    """One document's text as it stands between two fences.

    Args:
        before, text, after: the opening fence, the text, the closing fence.
        sources: the document spans of `text`, in order; between two of them stands `gap`.
        members: the candidates that are in it.
    """

    before: str
    text: str
    after: str
    sources: tuple[Source, ...]
    members: tuple[int, ...]
    gap: str = GAP


class Pool:
    """The candidates of one prompt.

    Args:
        candidates: in the order the stages left them, which is the order of the prompt.
        count: tokens of a text by the target model's tokenizer; it remembers, since fences come again and again.

    Attributes:
        values: by candidate, 0 or more: its score; where no candidate has one, its rank.
        hints: by candidate, about its cost, from the chunk's own count by whatever tokenizer; never a promise.
        entangled: the candidates that share characters with another one.
        useless: the candidates that cannot be sent, with the reason.
    """

    def __init__(self, candidates: Sequence[Candidate], count: Callable[[str], int]) -> None:
        self.candidates = candidates
        self._count = count
        self.useless: dict[int, str] = {}
        self._spans: list[tuple[Span, ...]] = [candidate.spans for candidate in candidates]
        self.values = self._values()
        self.hints = [self._hint(index) for index in range(len(candidates))]
        self._sift()
        self._overlaps = self._find_overlaps()
        self.entangled = frozenset(self._overlaps)

    def _values(self) -> list[float]:
        scores = [candidate.score for candidate in self.candidates]
        values = [score if math.isfinite(score) and score > 0 else 0.0 for score in scores]
        if any(values):
            return values
        return [1 - index / len(values) for index in range(len(values))]

    def _hint(self, index: int) -> int:
        chunk = self.candidates[index].chunk
        length = sum(span.length for span in self._spans[index])
        if chunk.token_count > 0 and chunk.text:
            return max(1, chunk.token_count * length // len(chunk.text)) + _FENCE_HINT
        return length // 4 + 1 + _FENCE_HINT

    def _sift(self) -> None:
        """Find what has no text, and what is the same as a candidate of more value."""
        best: dict[tuple[str, tuple[Span, ...], str], int] = {}
        for index, candidate in enumerate(self.candidates):
            whole = candidate.kept is None
            text = candidate.chunk.text if whole else "".join(self._pieces(index))
            if not text:
                self.useless[index] = "it is empty" if whole else "compression left nothing of it"
            elif text.isspace():
                self.useless[index] = "it is blank"
            else:
                key = (candidate.chunk.document_id, self._spans[index], candidate.chunk.text)
                kept = best.setdefault(key, index)
                if kept != index:
                    better, worse = (index, kept) if self.values[index] > self.values[kept] else (kept, index)
                    best[key] = better
                    self.useless[worse] = f"it repeats {label(self.candidates[better].sources)}"

    def _find_overlaps(self) -> dict[int, list[int]]:
        """The candidates that share characters, by candidate. O(n log n), plus the pairs that overlap."""
        overlaps: dict[int, list[int]] = defaultdict(list)
        for indexes in self._by_document(set(range(len(self.candidates))) - self.useless.keys()).values():
            active: list[int] = []
            for index in indexes:
                start = self._spans[index][0].start
                active = [other for other in active if self._spans[other][-1].end > start]
                for other in active:
                    overlaps[index].append(other)
                    overlaps[other].append(index)
                active.append(index)
        return dict(overlaps)

    def _by_document(self, indexes: Iterable[int]) -> dict[str, list[int]]:
        grouped: dict[str, list[int]] = defaultdict(list)
        for index in indexes:
            grouped[self.candidates[index].chunk.document_id].append(index)
        for group in grouped.values():
            group.sort(key=lambda index: (self._spans[index][0], index))
        return grouped

    def _pieces(self, index: int) -> list[str]:
        chunk = self.candidates[index].chunk
        return [span.slice(chunk.text, offset=chunk.span.start) for span in self._spans[index]]

    def weigh(self, index: int, taken: dict[int, int]) -> int | None:
        """The tokens that a candidate adds beside those taken, its fence included; None where it adds no text."""
        candidate = self.candidates[index]
        chunk = candidate.chunk
        spans = self._spans[index]
        if index in self.entangled:
            there = [
                span
                for other in self._overlaps[index]
                if other in taken and self._agree(index, other)
                for span in self._spans[other]
            ]
            spans = subtract_spans(spans, there)
            if not any(span.slice(chunk.text, offset=chunk.span.start).strip() for span in spans):
                return None
        if spans == (chunk.span,):
            text = chunk.text
        else:
            text = candidate.gap.join(span.slice(chunk.text, offset=chunk.span.start) for span in spans)
        source = str(chunk.metadata.get("source", ""))
        before, after = _fences(NO_TAG, len(self.candidates), source, text, spans, chunk.span, candidate.gap)
        return self._count(before) + self._count(text) + self._count(after)

    def _agree(self, index: int, other: int) -> bool:
        """Whether two overlapping chunks show the same text where they overlap; not so across two versions."""
        one, two = self.candidates[index].chunk, self.candidates[other].chunk
        shared = Span(max(one.span.start, two.span.start), min(one.span.end, two.span.end))
        return shared.slice(one.text, offset=one.span.start) == shared.slice(two.text, offset=two.span.start)

    def blocks(self, chosen: Iterable[int]) -> list[Block]:
        """The chosen candidates as numbered blocks, in the order of the candidates.

        Chunks of one document that touch or overlap become one block, at the place of the first of them; no character
        of a document stands in two blocks. Linear in the texts, plus sorting.
        """
        groups: list[tuple[int, ...]] = []
        for indexes in self._by_document(chosen).values():
            groups += self._connected(indexes)
        groups.sort(key=min)
        return [self._block(number, members) for number, members in enumerate(groups, 1)]

    def _connected(self, indexes: list[int]) -> list[tuple[int, ...]]:
        """Groups of chunks of one document that touch or overlap, and agree where they overlap."""
        if len(indexes) == 1:
            return [tuple(indexes)]
        done: list[_Group] = []
        active: list[_Group] = []
        for index in sorted(indexes, key=lambda index: (self.candidates[index].chunk.span, index)):
            span = self.candidates[index].chunk.span
            done += [group for group in active if group.end < span.start]
            active = [group for group in active if group.end >= span.start]
            for group in active:
                group.open = [one for one in group.open if self.candidates[one].chunk.span.end > span.start]
                if all(self._agree(index, other) for other in group.open):
                    group.add(index, span.end)
                    break
            else:
                active.append(_Group([index], [index], span.end))
        return [tuple(sorted(group.members)) for group in done + active]

    def _block(self, number: int, members: tuple[int, ...]) -> Block:
        chunks = [self.candidates[index].chunk for index in members]
        first = chunks[0]
        if len(members) == 1:
            spans = self._spans[members[0]]
            texts = [first.text] if spans == (first.span,) else self._pieces(members[0])
            whole = first.span
        else:
            spans = merge_spans(span for index in members for span in self._spans[index])
            texts = self._texts(spans, members)
            whole = Span(min(chunk.span.start for chunk in chunks), max(chunk.span.end for chunk in chunks))
        gap = self._gap(members)
        text = gap.join(texts)
        source = str(first.metadata.get("source", ""))
        before, after = _fences(fence_tag(text), number, source, text, spans, whole, gap)
        sources = tuple(Source(first.document_id, source, span) for span in spans)
        return Block(before, text, after, sources, members, gap)

    def _gap(self, members: Sequence[int]) -> str:
        """The gap of a block: the clearest of its members'. Pruned words of chunks that overlap must not meet."""
        pruned = [index for index in members if self.candidates[index].kept is not None]
        gap = max((self.candidates[index].gap for index in pruned), key=len, default=GAP)
        return " " if not gap and len(members) > 1 and any(index in self.entangled for index in members) else gap

    def _texts(self, spans: Sequence[Span], members: Sequence[int]) -> list[str]:
        """The texts of spans that the members cover together. Linear after sorting."""
        texts: list[str] = []
        kept = sorted((own.start, own.end, index) for index in members for own in self._spans[index])
        at = 0
        for span in spans:
            pieces: list[str] = []
            position = span.start
            while at < len(kept) and kept[at][0] < span.end:
                _, end, index = kept[at]
                if end > position:
                    chunk = self.candidates[index].chunk
                    pieces.append(Span(position, end).slice(chunk.text, offset=chunk.span.start))
                    position = end
                at += 1
            texts.append("".join(pieces))
        return texts


def _fences(
    tag: str, number: int, source: str, text: str, spans: Sequence[Span], whole: Span, gap: str
) -> tuple[str, str]:
    """What stands before and after `text`: its fences, and marks where `spans` leave out an end of `whole`."""
    before, after = opening(tag, number, source), closing(tag, text)
    if spans[0].start > whole.start:
        before += gap.lstrip()
    if spans[-1].end < whole.end and gap.strip():
        after = gap.rstrip() + closing(tag, "")
    return before, after


@dataclass(slots=True)
class _Group:
    members: list[int]
    open: list[int]
    end: int

    def add(self, index: int, end: int) -> None:
        self.members.append(index)
        self.open.append(index)
        self.end = max(self.end, end)
