"""Units: what of a dialogue must stay whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ctxkit.messages import Message

__all__ = ["Unit", "units"]


@dataclass(frozen=True, slots=True)
class Unit:
    """A message alone, or an assistant message with tool calls and all their results.

    Args:
        messages: the first one gives the unit its role.
        indices: where the messages stand in the dialogue; results need not stand next to their call.
    """

    messages: tuple[Message, ...]
    indices: tuple[int, ...]

    @property
    def role(self) -> str:
        return self.messages[0].role

    @property
    def complete(self) -> bool:
        """Whether every call has its result and every result its call."""
        calls = [call.id for call in self.messages[0].tool_calls]
        results = [message.tool_call_id for message in self.messages if message.role == "tool"]
        return len(set(calls)) == len(calls) == len(results) and set(calls) == set(results)


def units(messages: Sequence[Message]) -> list[Unit]:
    """The units of a dialogue, in order of their first messages; every message is in exactly one.

    A result belongs to the last assistant message before it that asked for it, wherever that stands: parallel calls and
    results that arrive late are one unit with their call. A result that nobody asked for is a unit by itself, which is
    not `complete`. Linear.

    Example:
        >>> from ctxkit.messages import ToolCall
        >>> dialogue = [
        ...     Message("user", "Weather in Oslo and Rome?"),
        ...     Message("assistant", tool_calls=(ToolCall("a", "weather"), ToolCall("b", "weather"))),
        ...     Message("tool", "rain", tool_call_id="a"),
        ...     Message("tool", "sun", tool_call_id="b"),
        ... ]
        >>> [unit.indices for unit in units(dialogue)]
        [(0,), (1, 2, 3)]
    """
    members: list[list[int]] = []
    asked: dict[str, int] = {}
    for index, message in enumerate(messages):
        owner = asked.get(message.tool_call_id) if message.tool_call_id is not None else None
        if owner is not None:
            members[owner].append(index)
            continue
        for call in message.tool_calls:
            asked[call.id] = len(members)
        members.append([index])
    return [Unit(tuple(messages[index] for index in group), tuple(group)) for group in members]
