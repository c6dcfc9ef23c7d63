"""`Hysteresis`: a window that is cut rarely and deep, so that a prompt cache holds in between."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from ctxkit.checking import check_able, check_number, check_whole
from ctxkit.errors import BudgetError, ConfigError
from ctxkit.history.repair import Entry
from ctxkit.history.tail_window import TailWindow
from ctxkit.history.timeline import Recent, Timeline, arranged
from ctxkit.messages import Message
from ctxkit.protocols import ChatCounter, Window

__all__ = ["Hysteresis", "cuts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hysteresis:
    """Lets another window choose only when the dialogue has passed the high-water mark, and then down to the low one.

    Between two cuts messages are only added to the end, so that the prompt's beginning stays byte-identical (law 7).
    No state is kept: where the cuts were follows from the messages alone, so that two processes agree. A cut leaves
    what the inner window chose of everything before it, in the low-water mark, and is reckoned as if it had filled it.

    Args:
        window: chooses at each cut; a window that looks at the question sees the newest one before the cut.
        high_water: tokens of history that are passed before it is cut; by default the room itself. Set it where the
            room changes from turn to turn, as it does beside documents, at the least of it.
        low: what is left at a cut, as a share of the high-water mark.

    Source: the two thresholds of a Schmitt trigger.

    Example:
        >>> from ctxkit.testing.windows import WordChatCounter
        >>> dialogue = [Message("user", str(number)) for number in range(12)]
        >>> starts = [Hysteresis(low=0.5).select(dialogue[:end], 24, WordChatCounter())[0].text for end in range(1, 13)]
        >>> "".join(starts)
        '000003336669'
    """

    window: Window = field(default_factory=TailWindow)
    high_water: int | None = None
    low: float = 0.73
    _recent: Recent = field(init=False, repr=False, compare=False, default_factory=Recent)

    def __post_init__(self) -> None:
        check_able(self.window, "select", "window", remedy="Give a window, such as TailWindow().")
        if self.high_water is not None:
            check_whole(self.high_water, "high_water", minimum=1)
        check_number(self.low, "low", minimum=0, maximum=1, remedy="A share is a number above 0 and at most 1.")
        if not self.low:
            raise ConfigError("low is 0", remedy="Something must be left at a cut: give a share such as 0.7.")

    def select(self, messages: Sequence[Message], max_tokens: int, counter: ChatCounter) -> list[Message]:
        """A valid history of at most `max_tokens`, as `counter.count_prompt` counts it by itself. Pure.

        The first time every message is counted; a turn later only what is new is.

        Raises:
            BudgetError: the inner window does not find room for what must stay.
        """
        high = min(max_tokens, self.high_water or max_tokens)
        low = max(1, int(high * self.low))
        with self._recent.read(messages, counter) as timeline:
            timeline.fixed(max_tokens)
            cut = next(reversed(cuts(timeline, high, low)), 0)
            try:
                kept = self._before(timeline, cut, low)
            except BudgetError:  # what must stay is over the mark, though not over the room
                kept = None
            if kept is not None:
                whole = _joined(kept, timeline.entries[cut:])
                if not whole or self._tokens(timeline, cut, kept, whole) <= max_tokens:
                    return whole
            return list(self.window.select(_messages(timeline.entries), max_tokens, counter))

    def _tokens(self, timeline: Timeline, cut: int, kept: Sequence[Message], whole: Sequence[Message]) -> int:
        """What the whole costs, no less: the first assistant messages after a cut may not be in it."""
        if not timeline.additive:
            return timeline.counter.count_prompt(whole)
        key = ("cost", id(kept))
        known = timeline.facts.get(key)
        if known is None or known[0] is not kept:
            for old in [old for old in timeline.facts if old[0] == "cost"]:
                del timeline.facts[old]
            known = timeline.facts[key] = kept, sum(map(timeline.counter.count_message, kept))
        sums = timeline.sums()
        return timeline.overhead() + int(known[1]) + sums[-1] - sums[cut]

    def _before(self, timeline: Timeline, cut: int, low: int) -> list[Message]:
        """What the inner window keeps of the entries before a cut; remembered while these cannot change."""
        if cut == 0:
            return []
        key = ("before", cut, low)
        if key in timeline.facts:
            kept: list[Message] = timeline.facts[key]
            return kept
        chosen = list(self.window.select(_messages(timeline.entries[:cut]), low, timeline.counter))
        if timeline.settled >= cut:
            for old in [old for old in timeline.facts if old[0] == "before" and old[2] == low]:
                del timeline.facts[old]
            timeline.facts[key] = chosen
        return chosen


def cuts(timeline: Timeline, high: int, low: int) -> list[int]:
    """How many entries are before each cut; none where the mark was never passed. O(cuts * log n)."""
    sums = timeline.sums()
    found: list[int] = []
    cut, room = 0, max(0, high - timeline.overhead())
    while True:
        # The first entry with which the room since the last cut is passed, the one after the cut always let in.
        over = bisect_right(sums, sums[cut] + room) - 1
        if over >= len(timeline.entries):
            return found
        cut, room = max(over, cut + 1), high - low
        found.append(cut)


def _messages(entries: Sequence[Entry]) -> list[Message]:
    return [message for entry in entries for message in entry.messages]


def _joined(kept: Sequence[Message], entries: Sequence[Entry]) -> list[Message]:
    """A window's messages and the entries after it: system messages first, from a user message on."""
    if not any(message.role == "user" for message in kept):
        return [*(message for message in kept if message.role == "system"), *arranged(entries)]
    system = sum(message.role == "system" for message in kept)
    late = _messages([entry for entry in entries if entry.message.role == "system"])
    others = _messages([entry for entry in entries if entry.message.role != "system"])
    return [*kept[:system], *late, *kept[system:], *others]
