"""`SlidingWindow`: the beginning of a dialogue and what is pinned stay, the rest slides."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from ctxkit.checking import check_kind, check_number, check_whole
from ctxkit.history.filling import fill, tail
from ctxkit.history.timeline import Recent, Timeline
from ctxkit.messages import Message
from ctxkit.protocols import ChatCounter

__all__ = ["SlidingWindow", "affordable", "check_pinned"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindow:
    """The first units and the pinned ones, then the newest units that fit; between the two a gap.

    What is pinned gives way before the newest user message does, and takes at most its share of the room: a window that
    holds nothing but its beginning is no dialogue. Summaries (`summarised`) are pinned.

    Args:
        head: how many units from the beginning stay, leading system messages apart.
        pinned: ids of messages that stay, with the unit that each is in.
        share: the part of the room that the first and the pinned units may take together.
        max_messages: how many messages the window may have, leading system messages apart; None for no limit.

    Example:
        >>> from ctxkit.testing.windows import WordChatCounter
        >>> dialogue = [Message("user", text) for text in ("my name is Ann", "two", "three", "four")]
        >>> [message.text for message in SlidingWindow(head=1).select(dialogue, 21, WordChatCounter())]
        ['my name is Ann', 'three', 'four']
    """

    head: int = 1
    pinned: Collection[str] = ()
    share: float = 0.5
    max_messages: int | None = None
    _recent: Recent = field(init=False, repr=False, compare=False, default_factory=Recent)

    def __post_init__(self) -> None:
        check_whole(self.head, "head", minimum=0)
        object.__setattr__(self, "pinned", check_pinned(self.pinned))
        check_number(self.share, "share", minimum=0, maximum=1, remedy="A share is a number from 0 to 1.")
        if self.max_messages is not None:
            check_whole(self.max_messages, "max_messages", minimum=1, remedy="A window has at least one message.")

    def select(self, messages: Sequence[Message], max_tokens: int, counter: ChatCounter) -> list[Message]:
        """A valid history of at most `max_tokens`, as `counter.count_prompt` counts it by itself. Pure.

        Raises:
            BudgetError: not even the leading system messages and the newest user message fit.
        """
        with self._recent.read(messages, counter) as timeline:
            room = max_tokens - timeline.fixed(max_tokens)
            first = range(timeline.head, min(timeline.head + self.head, len(timeline.entries)))
            stay = dict.fromkeys([*first, *timeline.stays(self.pinned)])
            most = None if self.max_messages is None else int(self.max_messages * self.share)
            stay = dict.fromkeys(affordable(timeline, stay, int(room * self.share), most))

            def preferred() -> Iterator[int]:
                yield from stay
                yield from (place for place in tail(timeline) if place not in stay)

            return fill(timeline, preferred(), max_tokens, max_messages=self.max_messages, gaps=False)


def affordable(
    timeline: Timeline, places: Collection[int], room: int, max_messages: int | None = None
) -> Iterator[int]:
    """Those of the places, in order, that fit together into `room` tokens and a number of messages."""
    for place in places:
        if place == timeline.newest:
            continue
        cost, size = timeline.cost(place), 1 + len(timeline.entries[place].results)
        if cost <= room and (max_messages is None or size <= max_messages):
            room -= cost
            max_messages = None if max_messages is None else max_messages - size
            yield place


def check_pinned(pinned: Collection[str]) -> tuple[str, ...]:
    """The ids, sorted, so that two windows of the same ones are equal."""
    check_kind(pinned, Collection, "pinned", remedy="Give the ids of messages.")
    check_kind(() if isinstance(pinned, str) else pinned, Collection, "pinned", remedy="Give the ids of messages.")
    for name in (pinned,) if isinstance(pinned, str) else pinned:
        check_kind(name, str, "pinned", remedy="Give the ids of messages.")
    return tuple(sorted({pinned} if isinstance(pinned, str) else set(pinned)))
