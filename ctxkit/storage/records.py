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
    "PayloadInfo",
    "PayloadVersion",
    "RunInfo",
    "TemplateEvent",
    "TemplateInfo",
    "TemplateMatch",
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
class TemplateVersion:
    """One immutable version of a template; `hash` is the SHA-256 of its content's canonical JSON.

    `is_new` is False where a push found this very content stored already.
    """

    name: str
    version: int
    hash: str
    content: Mapping[str, Any]
    created_at: datetime
    message: str = ""
    by: str = ""
    archived_at: datetime | None = None
    is_new: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class TemplateInfo:
    """A template: its newest version's number, where its labels stand, and which of them are protected."""

    name: str
    versions: int
    labels: Mapping[str, int] = field(default_factory=dict)
    updated_at: datetime | None = None
    archived_at: datetime | None = None
    protected: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LabelMove:
    """One move of a label: from `previous` (None when it was new) to `version`.

    `action` is `move` or `rollback`; `forced` says that the label was protected.
    """

    label: str
    previous: int | None
    version: int
    moved_at: datetime
    action: str = "move"
    by: str = ""
    message: str = ""
    forced: bool = False


@dataclass(frozen=True, slots=True)
class TemplateEvent:
    """What else happened to a template: `protect`, `unprotect`, `archive` or `unarchive`."""

    action: str
    label: str | None
    version: int | None
    happened_at: datetime
    by: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class TemplateMatch:
    """A template that a search found: its newest version that matches, and where: `name`, `label`, `slot`, `text`."""

    name: str
    version: int
    places: tuple[str, ...]
    labels: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PayloadVersion:
    """One immutable version of a payload; `hash` is the SHA-256 of its content's canonical JSON.

    Found by its hash it has no key (`""`) and no number (0). `is_new` is False where a put found this very content
    under the key already.
    """

    key: str
    version: int
    hash: str
    content: Mapping[str, Any]
    created_at: datetime
    message: str = ""
    by: str = ""
    is_new: bool = field(default=False, compare=False)

    @property
    def reference(self) -> str:
        """`key@version`, or `sha256:…` where it was found by its hash."""
        return f"{self.key}@{self.version}" if self.key else f"sha256:{self.hash}"


@dataclass(frozen=True, slots=True)
class PayloadInfo:
    """A payload's key: the version it points at, and how many it has."""

    key: str
    version: int
    versions: int
    hash: str
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A recorded prompt without its content; `template` is its resolved reference, `question` its beginning."""

    fingerprint: str
    created_at: datetime
    updated_at: datetime
    session: str | None
    template: str
    question: str


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
