"""`TailWindow`: the newest part of a dialogue."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from ctxkit.errors import BudgetError, ConfigError
from ctxkit.history.repair import Entry, mend
from ctxkit.messages import Message
from ctxkit.protocols import ChatCounter

__all__ = ["TailWindow"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TailWindow:
    """The newest units that fit, repaired; the newest user message is always among them (law 5).

    The result is the leading system messages, then the dialogue from a user message on. Units are taken from the newest
    to the oldest until one does not fit. Where not even the units after the newest user message fit, that message stays
    and the newest of the units behind it. Everything is kept that `repair` keeps, where everything fits.

    Args:
        max_messages: how many messages the window may have, leading system messages apart; None for no limit.
        high_water: tokens of dialogue that a window may grow to before it is cut; None cuts as late as possible, which
            changes the beginning of the prompt on every turn once the dialogue is longer than its room, so that no
            provider's prompt cache holds. Set it at or below the room that history has.
        low_water: tokens that it is cut down to then; both or neither. Between two cuts the beginning of the window
            stays byte-identical (law 7).

    Example:
        >>> from ctxkit.testing.windows import WordChatCounter
        >>> dialogue = [Message("user", "one two"), Message("assistant", "three"), Message("user", "four five")]
        >>> [message.text for message in TailWindow().select(dialogue, 8, WordChatCounter())]
        ['four five']
    """

    max_messages: int | None = None
    high_water: int | None = None
    low_water: int | None = None

    def __post_init__(self) -> None:
        if self.max_messages is not None and self.max_messages < 1:
            raise ConfigError(f"max_messages is {self.max_messages}", remedy="A window has at least one message.")
        if (self.high_water is None) != (self.low_water is None):
            raise ConfigError("high_water and low_water belong together", remedy="Give both or neither.")
        if self.high_water is not None and not 0 < (self.low_water or 0) <= self.high_water:
            raise ConfigError(
                f"low_water is {self.low_water} and high_water {self.high_water}",
                remedy="Need 0 < low_water <= high_water.",
            )

    def select(self, messages: Sequence[Message], max_tokens: int, counter: ChatCounter) -> list[Message]:
        """A valid history of at most `max_tokens`, as `counter.count_prompt` counts it by itself. Pure.

        Linear in the dialogue; only messages that may be kept are counted, unless there is a high-water mark.

        Raises:
            BudgetError: not even the leading system messages and the newest user message fit.
        """
        entries, _ = mend(messages)
        head = next((at for at, entry in enumerate(entries) if entry.message.role != "system"), len(entries))
        pinned, dialogue = entries[:head], entries[head:]
        newest = next((at for at in reversed(range(len(dialogue))) if dialogue[at].message.role == "user"), None)
        if newest is None:
            self._check(pinned, None, max_tokens, counter)
            return _arranged(pinned, [])
        left = max_tokens - self._check(pinned, dialogue[newest], max_tokens, counter)
        start = self._cut(dialogue, counter)
        kept = self._tail(dialogue, start, newest, left, counter)

        def fits(drop: int) -> bool:
            return counter.count_prompt(_arranged(pinned, _without_oldest(kept, dialogue[newest], drop))) <= max_tokens

        # Messages are planned one by one, which is only about right: the whole is what has to fit.
        drop = 0 if fits(0) else bisect_left(range(len(kept) - 1), True, lo=1, key=fits)
        return _arranged(pinned, _without_oldest(kept, dialogue[newest], drop))

    def _check(self, pinned: Sequence[Entry], newest: Entry | None, max_tokens: int, counter: ChatCounter) -> int:
        """The tokens of what cannot be left out. Raises `BudgetError` when they do not fit."""
        mandatory = [*pinned, *([newest] if newest else [])]
        if not mandatory:
            return 0
        total = counter.count_prompt(_arranged(mandatory, []))
        if total <= max_tokens:
            return total
        system = sum(_cost(entry, counter) for entry in pinned)
        parts = {"system messages": system} if system else {}
        subject = "history"
        if newest is not None:
            parts["newest user message"] = _cost(newest, counter)
            subject = f"message {newest.message.id or newest.index}"
        parts["chat format"] = max(0, total - sum(parts.values()))
        raise BudgetError(
            parts={name: count for name, count in parts.items() if count},
            available=max_tokens,
            subject=subject,
            remedy="Give history more room, or shorten the message.",
        )

    def _cut(self, dialogue: Sequence[Entry], counter: ChatCounter) -> int:
        """Where the dialogue begins after all cuts so far, replayed from its beginning, so that no state is kept."""
        if self.high_water is None or self.low_water is None:
            return 0
        costs: list[int] = []
        start = total = 0
        for at, entry in enumerate(dialogue):
            costs.append(_cost(entry, counter))
            total += costs[at]
            if total > self.high_water:
                while total > self.low_water and start < at:
                    total -= costs[start]
                    start += 1
                while start < at and dialogue[start].message.role == "assistant":
                    total -= costs[start]
                    start += 1
        return start

    def _tail(self, dialogue: Sequence[Entry], start: int, newest: int, left: int, counter: ChatCounter) -> list[Entry]:
        """The newest entries that fit, in order, and the newest user message."""
        places = (self.max_messages or sys.maxsize) - 1
        kept: list[Entry] = []
        at = len(dialogue)
        while at > start:
            entry = dialogue[at - 1]
            if at - 1 != newest:
                cost, size = _cost(entry, counter), len(entry.messages)
                if cost > left or size > places:
                    break
                left -= cost
                places -= size
            kept.append(entry)
            at -= 1
        if at > newest:
            kept.append(dialogue[newest])
        kept.reverse()
        return kept


def _cost(entry: Entry, counter: ChatCounter) -> int:
    return sum(counter.count_message(message) for message in entry.messages)


def _from_user(entries: Sequence[Entry]) -> list[Entry]:
    """Without the assistant messages before the first user message."""
    first = next(at for at, entry in enumerate(entries) if entry.message.role == "user")
    return [entry for at, entry in enumerate(entries) if at >= first or entry.message.role == "system"]


def _without_oldest(kept: Sequence[Entry], newest: Entry, count: int) -> list[Entry]:
    """Without so many of the oldest entries, the newest user message apart, and again from a user message on."""
    optional = [entry for entry in kept if entry is not newest][:count]
    gone = {id(entry) for entry in optional}
    return _from_user([entry for entry in kept if id(entry) not in gone])


def _arranged(pinned: Sequence[Entry], dialogue: Sequence[Entry]) -> list[Message]:
    """System messages first, the others in order, each with its results."""
    system = [entry for entry in dialogue if entry.message.role == "system"]
    others = [entry for entry in dialogue if entry.message.role != "system"]
    return [message for entry in (*pinned, *system, *others) for message in entry.messages]
