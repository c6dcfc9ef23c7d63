"""What the store tells about the things it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

__all__ = [
    "ANY",
    "DocumentInfo",
    "DocumentState",
    "LabelMove",
    "SessionInfo",
    "TemplateInfo",
    "TemplateVersion",
    "index_text",
]


class _Any:
    """The type of `ANY`."""

    def __repr__(self) -> str:
        return "ANY"


ANY: Final = _Any()
"""Move a label wherever it stands now."""


@dataclass(frozen=True, slots=True)
class DocumentState:
    """What an ingest compares to know whether a document has to be read again."""

    content_hash: str
    recipe: str


@dataclass(frozen=True, slots=True)
class DocumentInfo:
    """A document without its text. `updated_at` is when the store last wrote it."""

    id: str
    source: str
    title: str
    created_at: datetime | None
    content_hash: str
    chunk_count: int
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A dialogue without its messages."""

    id: str
    message_count: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class TemplateVersion:
    """One immutable version of a template; `hash` is the SHA-256 of its content's canonical JSON."""

    name: str
    version: int
    hash: str
    content: Mapping[str, Any]
    created_at: datetime
    message: str = ""


@dataclass(frozen=True, slots=True)
class TemplateInfo:
    """A template: its newest version's number and where its labels stand."""

    name: str
    versions: int
    labels: Mapping[str, int] = field(default_factory=dict)
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class LabelMove:
    """One move of a label: from `previous` (None when it was new) to `version`."""

    label: str
    previous: int | None
    version: int
    moved_at: datetime


def index_text(title: str, heading_path: Sequence[str], text: str, context: str = "") -> str:
    """What an index sees of a chunk: its context line, or else title and headings, then its text, a line each.

    Vectors are made of it too.
    """
    if context:
        return f"{context}\n{text}"
    # A title that is also the first heading is said once: twice would double its weight.
    lines = [title] if title and (not heading_path or heading_path[0] != title) else []
    if heading_path:
        lines.append(" > ".join(heading_path))
    return "\n".join([*lines, text])
