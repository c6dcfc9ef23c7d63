"""Parts of one sentence, row or block that is larger than what it may take: the lines, clauses or words that matter.

Coarse before fine: lines, then clauses, then words, then graphemes; each finer cut only inside the one piece that did
not fit. No number, word, name or identifier is torn, and what is denied is not kept without what denies it: graphemes
are for what has no other border, such as base64.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from itertools import accumulate

from ctxkit.compression.guards import is_negation, protected_spans
from ctxkit.compression.terms import asks_for_a_figure, question_terms, terms
from ctxkit.compression.units import ABOUT_A_MARK, BLANKS
from ctxkit.compression.words import UNSPACED
from ctxkit.documents import Span, merge_spans
from ctxkit.protocols import TokenCounter
from ctxkit.text import Graphemes

__all__ = ["Cutter"]

_LINE = re.compile(r"[^\n]*\n(?:[^\S\n]*\n)*|[^\n]+\Z")
# A run of marks or blanks is taken whole, from its beginning: none is read twice.
_MARK = (
    r"(?<![,;:)\]}])(?:[,;)\]}]|(?<![\"']):)++(?=[\s\"'\[{(])\s*+"
    r"|(?<=[\"\]}\w]),(?=[\"\[{\-\d])|\s[–—-]{1,2}\s|—|[，；、：）」』】]"
)
_CLAUSE = re.compile(
    rf"{_MARK}|(?<!\s)\s++(?=(?:and|or|but|nor|which|who|whom|whose|where|when|while|because|although|though|if|unless|after"
    r"|before|since|until|that|as)\s)"
)
_WORD = re.compile(rf"\s*(?:[{UNSPACED}]|[^\s{UNSPACED}]+)|\s+\Z")
_LEVELS = (_LINE, _CLAUSE, _WORD)
_FENCE = re.compile(r" {0,3}(?:`{3}|~{3})")
_LONGEST = 40
"""Characters of what is never torn: a word, a number with its unit. What is longer has no border, such as base64."""
_SCOPE = re.compile(r"[.,;:!?\n，。；：！？、]|\b(?:because|but|although|though|while|which|who|whereas)\b")
"""How far a negation before it reaches."""
_BEFORE = 300
"""Characters that are looked through for a negation."""
_CODE = re.compile(r"[;{}()\[\]:,=>]\s*\Z")
_MOST_WORDS, _TRIES = 32, 16
_STRETCH = 40
"""Characters a token of room that are looked at, of a text much longer than that."""
_BORDER = re.compile(r"[\s,，。]")
_DIGIT = re.compile(r"\d")


class Cutter:
    """Cuts for one question. What a piece is worth is how many of the question's words it has, and what stands near."""

    def __init__(self, question: str, counter: TokenCounter) -> None:
        self._question = question
        self._asked = frozenset(question_terms(question))
        self._words = list(self._asked)[:_MOST_WORDS]
        self._figure = asks_for_a_figure(question)
        self._counter = counter

    def part(self, text: str, room: int) -> list[Span]:
        """Spans of the text of about `room` tokens in all; none where not one word has that room.

        Linear in the text; what is far longer than the room is looked at where most of the question's words are.
        """
        if room <= 0 or not text:
            return []
        stretch = self._stretch(text, room)
        return [one.shift(stretch.start) for one in merge_spans(self._lines(stretch.slice(text), room))]

    def _stretch(self, text: str, room: int) -> Span:
        size = max(4_000, _STRETCH * room)
        if len(text) <= 2 * size:
            return Span(0, len(text))
        blocks = [text[start : start + 2 * size].lower() for start in range(0, len(text) - size, size)]
        best = max(range(len(blocks)), key=lambda at: (sum(word in blocks[at] for word in self._words), -at))
        start, end = best * size, min(len(text), (best + 2) * size)
        graphemes = Graphemes(text[start : end + _BEFORE])
        first = _BORDER.search(text, start, min(end, start + _BEFORE)) if start else None
        last = _BORDER.search(text, end, min(len(text), end + _BEFORE)) if end < len(text) else None
        begin = first.end() - start if first else graphemes.ceil(min(1, start))
        return Span(start + begin, last.end() if last else start + graphemes.ceil(end - start))

    def _lines(self, text: str, room: int) -> list[Span]:
        """Of code, its first line and those that bear on the question, a fence's marks included; else one run."""
        whole = Span(0, len(text))
        lines = _pieces(text, whole, _LINE, ())
        fenced = _FENCE.match(text) is not None
        code = fenced or 2 * sum(_CODE.search(line.slice(text)) is not None for line in lines) >= len(lines)
        if len(lines) < 3 or not code:
            return self._within(text, whole, 1, room)
        costs, found = self._costs(text, lines), self._found(text, lines)
        frame = [0, 1, len(lines) - 1] if fenced and _FENCE.match(lines[-1].slice(text)) else [0, 1] if fenced else [0]
        order = [*frame, *sorted(set(range(len(lines))) - set(frame), key=lambda at: (-len(found[at]), at))]
        taken: set[int] = set()
        left = room
        missed: int | None = None
        for at in order:
            cost = costs[at] + (ABOUT_A_MARK if taken and at - 1 not in taken and at + 1 not in taken else 0)
            if cost <= left:
                taken.add(at)
                left -= cost
            elif missed is None:
                missed = at
        parts = [lines[at] for at in taken]
        if missed is not None:
            parts += self._within(text, lines[missed], 1, left - (ABOUT_A_MARK if taken else 0))
        return sorted(parts)

    def _within(self, text: str, span: Span, level: int, room: int) -> list[Span]:
        """One run of pieces of this level, the one with most to say; then as much of the next piece as fits."""
        if room <= 0:
            return []
        if level >= len(_LEVELS):
            return self._beginning(text, span, room) if span.length > _LONGEST else []
        pieces = _pieces(text, span, _LEVELS[level], self._guarded(text, span))
        if len(pieces) < 2:
            return self._within(text, span, level + 1, room)
        costs, found = self._costs(text, pieces), self._found(text, pieces)
        opens = _opens(text, pieces)
        first, last = _best_run(costs, found, opens, room)
        if first == last:  # not one piece fits
            order = sorted((at for at in range(len(pieces)) if opens[at]), key=lambda at: (-len(found[at]), at))
            tries = (self._within(text, pieces[at], level + 1, room) for at in order[:_TRIES])
            return next((parts for parts in tries if parts), [])
        run = Span(pieces[first].start, pieces[last - 1].end)
        left = room - sum(costs[first:last])
        if last < len(pieces) and left > 0:
            run = Span(run.start, max(run.end, self._reached(text, pieces[last], level, left)))
            left = room - self._counter.count(run.slice(text).rstrip(BLANKS))
        if first > 0 and left > 0:
            run = Span(min(run.start, self._reached_back(text, pieces[first - 1], level, left)), run.end)
        return [run]

    def _reached(self, text: str, span: Span, level: int, room: int) -> int:
        """How far the beginning of a span goes, by whole pieces of this level and then finer ones."""
        if level >= len(_LEVELS):
            long = self._beginning(text, span, room) if span.length > _LONGEST else []
            return long[0].end if long and long[0].start == span.start else span.start
        for piece in _pieces(text, span, _LEVELS[level], self._guarded(text, span)):
            cost = self._counter.count(piece.slice(text))
            if cost > room:
                return self._reached(text, piece, level + 1, room)
            room -= cost
        return span.end

    def _reached_back(self, text: str, span: Span, level: int, room: int) -> int:
        """The same from the end of a span: where its last words begin that have the room, no negation before them."""
        if level >= len(_LEVELS):
            return span.end if span.length <= _LONGEST else self._last(text, span, room)
        pieces = _pieces(text, span, _LEVELS[level], self._guarded(text, span))
        reached = span.end
        for piece, opens in zip(reversed(pieces), reversed(_opens(text, pieces)), strict=True):
            cost = self._counter.count(piece.slice(text))
            if cost > room:
                if reached == piece.end:
                    reached = self._reached_back(text, piece, level + 1, room)
                break
            room -= cost
            if opens:
                reached = piece.start
        return reached

    def _last(self, text: str, span: Span, room: int) -> int:
        """Where the longest end of a span begins that has the room, whole graphemes."""
        low, high = max(span.start, span.end - 4 * room), span.end
        while low < high:
            middle = (low + high) // 2
            fits = self._counter.count(text[middle : span.end]) <= room
            low, high = (low, middle) if fits else (middle + 1, high)
        return min(span.end, Graphemes(text).ceil(low))

    def _beginning(self, text: str, span: Span, room: int) -> list[Span]:
        """The longest beginning of a span that has the room, whole graphemes; after those that have not."""
        graphemes, count = Graphemes(text), self._counter.count
        start = span.start
        while start < span.end and count(text[start : (after := graphemes.ceil(start + 1))]) > room:
            start = after
        low, high = start, min(span.end, start + 4 * room)
        while high < span.end and count(text[start:high]) <= room:
            low, high = high, min(span.end, start + 2 * (high - start))
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if count(text[start:middle]) <= room else (low, middle - 1)
        end = min(span.end, graphemes.floor(low))
        return [Span(start, end)] if end > start else []

    def _guarded(self, text: str, span: Span) -> list[Span]:
        """What is not torn: numbers with their units, names, identifiers; a negation goes with the word after it."""
        found = []
        for one in protected_spans(span.slice(text), self._question):
            guarded = one.shift(span.start)
            if is_negation(guarded.slice(text)) and (after := _WORD.match(text, guarded.end, span.end)):
                guarded = Span(guarded.start, after.end())
            if guarded.length <= _LONGEST:
                found.append(guarded)
        return list(merge_spans(found))

    def _costs(self, text: str, pieces: Sequence[Span]) -> list[int]:
        # A blank at the end is part of the next word's token.
        return [self._counter.count(piece.slice(text).rstrip(BLANKS)) for piece in pieces]

    def _found(self, text: str, pieces: Sequence[Span]) -> list[frozenset[str]]:
        """Which of the question's words each piece has; a figure is one where a figure is asked for."""
        found = []
        for piece in pieces:
            own = piece.slice(text)
            held = self._asked.intersection(terms(own))
            found.append(held | {"0"} if self._figure and _DIGIT.search(own) else held)
        return found


