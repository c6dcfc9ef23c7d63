"""`Summarised`: what a cut takes away is said again in a summary."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ctxkit.checking import check_able, check_number, check_whole
from ctxkit.documents import content_hash
from ctxkit.errors import ConfigError
from ctxkit.history.extractive_summary import ExtractiveSummariser
from ctxkit.history.hysteresis import cuts
from ctxkit.history.repair import Entry
from ctxkit.history.sliding_window import SlidingWindow
from ctxkit.history.summaries import Summariser, Summary, extend
from ctxkit.history.timeline import Recent, Timeline
from ctxkit.messages import Message
from ctxkit.protocols import ChatCounter, Window
from ctxkit.trace import StageRecord

__all__ = ["Summarised"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarised:
    """A window in which the messages before the last cut are replaced by a rolling summary of them.

    The cuts are those of `Hysteresis`: a summary is made only when the high-water mark is passed, and the prompt's
    beginning stays byte-identical in between. Each message is read once by the summariser, with the cut that takes it
    away. A summary that fails, is empty or is not shorter replaces nothing: the window chooses among the messages
    themselves, `notes` says why, and it is tried again at the next cut. The newest user message is never summed up.

    Args:
        window: chooses among the summary and the messages after the cut; `SlidingWindow` keeps summaries.
        summariser: `ExtractiveSummariser`, or `ModelSummariser(model=…)`, whose model is then asked inside of `select`.
        high_water: tokens of history that are passed before it is cut; by default the room itself.
        low: what is left at a cut, the summary included, as a share of the high-water mark.
        known: where summaries are kept, by the summariser's name and hashes of what it read: pass a mapping that
            outlives the process, and no message is summed up twice.

    Attributes:
        notes: what became of the last summary.

    Example:
        >>> from ctxkit.testing.windows import WordChatCounter
        >>> said = [Message("user", f"I saw town {number} today. Well, well.", id=str(number)) for number in range(9)]
        >>> kept = Summarised(summariser=ExtractiveSummariser(max_tokens=20)).select(said, 60, WordChatCounter())
        >>> kept[0].text.splitlines()[0]
        '[Summary of 7 earlier messages]'
    """

    window: Window = field(default_factory=lambda: SlidingWindow(head=0))
    summariser: Summariser = field(default_factory=ExtractiveSummariser)
    high_water: int | None = None
    low: float = 0.5
    known: MutableMapping[str, Summary] = field(default_factory=dict, repr=False, compare=False)
    notes: dict[str, Any] = field(init=False, repr=False, compare=False, default_factory=dict)
    _failed: dict[str, None] = field(init=False, repr=False, compare=False, default_factory=dict)
    _recent: Recent = field(init=False, repr=False, compare=False, default_factory=Recent)

    def __post_init__(self) -> None:
        check_able(self.window, "select", "window", remedy="Give a window, such as SlidingWindow(head=0).")
        check_able(self.summariser, "summarise", "summariser", remedy="Give a summariser.")
        if self.high_water is not None:
            check_whole(self.high_water, "high_water", minimum=1)
        check_number(self.low, "low", minimum=0, maximum=1, remedy="A share is a number above 0 and at most 1.")
        if not self.low:
            raise ConfigError("low is 0", remedy="Something must be left at a cut: give a share such as 0.5.")

    def select(self, messages: Sequence[Message], max_tokens: int, counter: ChatCounter) -> list[Message]:
        """A valid history of at most `max_tokens`, as `counter.count_prompt` counts it by itself.

        Pure where the summariser is.

        Raises:
            BudgetError: the window has no room for what must stay.
        """
        high = min(max_tokens, self.high_water or max_tokens)
        low = max(1, int(high * self.low))
        with self._recent.read(messages, counter) as timeline:
            summary, end = self._newest(timeline, cuts(timeline, high, low), low)
            known = timeline.facts.get("message")
            if summary is not None and (known is None or known[0] is not summary):
                known = timeline.facts["message"] = summary, summary.message
            shown = _messages(timeline.entries)
            if summary is not None and known is not None:
                head = _messages(timeline.entries[: timeline.head])
                shown = [*head, known[1], *_messages(timeline.entries[end:])]
        return list(self.window.select(shown, max_tokens, counter))

    def _newest(self, timeline: Timeline, ends: Sequence[int], low: int) -> tuple[Summary | None, int]:
        """The last summary that there is, made where it is not known, and up to which entry it goes."""
        ends = self._ends(timeline, ends, low)
        digests = _digests(timeline, ends[-1] if ends else 0)
        # A summary is what was read, in the pieces in which it was read: its key is a chain of these.
        keys, key = [], self.summariser.name
        for end in ends:
            key = content_hash([key, digests[end]])
            keys.append(key)
        summary, start = None, timeline.head
        first = next((at for at in reversed(range(len(ends))) if keys[at] in self.known), None)
        if first is not None:
            summary, start, key = self.known[keys[first]], ends[first], keys[first]
        for at in range(0 if first is None else first + 1, len(ends)):
            new = _messages(timeline.entries[start : ends[at]])
            if keys[at] in self._failed or not all(message.id for message in new):
                continue
            record = StageRecord("summary")
            made = extend(summary, new, digests[ends[at]], self.summariser, record=record)
            self.notes.clear()
            self.notes.update(record.notes)
            if made is summary or made is None:
                self._failed[keys[at]] = None
                continue
            if summary is not None:
                self.known.pop(key, None)  # the new one holds what it held
            self.known[keys[at]] = summary = made
            start, key = ends[at], keys[at]
        return summary, start

    def _ends(self, timeline: Timeline, cut: Sequence[int], low: int) -> list[int]:
        """Up to which entry each cut sums up: what stays whole fills the low-water mark beside a summary."""
        longest = min(getattr(self.summariser, "max_tokens", low // 3), low // 2)
        sums, newest = timeline.sums(), timeline.newest or 0
        ends = (min(bisect_left(sums, sums[each] - (low - longest)), newest) for each in cut)
        return [end for end in dict.fromkeys(ends) if end > timeline.head]


def _digests(timeline: Timeline, end: int) -> list[str]:
    """For each count of entries from the head on, the digest of their messages; `digests[n]` is that of n entries."""
    known: list[tuple[Any, str]] = timeline.facts.setdefault("digests", [(hashlib.sha256(), "")])
    found = known[:]
    while len(found) <= end:
        running = found[-1][0].copy()
        place = len(found) - 1
        if place >= timeline.head:
            for message in timeline.entries[place].messages:
                running.update(message.content_hash.encode("ascii"))
        found.append((running, running.hexdigest()))
    known.extend(found[len(known) : timeline.settled + 1])
    return [text for _, text in found]


def _messages(entries: Sequence[Entry]) -> list[Message]:
    return [message for entry in entries for message in entry.messages]
