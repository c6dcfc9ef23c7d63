"""Dialogues with a past worth finding, and an embedder that says how often it was asked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from ctxkit.messages import Message, ToolCall
from ctxkit.testing import HashEmbedder

START = datetime(2023, 5, 1, 9, tzinfo=UTC)

TOPICS = (
    "We planted tomatoes in the garden.",
    "The train to Bergen was late again.",
    "My sister Ilse plays the violin.",
    "I paid 40 euros for the lamp.",
    "The dentist found nothing.",
)


def past(count: int, *, start: datetime = START, prefix: str = "m") -> list[Message]:
    """A message a day: topics in turn, and twice a tool that is asked for the weather."""
    messages: list[Message] = []
    for at in range(count):
        when = start + timedelta(days=at)
        role = "user" if at % 2 == 0 else "assistant"
        if at % 7 == 5:
            call = ToolCall(f"{prefix}c{at}", "weather", '{"city": "Bergen"}')
            messages.append(Message("assistant", "", tool_calls=(call,), id=f"{prefix}{at}", created_at=when))
            messages.append(
                Message("tool", f"rain number {at}", tool_call_id=call.id, id=f"{prefix}{at}r", created_at=when)
            )
        else:
            text = f"{TOPICS[at % len(TOPICS)]} That was entry {at}."
            messages.append(Message(role, text, id=f"{prefix}{at}", created_at=when))  # type: ignore[arg-type]
    return messages


class Counting(HashEmbedder):
    """Counts the texts that it was given."""

    def __init__(self) -> None:
        super().__init__(32)
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.texts += texts
        return super().embed(texts)
