"""The nouns of the documents' side: spans, documents, entities, chunks, queries, candidates.

All are frozen and slotted. A span is a half-open range of *character* offsets into `Document.text`; the functions on
spans here are the algebra by which every token of a prompt is traced back to a document.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from ctxkit.checking import check_kind, check_whole
from ctxkit.errors import ConfigError

__all__ = [
    "GAP",
    "OLD_GAP",
    "Candidate",
    "Chunk",
    "Document",
    "Entity",
    "Query",
    "Source",
    "Span",
    "content_hash",
    "document_id",
    "intersect_spans",
    "merge_spans",
    "subtract_spans",
    "total_length",
]

GAP = "\n[…] "
"""What stands in a candidate's text where compression left something out: at the head of a line, one token of
o200k_base; between two sentences of a line it made the answers of a small model .3 nats a token less likely."""

OLD_GAP = " […] "
"""The mark before `GAP`: that of candidates and segments that were recorded without one."""


class Span(NamedTuple):
    """A half-open range `[start, end)` of character offsets into a document's text."""

    start: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.start

    def slice(self, text: str, *, offset: int = 0) -> str:
        """The characters of `text` in this span; `offset` is where `text` starts in the document."""
        return text[self.start - offset : self.end - offset]

    def shift(self, by: int) -> Span:
        return Span(self.start + by, self.end + by)

    def overlaps(self, other: Span) -> bool:
        """Whether the two share at least one character; touching is not sharing."""
        return self.start < other.end and other.start < self.end

    def contains(self, other: Span) -> bool:
        return self.start <= other.start and other.end <= self.end


def merge_spans(spans: Iterable[Span], *, gap: int = 0) -> tuple[Span, ...]:
    """The union as sorted, disjoint spans; spans at most `gap` characters apart become one. Empty spans vanish."""
    merged: list[Span] = []
    for span in sorted(span for span in spans if span.end > span.start):
        if merged and span.start <= merged[-1].end + gap:
            if span.end > merged[-1].end:
                merged[-1] = Span(merged[-1].start, span.end)
        else:
            merged.append(span)
    return tuple(merged)


def intersect_spans(left: Iterable[Span], right: Iterable[Span]) -> tuple[Span, ...]:
    """The characters that are in both, as sorted, disjoint spans. Linear after sorting."""
    a, b = merge_spans(left), merge_spans(right)
    found: list[Span] = []
    i = j = 0
    while i < len(a) and j < len(b):
        start, end = max(a[i].start, b[j].start), min(a[i].end, b[j].end)
        if start < end:
            found.append(Span(start, end))
        if a[i].end < b[j].end:
            i += 1
        else:
            j += 1
    return tuple(found)


def subtract_spans(left: Iterable[Span], right: Iterable[Span]) -> tuple[Span, ...]:
    """The characters of `left` that are not in `right`, as sorted, disjoint spans."""
    found: list[Span] = []
    holes = merge_spans(right)
    j = 0
    for span in merge_spans(left):
        position = span.start
        while j < len(holes) and holes[j].end <= position:
            j += 1
        k = j
        while k < len(holes) and holes[k].start < span.end:
            if holes[k].start > position:
                found.append(Span(position, holes[k].start))
            position = max(position, holes[k].end)
            k += 1
        if position < span.end:
            found.append(Span(position, span.end))
    return tuple(found)


def total_length(spans: Iterable[Span]) -> int:
    """How many characters the union of the spans holds."""
    return sum(span.length for span in merge_spans(spans))


def _check_moment(moment: datetime | None, what: str) -> None:
    if moment is None:
        return
    check_kind(moment, datetime, what, remedy="Give an aware datetime, for example in UTC.")
    if moment.tzinfo is None:
        raise ConfigError(
            f"{what} has no time zone",
            subject=moment.isoformat(),
            remedy="Give an aware datetime, for example in UTC.",
        )


