"""Repair: the smallest deterministic change that makes any list of messages a valid dialogue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from ctxkit.history.validity import is_empty
from ctxkit.messages import Message, ToolCall
from ctxkit.stage_inputs import check_message

__all__ = ["EMPTY", "INTERRUPTED", "Note", "Repaired", "repair"]

INTERRUPTED = "[interrupted: this call has no result]"
"""The result that an unanswered call gets."""

EMPTY = "[empty message]"
"""The text that an empty user message gets."""

NoteKind = Literal["interrupted", "orphaned", "duplicate", "moved", "renamed", "empty", "leading"]


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that repair changed: what, at which message of the input, and in words."""

    kind: NoteKind
    index: int
    text: str

    def __str__(self) -> str:
        return f"message {self.index}: {self.text}"


class Repaired(NamedTuple):
    """The valid dialogue, and what was changed to make it so."""

    messages: list[Message]
    notes: list[Note]


@dataclass(slots=True)
class Entry:
    """A message that stays, with the results of its calls.

    Args:
        index: its place in the input.
        place: its place among the entries.
    """

    index: int
    message: Message
    results: dict[str, Message]
    place: int

    @property
    def messages(self) -> list[Message]:
        return [self.message, *self.results.values()]


def repair(messages: Sequence[Message]) -> Repaired:
    """A dialogue that every provider accepts (`check_history` says by which rules), from any messages. Linear.

    - A call without a result gets one that says so (`INTERRUPTED`); a result moves to directly behind its call.
    - A result without a call, a second result of one call, and a second call of one id in one message are dropped.
    - A call id that an earlier message used, or that is empty, gets a new one, with its result.
    - An empty assistant or system message is dropped; an empty user message says so (`EMPTY`).
    - System messages from inside the dialogue move to its beginning, in order.
    - Assistant messages before the first user message are dropped.

    It is idempotent, and looks at nothing but the messages: no clock, no chance. Each message's repair depends only on
    the messages before it and on the results of its own calls, so a dialogue that grows keeps its repaired beginning,
    and a provider's prompt cache with it; only a system message inside the dialogue changes the beginning.

    Example:
        >>> call = Message("assistant", tool_calls=(ToolCall("c1", "weather"),))
        >>> messages, notes = repair([Message("user", "Rain?"), call, Message("user", "Hello?")])
        >>> [message.role for message in messages]
        ['user', 'assistant', 'tool', 'user']
        >>> [note.kind for note in notes]
        ['interrupted']
    """
    entries, notes = mend(messages)
    system = [entry for entry in entries if entry.message.role == "system"]
    dialogue = [entry for entry in entries if entry.message.role != "system"]
    start = next((at for at, entry in enumerate(dialogue) if entry.message.role == "user"), len(dialogue))
    first = dialogue[0].index if dialogue else len(messages)
    notes += [
        Note("leading", entry.index, "an assistant message before the first user message is dropped")
        for entry in dialogue[:start]
    ]
    notes += [
        Note("moved", entry.index, "a system message is moved to the beginning")
        for entry in system
        if entry.index > first
    ]
    notes.sort(key=lambda note: note.index)
    return Repaired([message for entry in (*system, *dialogue[start:]) for message in entry.messages], notes)


def mend(messages: Sequence[Message]) -> tuple[list[Entry], list[Note]]:
    """Calls and results paired, empty messages settled; everything still where it stood."""
    mender = Mender()
    for message in messages:
        mender.add(message)
    return mender.finish()


