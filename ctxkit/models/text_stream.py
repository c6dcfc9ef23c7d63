"""Turns generated pieces into text step by step: whole characters only, and never a piece of a stop text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["StopFilter", "TextStream"]

_UNFINISHED = "\ufffd"


class StopFilter:
    """Lets text pass up to the first stop text; what could still become one is held back.

    Args:
        stops: texts that end the answer; the answer does not contain them.
        marker: from this text on, everything goes to `marked` and not to the answer (a call of a tool).

    Attributes:
        stopped: a stop text was found; nothing more comes.
        marked: the text from the marker on, or "".
    """

    def __init__(self, stops: Sequence[str] = (), *, marker: str = "") -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._marker = marker
        self._held = ""
        self.stopped = False
        self.marked = ""

    def push(self, new: str) -> str:
        """The text that is certain after `new`. Time: linear in what is new and held back."""
        return "" if self.stopped else self._settle(new, final=False)

    def finish(self, new: str = "") -> str:
        """The rest, when nothing more comes."""
        return "" if self.stopped else self._settle(new, final=True)

    def _settle(self, new: str, *, final: bool) -> str:
        text = self._held + new
        self._held = ""
        if self.marked:
            # A stop may have begun in what is marked already; it is no longer than the longest stop.
            begin = max(0, len(self.marked) - max(map(len, self._stops), default=0))
            self.marked += text
            end = self._first_stop(self.marked, begin)
            if end is not None:
                self.stopped = True
                self.marked = self.marked[:end]
            return ""
        end = self._first_stop(text)
        if end is not None:
            self.stopped = True
            text = text[:end]
        if self._marker and (begin := text.find(self._marker)) >= 0:
            self.marked = text[begin:]
            return text[:begin]
        if self.stopped or final:
            return text
        keep = self._undecided(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def _first_stop(self, text: str, begin: int = 0) -> int | None:
        # The stop that is complete first counts, and of two the longer: so it does not matter how the text was cut.
        ends = ((at + len(stop), at) for stop in self._stops if (at := text.find(stop, begin)) >= 0)
        return min(ends, default=(0, None))[1]

    def _undecided(self, text: str) -> int:
        """How many characters at the end could be the beginning of a stop or of the marker."""
        longest = 0
        for mark in (*self._stops, *([self._marker] if self._marker else [])):
            for size in range(min(len(mark) - 1, len(text)), longest, -1):
                if text.endswith(mark[:size]):
                    longest = size
                    break
        return longest


class TextStream:
    """Text of ids as they come; half a character is held back until its other half comes.

    Args:
        decode: ids to text; an incomplete character at the end must come out as U+FFFD.
        stops, marker: of a `StopFilter`.

    Time: each id is decoded with the few before it that its text may depend on.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], *, stops: Sequence[str] = (), marker: str = "") -> None:
        self._decode = decode
        self._filter = StopFilter(stops, marker=marker)
        self._ids: list[int] = []
        self._start = 0  # ids before this one are no longer needed to decode the next
        self._read = 0  # ids before this one are in the text

    @property
    def stopped(self) -> bool:
        return self._filter.stopped

    @property
    def marked(self) -> str:
        return self._filter.marked

    def push(self, token: int) -> str:
        """The text that is certain after one more id."""
        self._ids.append(token)
        before = self._decode(self._ids[self._start : self._read])
        now = self._decode(self._ids[self._start :])
        if now.endswith(_UNFINISHED) or len(now) < len(before):
            return ""
        self._start, self._read = self._read, len(self._ids)
        return self._filter.push(now[len(before) :])

    def finish(self) -> str:
        """The rest when no more ids come; a character that was begun and not finished is left out."""
        before = self._decode(self._ids[self._start : self._read])
        now = self._decode(self._ids[self._start :])
        self._start = self._read = len(self._ids)
        return self._filter.finish(now[len(before) :].rstrip(_UNFINISHED))
