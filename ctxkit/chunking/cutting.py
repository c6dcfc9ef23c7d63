"""The cutter that every chunker shares: where a chunk begins and ends, given the places a text may be cut at.

It works from the top down: guess how far the maximum reaches, take the best separator before that, count the text that
would be emitted, and correct the guess. No count is ever added to another, so that any counter will do; the promise
rests on the count of the emitted text alone. Each chunk costs one count where the density of tokens is steady, two or
three where it jumps, and a look through a window of about the chunk's own length: linear in the text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from ctxkit.documents import Span
from ctxkit.errors import ChunkingError
from ctxkit.text import Graphemes

__all__ = ["Cutter", "Level", "Piece", "Progress"]

_CONTENT = re.compile(r"\S")
_LINE_REST = re.compile(r"[^\S\n]*+(?:\n|\Z)")
_WIDE = 256  # characters
_WIDEST_INDENT = 200
_FIRST_RATIO = 3.0  # characters a token, until the first count tells
_CAUTION = 0.95  # of the distance the last density promises: one guess in ten is too far, none is far too near
_TRIES = 5  # guesses by proportion


class Piece(NamedTuple):
    """A span to emit, and the exact tokens of its text."""

    span: Span
    tokens: int


class Progress(NamedTuple):
    """How far a text is cut: all that the next piece depends on, besides the text.

    Args:
        at: the text before it is done.
        start: where the next piece begins, when that is before `at`: it repeats the end of the piece before.
        ratio: characters a token, lately.
        broken: the one grapheme that alone is over the limit, while we are in it.
    """

    at: int = 0
    start: int | None = None
    ratio: float = _FIRST_RATIO
    broken: Span = Span(0, 0)

    def shift(self, by: int) -> Progress:
        """The same, in a text that begins `by` characters earlier."""
        start = None if self.start is None else self.start + by
        return Progress(self.at + by, start, self.ratio, Span(self.broken.start + by, self.broken.end + by))


class Level(Protocol):
    """One kind of separator. `fill`: how much of the reach must lie before a cut, for it to be preferred to a cut at a
    lower level."""

    @property
    def fill(self) -> float: ...

    def positions(self, text: str, low: int, high: int) -> Sequence[int]:
        """The places to cut at in `[low, high]`, in order."""
        ...


class _Reach(NamedTuple):
    cut: int  # where the rest of the text begins
    end: int  # where the emitted text ends: `cut` less the white space before it
    tokens: int


class Cutter:
    """Cuts one text.

    Args:
        count: tokens of a text; it need not be additive.
        limit: the most tokens of a piece.
        overlap: the most tokens of a piece that repeat the end of the piece before; less than `limit`.
        levels: the separators, best first. Below the last one a text is cut between graphemes.
        overlap_levels: the separators an overlap may begin at.
        blocks: sorted, disjoint spans that are not cut unless one alone is over the limit.
    """

    def __init__(
        self,
        text: str,
        *,
        count: Callable[[str], int],
        limit: int,
        overlap: int,
        levels: Sequence[Level],
        overlap_levels: Sequence[Level],
        blocks: Sequence[Span],
    ) -> None:
        self._text = text
        self._count = count
        self._limit = limit
        self._overlap = overlap
        self._levels = levels
        self._overlap_levels = overlap_levels
        self._blocks = blocks
        self._block_starts = [block.start for block in blocks]
        self._whole: dict[int, Span | None] = {}  # of the blocks looked at: with whole graphemes, if they fit
        self._graphemes = Graphemes(text)
        self._broken = Progress().broken
        self._ratio = _FIRST_RATIO
        self.looked = 0
        """The end of the text that decisions have looked at; they might have been others if it had been another."""
        self._slack = max(0, limit - 8) // 5  # room that is not worth another count to fill up

    def pieces(self) -> Iterator[Piece]:
        """The pieces in order: they cover every non-blank character, and each reaches further than the one before."""
        progress: Progress | None = Progress()
        while progress is not None:
            piece, progress = self.step(progress)
            if piece is not None:
                yield piece

    def least(self, progress: Progress) -> int:
        """How far the next step looks at the least."""
        start = progress.at if progress.start is None else progress.start
        return start + int(self._limit * progress.ratio * _CAUTION)

    def step(self, progress: Progress) -> tuple[Piece | None, Progress | None]:
        """The next piece, and what follows on it; None for no piece this time, and None after the last.

        Pure but for `looked`.
        """
        self._ratio, self._broken = progress.ratio, progress.broken
        fresh = self._skip(progress.at)
        if fresh >= len(self._text):
            return None, None
        start = fresh if progress.start is None else progress.start
        reach = self._reach(start, fresh if progress.start is None else self._content(fresh))
        if reach is None:  # nothing new fits behind what would be repeated
            return None, Progress(progress.at, None, self._ratio, self._broken)
        if reach.end <= start:
            return None, Progress(reach.cut, None, self._ratio, self._broken)
        piece = Piece(Span(start, reach.end), reach.tokens)
        again = self._overlap_start(start, reach.end) if self._overlap else reach.end
        return piece, Progress(reach.cut, again if again < reach.end else None, self._ratio, self._broken)

    # ------------------------------------------------------------------------------------------ one piece

    def _reach(self, start: int, after: int) -> _Reach | None:
        """The longest piece we find from `start` that ends after `after`; None where none fits that does.

        Where `after` is `start`, one always fits, or `ChunkingError` is raised.
        """
        text, limit, size = self._text, self._limit, len(self._text)
        best: _Reach | None = None
        too_far = size + 1
        guess = start + int(limit * self._ratio * _CAUTION)
        attempt = 0
        while True:  # each turn brings `best` and `too_far` nearer to each other
            attempt += 1
            guess = min(max(guess, after + 1), too_far - 1)
            self._look(guess)
            guess = min(guess, size)
            cut = self._cut_before(start, after, guess)
            if cut is None:
                cut = self._cut_after(after)
            if cut >= too_far:
                if best is not None or after > start:
                    return best
                too_far = self._break_up(start, too_far)
                continue
            if best is not None and cut <= best.cut:
                return best
            end = self._trim(start, cut)
            if end <= start:
                return _Reach(cut, start, 0)
            tokens = self._count(text[start:end])
            if tokens > limit:
                too_far = cut
                known, room = (start, limit) if best is None else (best.end, limit - best.tokens)
                if best is not None and (attempt >= _TRIES or room <= 2 * self._slack):
                    return best
                # Between what fits and what does not, tokens are taken to be even; where they are not, halve.
                part = _CAUTION * room / (room + tokens - limit) if attempt <= _TRIES else 0.5
                guess = known + int((end - known) * part)
                continue
            best = _Reach(cut, *self._with_line_end(start, end, tokens))
            if cut == size or cut + 1 >= too_far:
                return best
            ratio = (end - start) / max(tokens, 1)
            self._ratio = ratio if tokens > limit // 4 else (self._ratio + ratio) / 2
            if limit - tokens <= self._slack:
                return best
            guess = start + int(limit * ratio) + 1

    def _cut_before(self, start: int, after: int, guess: int) -> int | None:
        """The best place to cut in `(after, guess]`, or None where there is none."""
        if guess >= len(self._text):
            return len(self._text)
        block = self._whole_block(guess)
        if block is not None:
            guess = block.start
        for level in self._levels:
            low = start + int((guess - start) * level.fill)
            if low <= after:
                low = after + 1
            position = self._last_cut(level, low, guess)
            if position is not None:
                return position
        position = self._floor(guess)
        return position if position > after else None

    def _last_cut(self, level: Level, low: int, high: int) -> int | None:
        """The last place in `[low, high]` where the level may cut. In a wide window, the end is looked at first."""
        while low <= high:
            left = high - (high - low) // 4 if high - low > _WIDE else low
            for position in reversed(level.positions(self._text, left, high)):
                if self._may_cut(position):
                    return position
            high = left - 1
        return None

    def _cut_after(self, after: int) -> int:
        """The first place after `after` that may be cut at all."""
        position = self._ceil(after + 1)
        block = self._whole_block(position)
        return position if block is None else block.end

    def _break_up(self, start: int, too_far: int) -> int:
        """Allow cuts inside the grapheme at `start`, which alone is over the limit. Returns the new bound."""
        cluster = self._graphemes.around(start + 1)
        if cluster is None or cluster == self._broken:
            character = self._text[start:too_far]
            raise ChunkingError(
                f"one character alone has {self._count(character)} tokens, more than max_tokens={self._limit}",
                subject=ascii(character),
                remedy="Raise max_tokens: every character must fit.",
            )
        self._broken = cluster
        return too_far

    # ---------------------------------------------------------------------------------------- where to cut

    def _may_cut(self, position: int) -> bool:
        return self._floor(position) == position and self._whole_block(position) is None

    def _look(self, end: int) -> None:
        if end > self.looked:
            self.looked = end

    def _grapheme(self, position: int) -> Span | None:
        """The grapheme that `position` is inside of, unless it is the one that is broken up."""
        cluster = self._graphemes.around(position)
        if cluster is None or cluster == self._broken:
            return None
        self._look(cluster.end)
        return cluster

    def _floor(self, position: int) -> int:
        cluster = self._grapheme(position)
        return position if cluster is None else cluster.start

    def _ceil(self, position: int) -> int:
        cluster = self._grapheme(position)
        return position if cluster is None else cluster.end

    def _whole_block(self, position: int) -> Span | None:
        """The block that `position` is inside of and that fits: it must stay whole."""
        at = bisect_right(self._block_starts, position - 1) - 1
        if at < 0 or position >= self._blocks[at].end:
            return None
        if self._blocks[at].start < 0:  # it began before this part of the text, and was cut there
            return None
        if at not in self._whole:
            block = Span(self._graphemes.floor(self._blocks[at].start), self._graphemes.ceil(self._blocks[at].end))
            tokens = self._count(block.slice(self._text))
            if tokens <= self._limit + self._limit // 8 + 16:  # what is further over stays so, whatever follows on it
                self._look(block.end)
            self._whole[at] = block if tokens <= self._limit else None
        return self._whole[at]

    # ----------------------------------------------------------------------------------------- white space

    def _content(self, position: int) -> int:
        """The first character at or after `position` that is not blank; the length of the text where there is none."""
        found = _CONTENT.search(self._text, position)
        content = len(self._text) if found is None else found.start()
        self._look(content)
        return content

    def _skip(self, position: int) -> int:
        """Where the next piece begins: blank lines are skipped, the indentation of its first line is not."""
        content = self._content(position)
        if content == len(self._text):
            return content
        line = 1 + max(self._text.rfind("\n", position, content), self._text.rfind("\r", position, content))
        if not line and (position == 0 or self._text[position - 1] in "\n\r"):
            line = position
        indented = position <= line and content - line <= _WIDEST_INDENT
        # White space may be the base of a combining mark: then it belongs to the piece.
        return max(position, self._floor(line if indented else content))

    def _trim(self, start: int, cut: int) -> int:
        """Where the text before `cut` ends without its trailing white space, that of a whole block excepted."""
        kept = len(self._text[start:cut].rstrip())
        if not kept:
            return start
        end = self._ceil(start + kept)
        block = self._whole_block(end)
        return end if block is None else block.end

    def _with_line_end(self, start: int, end: int, tokens: int) -> tuple[int, int]:
        """After a block, keep the line end that closes it, if it fits."""
        at = bisect_right(self._block_starts, end - 1) - 1
        if at < 0 or self._blocks[at].end != end:
            return end, tokens
        found = _LINE_REST.match(self._text, end)
        further = found.end() if found else end
        self._look(further)
        if further == end:
            return end, tokens
        more = self._count(self._text[start:further])
        return (further, more) if more <= self._limit else (end, tokens)

    # --------------------------------------------------------------------------------------------- overlap

    def _overlap_start(self, start: int, end: int) -> int:
        """Where the piece after `text[start:end]` begins, to repeat at most `overlap` tokens of it; `end` for none."""
        low = max(start + 1, end - int(self._overlap * self._ratio))
        for _ in range(8):
            position = self._first_cut(low, end)
            if position is None:
                return end
            position = self._skip(position)
            if position >= end:
                return end
            if position > start and self._count(self._text[position:end]) <= self._overlap:
                return position
            low = max(position + 1, end - (end - position) * 3 // 4)
        return end

    def _first_cut(self, low: int, end: int) -> int | None:
        for level in self._overlap_levels:
            for position in level.positions(self._text, low, min(end - 1, low + int((end - low) * (1 - level.fill)))):
                if self._may_cut(position):
                    return position
        return None