@dataclass(frozen=True, slots=True)
class Document:
    """One text with its source.

    Args:
        id: stable under updates: the same source keeps its id when its text changes.
        text: the text that spans point into.
        source: where it came from (a path or an address); `id` derives from it by default.
        title: for people; readers fill it from the first heading or the file's name.
        created_at: aware, or None when unknown.
        metadata: JSON values; filters of a query match against it.
    """

    id: str
    text: str
    source: str = ""
    title: str = ""
    created_at: datetime | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("id", "text", "source", "title"):
            check_kind(getattr(self, name), str, f"a document's {name}", remedy="Give a str; bytes must be decoded.")
        check_kind(self.metadata, Mapping, "a document's metadata", remedy="Give a mapping of JSON values.")
        _check_moment(self.created_at, "created_at")

    @classmethod
    def from_text(
        cls,
        text: str,
        *,
        source: str = "",
        title: str = "",
        created_at: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Document:
        """A document whose id derives from its source, or from its text where it has none."""
        for name, value in (("text", text), ("source", source)):
            check_kind(value, str, f"a document's {name}", remedy="Give a str; bytes must be decoded.")
        return cls(
            id=document_id(source or text),
            text=text,
            source=source,
            title=title,
            created_at=created_at,
            metadata=dict(metadata or {}),
        )

    @property
    def content_hash(self) -> str:
        """SHA-256 over everything an ingest stores: text, source, title, time and metadata.

        A time that is only the file's (`metadata["created_from"] == "mtime"`) does not count: a copy or a checkout
        touches every file, and what has not changed is not chunked and embedded again.
        """
        dated = self.created_at is not None and self.metadata.get("created_from") != "mtime"
        moment = self.created_at.isoformat() if self.created_at and dated else None
        return content_hash([self.text, self.source, self.title, moment, dict(self.metadata)])


def document_id(source: str) -> str:
    """The stable id of the document that comes from `source`: the first 128 bits of its SHA-256."""
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def content_hash(value: Any) -> str:
    """SHA-256 of the canonical JSON of `value`: keys sorted, no spaces, ASCII only.

    Raises:
        ConfigError: `value` is not JSON (another type, NaN, a circle, keys that are not text).
    """
    try:
        canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"not JSON ({type(error).__name__}: {error})",
            subject=repr(value)[:60] if not isinstance(error, RecursionError) else "",
            remedy="Use text, finite numbers, booleans, None, lists, and mappings with text keys.",
        ) from error
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


@dataclass(frozen=True, slots=True)
class Entity:
    """A named thing: its surface text, its label, and where it stands in the document."""

    text: str
    label: str
    span: Span


