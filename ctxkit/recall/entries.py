"""The past of a dialogue as entries: whole units, with what they say, who says it, when, and in which sitting."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ctxkit.history import units
from ctxkit.messages import Message

__all__ = ["Entry", "entries"]

_SPEAKER = re.compile(r"\s*([^\W\d_][\w .'’-]{0,40}):\s")


@dataclass(frozen=True, slots=True)
class Entry:
    """One unit: a message alone, or an assistant message with its calls and their results.

    Args:
        body: what its messages say, calls and results included.
        speaker: the name of who speaks: of the message, or at the head of its text (`Ada: Good day`); "" for none.
        sitting: messages of one sitting follow each other without a long pause.
    """

    messages: tuple[Message, ...]
    body: str
    speaker: str
    sitting: int

    @property
    def id(self) -> str:
        return self.messages[0].id

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(message.id for message in self.messages)

    @property
    def sequence(self) -> int:
        return self.messages[0].sequence

    @property
    def role(self) -> str:
        return self.messages[0].role

    @property
    def created_at(self) -> datetime | None:
        return self.messages[0].created_at

    @property
    def indexed(self) -> str:
        """What is searched: the name and the body."""
        return f"{self.messages[0].name}: {self.body}" if self.messages[0].name else self.body

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.indexed.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def entries(messages: Sequence[Message], pause: timedelta) -> list[Entry]:
    """The units that say something, in order; system messages are no part of a past. Linear.

    Args:
        pause: a longer one between two messages begins a sitting. Messages without a time begin none.
    """
    found: list[Entry] = []
    sitting, last = 0, None
    for unit in units(messages):
        first = unit.messages[0]
        if first.role == "system":
            continue
        if first.created_at is not None:
            sitting += last is not None and first.created_at - last > pause
            last = first.created_at
        body = _body(unit.messages)
        if body.strip():
            spoken = None if first.name else _SPEAKER.match(body)
            found.append(Entry(unit.messages, body, first.name or (spoken[1] if spoken else ""), sitting))
    return found


def _body(messages: Sequence[Message]) -> str:
    first = messages[0]
    if len(messages) == 1 and not first.tool_calls:
        return first.visible
    calls = [f"{call.name} {call.arguments}" for call in first.tool_calls]
    return "\n".join(part for part in (first.visible, *calls, *(one.visible for one in messages[1:])) if part)
