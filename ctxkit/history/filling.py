"""Filling a window: entries in an order of preference, as long as they fit, and the whole counted at the end."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterable

from ctxkit.history.timeline import Timeline, arranged
from ctxkit.messages import Message

__all__ = ["fill", "tail"]

_LEAST = 3
"""Tokens; nothing is expected to cost less, so that a full window does not try what is left."""
_PATIENCE = 50
"""Entries in a row that do not fit, after which a window is as good as full."""


def fill(
    timeline: Timeline,
    preferred: Iterable[int],
    max_tokens: int,
    *,
    max_messages: int | None = None,
    gaps: bool = True,
    kept: list[int] | None = None,
) -> list[Message]:
    """The leading system messages, the newest user message, and what fits of the preferred; in their own order.

    Args:
        preferred: places of entries, the most wanted first; the newest user message and the head may be among them.
        max_messages: how many messages there may be, the leading system messages apart.
        gaps: whether what does not fit is passed over; else it ends the filling. With gaps, a user message is kept
            before the first assistant's, the dialogue's first where it fits: without one that would be dropped.
        kept: an empty list that is filled with what is kept, in the order of preference, for who prefers by it.

    Raises:
        BudgetError: not even the leading system messages and the newest user message fit.
    """
    left = max_tokens - timeline.fixed(max_tokens)
    entries, newest = timeline.entries, timeline.newest
    head = entries[: timeline.head]
    if newest is None:
        return arranged(head)
    places = (max_messages or sys.maxsize) - 1
    kept = [] if kept is None else kept
    opening = newest
    missed = 0
    seen = {newest, *range(timeline.head)}
    for place in preferred:
        if place in seen:
            continue
        if left < _LEAST or places < 1 or missed > _PATIENCE:
            break
        entry = entries[place]
        cost, size = timeline.cost(place), 1 + len(entry.results)
        opener = None
        if gaps and place < opening and entry.message.role == "assistant":
            opener = _opener(timeline, place, left - cost)
            if opener is None:
                missed += 1
                continue
            cost, size = cost + timeline.cost(opener), size + 1
        if cost > left or size > places:
            if gaps:
                missed += 1
                continue
            break
        missed = 0
        left -= cost
        places -= size
        if opener is not None:
            kept.append(opener)
            seen.add(opener)
            opening = opener
        kept.append(place)
        seen.add(place)
        if entry.message.role == "user" and place < opening:
            opening = place

    def chosen(count: int) -> list[int]:
        return sorted([*kept[: len(kept) - count], newest])

    def fits(count: int) -> bool:
        return timeline.tokens([*range(timeline.head), *chosen(count)]) <= max_tokens

    # Entries are planned one by one, which for some counters is only about right: the whole is what has to fit.
    dropped = 0 if timeline.additive or fits(0) else bisect_left(range(len(kept)), True, lo=1, key=fits)
    return arranged([*head, *(entries[place] for place in chosen(dropped))])


def _opener(timeline: Timeline, place: int, room: int) -> int | None:
    """A user message before a place: the dialogue's first, or else the last before it, whichever fits first."""
    entries = timeline.entries
    first = next((at for at in range(timeline.head, place) if entries[at].message.role == "user"), None)
    last = next((at for at in range(place - 1, timeline.head - 1, -1) if entries[at].message.role == "user"), None)
    return next((at for at in (first, last) if at is not None and timeline.cost(at) <= room), None)


def tail(timeline: Timeline) -> Iterable[int]:
    """The places from the newest to the oldest."""
    return range(len(timeline.entries) - 1, timeline.head - 1, -1)
