"""LoCoMo: very long dated conversations of two people, and questions with the turns that answer them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from ctxkit.documents import Document
from ctxkit.errors import ConfigError

__all__ = ["CATEGORIES", "Conversation", "Turn", "conversations"]

CATEGORIES: Mapping[int, str] = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
"""As the paper numbers them; several later evaluations name them wrongly."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What somebody said: `text` begins with the speaker's name."""

    id: str
    session: int
    text: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation.

    Args:
        turns: in order, over all sessions.
        questions: text, category and the ids of the turns that answer it; without those of which an id is no turn's.
        times: when each session began; the source gives no zone, UTC is taken.
    """

    name: str
    turns: tuple[Turn, ...]
    questions: tuple[tuple[str, int, frozenset[str]], ...]
    times: Mapping[int, datetime] = field(default_factory=dict)

    def documents(self) -> Iterator[tuple[Document, list[Turn]]]:
        """A document for each session, a line for each turn."""
        for session in sorted({turn.session for turn in self.turns}):
            own = [turn for turn in self.turns if turn.session == session]
            source = f"locomo/{self.name}/{session:02}"
            yield Document.from_text("\n".join(turn.text for turn in own), source=source), own


def conversations(data: Path) -> list[Conversation]:
    """The seven conversations. Raises `ConfigError` when the file is not there.

    Source: Maharana et al., "Evaluating Very Long-Term Conversational Memory of LLM Agents", ACL 2024.
    """
    path = data / "locomo" / "locomo7.json.gz"
    if not path.is_file():
        raise ConfigError("the data file is not here", subject=str(path), remedy="Set CTXKIT_DATA to the data folder.")
    return [_conversation(row) for row in json.loads(gzip.decompress(path.read_bytes()))]


def _conversation(row: Mapping[str, Any]) -> Conversation:
    said = row["conversation"]
    turns = []
    times = {}
    for session in count(1):
        if f"session_{session}" not in said and f"session_{session}_date_time" not in said:
            break
        if stamp := said.get(f"session_{session}_date_time"):
            times[session] = datetime.strptime(stamp, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        for turn in said.get(f"session_{session}", ()):
            # A line break inside of a turn would end its line.
            text = " ".join(f"{turn['speaker']}: {turn['text']}".split())
            turns.append(Turn(turn["dia_id"], session, text))
    known = {turn.id for turn in turns}
    questions = []
    for asked in row["qa"]:
        evidence = frozenset(asked["evidence"])
        if evidence and evidence <= known:
            questions.append((asked["question"], asked["category"], evidence))
    return Conversation(row["sample_id"], tuple(turns), tuple(questions), times)