def _pieces(text: str, span: Span, pattern: re.Pattern[str], guarded: Sequence[Span]) -> list[Span]:
    """The span in pieces that end where the pattern does, out of graphemes and guarded stretches; they cover it."""
    graphemes = Graphemes(text)
    inside: Callable[[int], bool] = _inside(guarded)
    found: list[Span] = []
    start = span.start
    for hit in pattern.finditer(text, span.start, span.end):
        end = min(span.end, graphemes.ceil(hit.end()))
        if end > start and not inside(end):
            found.append(Span(start, end))
            start = end
    if start < span.end:
        found.append(Span(start, span.end))
    return found


def _inside(guarded: Sequence[Span]) -> Callable[[int], bool]:
    """Whether a position is inside of one of these spans, asked in rising order."""
    place = 0

    def inside(position: int) -> bool:
        nonlocal place
        while place < len(guarded) and guarded[place].end <= position:
            place += 1
        return place < len(guarded) and guarded[place].start < position

    return inside


def _opens(text: str, pieces: Sequence[Span]) -> list[bool]:
    """Where a run may begin: not after a negation in the same clause, of which the rest would say the opposite."""
    before = text[max(0, pieces[0].start - _BEFORE) : pieces[0].start] if pieces else ""
    denied = _denies(before, False)
    found = []
    for piece in pieces:
        found.append(not denied)
        denied = _denies(piece.slice(text), denied)
    return found