@dataclass(frozen=True, slots=True)
class Chunk:
    """A contiguous piece of a document: `text == document.text[span.start:span.end]` (law 1).

    Args:
        token_count: the tokens of `text` by the chunker's counter.
        heading_path: the headings above, outermost first.
        entities: what the entity extractor found, with offsets into the *document*.
        context: a line that says where the text stands (title, headings, neighbouring entities). It is indexed and
            embedded with the text, and is never part of it; empty for title and headings alone.
        metadata: once stored, also `source`, `title` and `created_at` (ISO 8601) of its document.
    """

    id: str
    document_id: str
    span: Span
    text: str
    token_count: int
    heading_path: tuple[str, ...] = ()
    entities: tuple[Entity, ...] = ()
    context: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.text) != self.span.length:
            raise ConfigError(
                f"a chunk of {len(self.text)} characters has a span of {self.span.length}",
                subject=self.id,
                remedy="text must be document.text[span.start:span.end].",
            )

    @classmethod
    def of(
        cls,
        document: Document,
        span: Span,
        token_count: int,
        *,
        heading_path: tuple[str, ...] = (),
        entities: tuple[Entity, ...] = (),
        context: str = "",
    ) -> Chunk:
        """The chunk of `document` at `span`; its id is the document's id and the span."""
        return cls(
            id=f"{document.id}:{span.start}-{span.end}",
            document_id=document.id,
            span=span,
            text=document.text[span.start : span.end],
            token_count=token_count,
            heading_path=heading_path,
            entities=entities,
            context=context,
        )


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked, and the facts every stage may need to answer it.

    Args:
        now: the time that recency counts from; the same `now` gives the same prompt (law 6).
        filters: metadata that a candidate's document must have; a list of values means any of them.
        room: the tokens that assembly leaves for context, None while unknown; compressors aim at it.
    """

    text: str
    now: datetime | None = None
    filters: Mapping[str, Any] = field(default_factory=dict)
    session: str | None = None
    tenant: str = "default"
    room: int | None = None

    def __post_init__(self) -> None:
        check_kind(self.text, str, "the question", remedy="Give a str.")
        check_kind(self.filters, Mapping, "filters", remedy='Give a mapping such as {"source": "docs/*"}.')
        _check_moment(self.now, "now")
        if self.room is not None:
            check_whole(self.room, "room", minimum=0)


class Source(NamedTuple):
    """Where a piece of a prompt comes from: a span of a document (law 3). A citation is one of these."""

    document_id: str
    source: str
    span: Span


@dataclass(frozen=True, slots=True)
class Candidate:
    """A chunk on its way into the prompt.

    Args:
        scores: by signal (`dense`, `lexical`, `graph`, `time`, `rerank`, `final`); `final` orders and is in [0, 1].
        kept: the document spans that compression left, sorted and disjoint; None means the whole chunk.
        gap: what stands where something was left out. Sentences have the mark `GAP`; single words, of which so many
            are left out that a mark would cost more than it saves, have "" or a space.
        via: the names through which the graph reached the chunk, the most important first; empty without a graph.
        copies: other places where this text stands, near enough: the candidates that `Deduplicate` took out.
    """

    chunk: Chunk
    scores: Mapping[str, float] = field(default_factory=dict)
    kept: tuple[Span, ...] | None = None
    via: tuple[str, ...] = ()
    copies: tuple[Source, ...] = ()
    gap: str = GAP

    def __post_init__(self) -> None:
        if self.gap not in (GAP, OLD_GAP, " ", ""):
            raise ConfigError(
                f"the gap is {self.gap!r}",
                subject=self.chunk.id,
                remedy="Only GAP, a space or nothing: other characters would look like the document's.",
            )
        if self.kept is None:
            return
        if self.kept != merge_spans(self.kept) or not all(self.chunk.span.contains(span) for span in self.kept):
            raise ConfigError(
                "kept spans must be sorted, disjoint and inside the chunk",
                subject=self.chunk.id,
                remedy="Pass them through merge_spans() and intersect_spans() first.",
            )

    @property
    def score(self) -> float:
        """The score that orders candidates: `final`, or 0 when no stage has set it."""
        return self.scores.get("final", 0.0)

    @property
    def spans(self) -> tuple[Span, ...]:
        """The document spans that would be sent."""
        return (self.chunk.span,) if self.kept is None else self.kept

    @property
    def text(self) -> str:
        """The text that would be sent: the kept pieces in order, `gap` at each gap; a mark at an open end, too."""
        if self.kept is None:
            return self.chunk.text
        pieces: list[str] = []
        position = self.chunk.span.start
        for span in self.kept:
            if span.start > position:
                pieces.append(self.gap if pieces else self.gap.lstrip())
            pieces.append(span.slice(self.chunk.text, offset=self.chunk.span.start))
            position = span.end
        if self.kept and position < self.chunk.span.end:
            pieces.append(self.gap.rstrip())
        return "".join(pieces)

    @property
    def sources(self) -> tuple[Source, ...]:
        source = str(self.chunk.metadata.get("source", ""))
        return tuple(Source(self.chunk.document_id, source, span) for span in self.spans)

    def scored(self, **scores: float) -> Candidate:
        """A copy with these signals set."""
        return replace(self, scores={**self.scores, **scores})

    def keeping(self, spans: Sequence[Span], *, gap: str = GAP) -> Candidate:
        """A copy that sends only these document spans (those inside the chunk), with `gap` at each gap."""
        return replace(self, kept=intersect_spans([self.chunk.span], spans), gap=gap)
