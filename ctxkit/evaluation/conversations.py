"""Real dialogues as messages: tool-calling traces, task dialogues with slot values, and very long conversations."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from ctxkit.errors import ConfigError
from ctxkit.evaluation.locomo import Conversation
from ctxkit.messages import Message

__all__ = ["TaskDialogue", "locomo_messages", "named_messages", "sessions_of", "sgd", "tau_bench"]


@dataclass(frozen=True, slots=True)
class TaskDialogue:
    """One task dialogue.

    Args:
        slots: for each slot of the last state its values, casefolded, any of which names it; only slots of which a
            value is said somewhere in the dialogue.
    """

    name: str
    messages: tuple[Message, ...]
    slots: tuple[tuple[str, ...], ...]

    def kept_slots(self, ids: frozenset[str]) -> int:
        """How many slots are said in the messages with these ids."""
        said = [message.text.casefold() for message in self.messages if message.id in ids]
        return sum(any(value in text for value in values for text in said) for values in self.slots)


def tau_bench(data: Path) -> list[list[Message]]:
    """The traces of tau-bench's airline agent. Raises `ConfigError` without the data."""
    path = _existing(data / "tau_bench" / "airline_traces.jsonl.gz")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [[Message.from_openai(item) for item in json.loads(line)["messages"]] for line in lines]


def sgd(data: Path) -> list[TaskDialogue]:
    """The dialogues of the Schema-Guided Dialogue dataset that are here. Raises `ConfigError` without the data.

    Source: Rastogi et al., "Towards Scalable Multi-domain Conversational Agents", AAAI 2020.
    """
    paths = sorted((data / "sgd").glob("dialogues_*.json.gz"))
    if not paths:
        _existing(data / "sgd" / "dialogues_005.json.gz")
    return [_task(row) for path in paths for row in json.loads(gzip.decompress(path.read_bytes()))]


def _task(row: dict[str, Any]) -> TaskDialogue:
    name = row["dialogue_id"]
    messages = tuple(
        Message("user" if turn["speaker"] == "USER" else "assistant", turn["utterance"], id=f"{name}:{number}")
        for number, turn in enumerate(row["turns"])
    )
    states: dict[str, dict[str, list[str]]] = {}
    for turn in row["turns"]:
        for frame in turn["frames"]:
            if "state" in frame:
                states[frame["service"]] = frame["state"]["slot_values"]
    said = [message.text.casefold() for message in messages]
    slots = [tuple(value.casefold() for value in values) for state in states.values() for values in state.values()]
    return TaskDialogue(
        name, messages, tuple(values for values in slots if any(value in text for value in values for text in said))
    )


def sessions_of(dialogues: Sequence[TaskDialogue], size: int) -> Iterator[list[TaskDialogue]]:
    """Sessions of `size` dialogues that a customer could have had one after the other, far apart in the source."""
    count = len(dialogues) // size
    for number in range(count):
        yield [dialogues[number + count * step] for step in range(size)]


def locomo_messages(conversation: Conversation) -> list[Message]:
    """A conversation as a dialogue: who speaks first is the user; the names are not part of the texts."""
    first = conversation.turns[0].text.partition(": ")[0]
    messages = []
    for turn in conversation.turns:
        speaker, _, text = turn.text.partition(": ")
        messages.append(Message("user" if speaker == first else "assistant", text or "…", id=turn.id))
    return messages


def named_messages(conversation: Conversation) -> list[Message]:
    """A conversation as a dialogue with names and times, a minute a turn: who speaks first is the user."""
    first = conversation.turns[0].text.partition(": ")[0]
    messages: list[Message] = []
    session, place = 0, 0
    for turn in conversation.turns:
        session, place = turn.session, place + 1 if turn.session == session else 0
        speaker, _, text = turn.text.partition(": ")
        messages.append(
            Message(
                "user" if speaker == first else "assistant",
                text or "…",
                name=speaker,
                id=turn.id,
                created_at=conversation.times[session] + timedelta(minutes=place),
            )
        )
    return messages


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise ConfigError("the data file is not here", subject=str(path), remedy="Set CTXKIT_DATA to the data folder.")
    return path