def _denies(text: str, denied: bool) -> bool:
    """Whether what comes after this text is denied by it, or was before and still is."""
    scopes = list(_SCOPE.finditer(text))
    return is_negation(text[scopes[-1].end() :]) if scopes else denied or is_negation(text)


def _best_run(
    costs: Sequence[int], found: Sequence[Collection[str]], opens: Sequence[bool], room: int
) -> tuple[int, int]:
    """The run of pieces, from and to, that has the room, and most different words of the question, then most in all.

    Of equals the one that begins the sentence, as its subject does, then the one whose words are nearest to each other:
    the keys of one object, not of two. Linear. It begins where one may; an empty run where not one piece has the room.
    """
    held: Counter[str] = Counter()
    best, chosen = (-1, 0, False, 0), (0, 0)
    first, used = 0, 0
    before = [0, *accumulate(costs)]
    holders = [at for at, words in enumerate(found) if words]
    nearest, furthest = 0, -1  # of `holders`: the first in the run, the last
    for last, cost in enumerate(costs, start=1):
        used += cost
        held.update(found[last - 1])
        furthest += bool(found[last - 1])
        while first < last and (used > room or not opens[first]):
            used -= costs[first]
            held.subtract(found[first])
            first += 1
        if last < len(costs) and used + costs[last] <= room:
            continue  # there is room for the next piece, too
        while nearest < len(holders) and holders[nearest] < first:
            nearest += 1
        apart = before[holders[furthest] + 1] - before[holders[nearest]] if nearest <= furthest else 0
        value = (sum(count > 0 for count in held.values()), held.total(), not first, -apart)
        if last > first and value > best:
            best, chosen = value, (first, last)
    return chosen