class Mender:
    """Mends a dialogue message by message, so that one that has grown is read from where it was left."""

    __slots__ = ("_asked", "_count", "_entries", "_notes", "_open", "_used")

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._notes: list[Note] = []
        self._used: dict[str, int] = {}
        self._asked: dict[str, tuple[Entry, str]] = {}
        self._open: dict[int, Entry] = {}
        self._count = 0

    @property
    def settled(self) -> int:
        """How many entries from the first will never change, whatever comes."""
        return min(self._open, default=len(self._entries))

    def add(self, message: Message) -> int | None:
        """Take in the next message; the place of the entry that it is in, or None where it is dropped."""
        check_message(message)
        index, entries, notes = self._count, self._entries, self._notes
        self._count += 1
        place = len(entries)
        if message.tool_call_id is not None:
            found = _attach(message, index, self._asked, entries, notes)
            if found is None:
                return None
            if len(found.results) == len(found.message.tool_calls):
                self._open.pop(found.place, None)
            return found.place
        if message.tool_calls:
            entry = Entry(index, message, {}, place)
            entry.message = _register(message, entry, self._asked, self._used, notes)
            self._open[place] = entry
            entries.append(entry)
        elif not is_empty(message):
            entries.append(Entry(index, message, {}, place))
        elif message.role == "user":
            entries.append(Entry(index, replace(message, content=EMPTY), {}, place))
            notes.append(Note("empty", index, "an empty user message is marked as such"))
        else:
            notes.append(Note("empty", index, f"an empty {message.role} message is dropped"))
            return None
        return place

    def finish(self) -> tuple[list[Entry], list[Note]]:
        """The entries and notes so far; calls that wait have a result that says so. More may be added afterwards.

        Entries that wait are copies; the list itself is not to be changed.
        """
        if not self._open:
            return self._entries, self._notes
        entries, notes = list(self._entries), list(self._notes)
        for place, entry in self._open.items():
            entries[place] = replace(entry, results=dict(entry.results))
            _complete(entries[place], notes)
        return entries, notes


def _register(
    message: Message, entry: Entry, asked: dict[str, tuple[Entry, str]], used: dict[str, int], notes: list[Note]
) -> Message:
    """The message with call ids that are new to the dialogue; its calls wait for results under their old ids."""
    calls: list[ToolCall] = []
    here: set[str] = set()
    for call in message.tool_calls:
        if call.id in here:
            notes.append(Note("duplicate", entry.index, f"a second call with the id {call.id!r} is dropped"))
            continue
        here.add(call.id)
        base = name = call.id or "call"
        while name in used:  # from where the last one of this id found a free name, or a thousand would take a million
            used[base] = used.get(base, 1) + 1
            name = f"{base}_{used[base]}"
        if name != call.id:
            notes.append(Note("renamed", entry.index, f"the call id {call.id!r} becomes {name!r}"))
        used[name] = used.get(name, 1)
        asked[call.id] = (entry, name)
        calls.append(call if name == call.id else replace(call, id=name))
    return message if tuple(calls) == message.tool_calls else replace(message, tool_calls=tuple(calls))


def _attach(
    message: Message, index: int, asked: dict[str, tuple[Entry, str]], entries: list[Entry], notes: list[Note]
) -> Entry | None:
    """The entry that the message is a result of, or None where it is dropped."""
    found = asked.get(str(message.tool_call_id))
    if found is None:
        notes.append(
            Note("orphaned", index, f"the result of {message.tool_call_id!r}, which nobody called, is dropped")
        )
        return None
    entry, name = found
    if name in entry.results:
        notes.append(Note("duplicate", index, f"a second result of {name!r} is dropped"))
        return None
    if entries[-1] is not entry:
        notes.append(Note("moved", index, f"the result of {name!r} is moved to behind its call"))
    entry.results[name] = message if name == message.tool_call_id else replace(message, tool_call_id=name)
    return entry


def _complete(entry: Entry, notes: list[Note]) -> None:
    for call in entry.message.tool_calls:
        if call.id not in entry.results:
            notes.append(Note("interrupted", entry.index, f"the call {call.id!r} gets a result that says interrupted"))
            entry.results[call.id] = Message(
                "tool",
                INTERRUPTED,
                tool_call_id=call.id,
                name=call.name,
                id=f"{entry.message.id}:{call.id}" if entry.message.id else "",
            )
