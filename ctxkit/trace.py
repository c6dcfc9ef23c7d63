"""What each stage of a request kept, dropped and changed, how long it took, and how many tokens it cost."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ctxkit.documents import Source

__all__ = ["Dropped", "StageRecord", "Trace", "label"]


def label(sources: Sequence[Source]) -> str:
    """Where a text comes from, for people: the first of its sources, and how many more there are.

    Example:
        >>> from ctxkit.documents import Span
        >>> label([Source("d1", "guide.md", Span(10, 30)), Source("d1", "guide.md", Span(40, 50))])
        'guide.md:10-30 (+1)'
    """
    document_id, source, span = sources[0]
    more = f" (+{len(sources) - 1})" if len(sources) > 1 else ""
    return f"{source or document_id}:{span.start}-{span.end}{more}"


@dataclass(frozen=True, slots=True)
class Dropped:
    """One thing that did not reach the prompt, and why (law 2: nothing is dropped in silence).

    Args:
        item: the id of the chunk or the message.
        sources: the document spans it would have sent, all of its chunk's where that is nothing; empty for a message.
    """

    section: str
    item: str
    token_count: int
    reason: str
    sources: tuple[Source, ...] = ()

    @property
    def name(self) -> str:
        """Its source and span where they are known, else its id."""
        return label(self.sources) if self.sources else self.item


@dataclass(slots=True)
class StageRecord:
    """One stage of one request; a stage fills it while it runs."""

    stage: str
    seconds: float = 0.0
    items_in: int = 0
    items_out: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    dropped: list[Dropped] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)

    def drop(self, section: str, item: str, token_count: int, reason: str, sources: Sequence[Source] = ()) -> None:
        self.dropped.append(Dropped(section, item, token_count, reason, tuple(sources)))


class Trace:
    """The records of a request's stages, in the order they ran.

    Example:
        >>> trace = Trace()
        >>> with trace.stage("retrieval", items_in=1) as record:
        ...     record.items_out = 10
        >>> [record.stage for record in trace.records]
        ['retrieval']
    """

    __slots__ = ("records",)

    def __init__(self) -> None:
        self.records: list[StageRecord] = []

    @contextmanager
    def stage(self, name: str, *, items_in: int = 0, tokens_in: int = 0) -> Iterator[StageRecord]:
        """Time a stage; its record is kept even when it raises, with the error in its notes."""
        record = StageRecord(name, items_in=items_in, tokens_in=tokens_in)
        self.records.append(record)
        started = time.perf_counter()
        try:
            yield record
        except BaseException as error:
            record.notes["error"] = f"{type(error).__name__}: {error}"
            raise
        finally:
            record.seconds = time.perf_counter() - started

    @property
    def dropped(self) -> tuple[Dropped, ...]:
        return tuple(dropped for record in self.records for dropped in record.dropped)

    @property
    def seconds(self) -> float:
        return sum(record.seconds for record in self.records)
