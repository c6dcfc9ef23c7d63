"""A dialogue as windows see it: mended, counted, and read only once while it grows."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from operator import is_
from typing import Any

from ctxkit.errors import BudgetError
from ctxkit.history.repair import Entry, Mender
from ctxkit.messages import Message
from ctxkit.protocols import ChatCounter

__all__ = ["SUMMARY", "Recent", "Timeline", "arranged"]

SUMMARY = "summary:"
"""What the id of a summary begins with."""

_PROBE = Message("user", "x")


class Timeline:
    """The entries of one dialogue, in order, and what each costs by one counter. Not safe in threads by itself.

    Attributes:
        entries: each a message, or an assistant message with calls and all their results.
        head: how many of them are the leading system messages.
        newest: the place of the newest user message among the entries, or None.
        settled: how many entries from the first will stay as they are, whatever comes.
        places: of the entries, by the ids of the messages in them.
        summaries: the places of summaries.
        facts: what a window wants to remember of this dialogue, by its own key.
    """

    __slots__ = (
        "_costs",
        "_mender",
        "_overhead",
        "_sums",
        "additive",
        "counter",
        "entries",
        "facts",
        "head",
        "messages",
        "newest",
        "places",
        "settled",
        "summaries",
    )

    def __init__(self, counter: ChatCounter) -> None:
        self.counter = counter
        self.additive = bool(getattr(counter, "additive", False))
        self.messages: list[Message] = []
        self.entries: list[Entry] = []
        self.head = 0
        self.newest: int | None = None
        self.settled = 0
        self.places: dict[str, int] = {}
        self.summaries: list[int] = []
        self.facts: dict[Any, Any] = {}
        self._mender = Mender()
        self._costs: dict[int, tuple[Entry, int]] = {}
        self._overhead: int | None = None
        self._sums: list[int] = [0]

    def read(self, messages: Sequence[Message]) -> None:
        """Take in what comes after the messages that were read before."""
        new = messages[len(self.messages) :]
        for message in new:
            place = self._mender.add(message)
            if place is not None and message.id:
                self.places[message.id] = place
                if message.id.startswith(SUMMARY):
                    self.summaries.append(place)
        self.messages.extend(new)
        known = self.settled
        self.entries, _ = self._mender.finish()
        self.settled = self._mender.settled
        while self.head < len(self.entries) and self.entries[self.head].message.role == "system":
            self.head += 1
        for place in range(len(self.entries) - 1, known - 1, -1):
            if self.entries[place].message.role == "user":
                self.newest = place
                break
        del self._sums[min(known, self.settled) + 1 :]

    def cost(self, place: int) -> int:
        """About what an entry adds to a prompt; counted once."""
        entry = self.entries[place]
        known = self._costs.get(place)
        if known is not None and known[0] is entry:
            return known[1]
        total = sum(map(self.counter.count_message, entry.messages))
        self._costs[place] = entry, total
        return total

    def sums(self) -> list[int]:
        """`sums[n]` is what the first n entries cost together; the list is not to be changed."""
        sums = self._sums
        while len(sums) <= len(self.entries):
            sums.append(sums[-1] + self.cost(len(sums) - 1))
        return sums

    def overhead(self) -> int:
        """About what a prompt costs beside its messages; exactly that where the counter says that it is additive."""
        if self._overhead is None:
            self._overhead = max(0, self.counter.count_prompt([_PROBE]) - self.counter.count_message(_PROBE))
        return self._overhead

    def tokens(self, places: Sequence[int]) -> int:
        """What a prompt of these entries costs, no less; their first assistant messages may be dropped from it."""
        if self.additive:
            return self.overhead() + sum(map(self.cost, places))
        return self.counter.count_prompt(arranged([self.entries[place] for place in places]))

    def stays(self, pinned: Collection[str]) -> list[int]:
        """The places of summaries and of the pinned messages, in order."""
        found = (self.places.get(name, -1) for name in pinned)
        return sorted({*self.summaries, *(place for place in found if place >= self.head)})

    def fixed(self, max_tokens: int) -> int:
        """The tokens of what no window leaves out: the leading system messages and the newest user message.

        Raises:
            BudgetError: these do not fit.
        """
        newest = [] if self.newest is None else [self.entries[self.newest]]
        if not self.head and not newest:
            return 0
        total = self.tokens([*range(self.head), *([] if self.newest is None else [self.newest])])
        if total <= max_tokens:
            return total
        parts = {"system messages": sum(map(self.cost, range(self.head)))}
        subject = "history"
        if self.newest is not None:
            parts["newest user message"] = self.cost(self.newest)
            subject = f"message {newest[0].message.id or newest[0].index}"
        parts["chat format"] = max(0, total - sum(parts.values()))
        raise BudgetError(
            parts={name: count for name, count in parts.items() if count},
            available=max_tokens,
            subject=subject,
            remedy="Give history more room, shorten the message, or let ctxkit.history.Shortened cut long messages.",
        )


class Recent:
    """The dialogues that a window looked at last, so that the next turn reads only what is new.

    A dialogue is known again by the identity of its messages, never by a name. Safe in threads: a timeline is one
    reader's while it is read.
    """

    __slots__ = ("_lock", "_size", "_timelines")

    def __init__(self, size: int = 8) -> None:
        self._size = size
        self._timelines: list[Timeline] = []
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Recent], tuple[int]]:
        return Recent, (self._size,)

    @contextmanager
    def read(self, messages: Sequence[Message], counter: ChatCounter) -> Iterator[Timeline]:
        timeline = self._taken(messages, counter) or Timeline(counter)
        timeline.read(messages)
        try:
            yield timeline
        finally:
            with self._lock:
                self._timelines.insert(0, timeline)
                del self._timelines[self._size :]

    def _taken(self, messages: Sequence[Message], counter: ChatCounter) -> Timeline | None:
        with self._lock:
            for at, timeline in enumerate(self._timelines):
                read = timeline.messages
                if (
                    timeline.counter is counter
                    and 0 < len(read) <= len(messages)
                    and read[-1] is messages[len(read) - 1]
                    and all(map(is_, read, messages))
                ):
                    return self._timelines.pop(at)
        return None


def arranged(entries: Sequence[Entry]) -> list[Message]:
    """The messages of entries that are in order: system messages first, no assistant before the first user message."""
    system = [entry for entry in entries if entry.message.role == "system"]
    others = [entry for entry in entries if entry.message.role != "system"]
    first = next((at for at, entry in enumerate(others) if entry.message.role == "user"), len(others))
    return [message for entry in (*system, *others[first:]) for message in entry.messages]
