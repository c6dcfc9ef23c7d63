"""Search by words over the messages of a tenant: a scan, newest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ctxkit.messages import Message
from ctxkit.storage import tables
from ctxkit.storage.session_records import SessionMatch
from ctxkit.storage.session_rows import Codec
from ctxkit.storage.session_views import Segment, find, within
from ctxkit.storage.tenancy import Scope

__all__ = ["search"]

_PAGE = 1_000
"""Messages that are in memory at once."""

_SEGMENTS = 100
"""Segments that one statement asks for."""


def search(scope: Scope, codec: Codec, words: Sequence[str], session: str | None, limit: int) -> list[SessionMatch]:
    """The newest matches; `words` are case-folded."""
    table = tables.messages
    found: list[SessionMatch] = []
    for page in _pages(_segments(scope, session)):
        rows: dict[str, list[Any]] = {}
        for row in scope.all(scope.select(*table.c).where(within(table, page)).order_by(table.c.sequence.desc())):
            rows.setdefault(row.session_id, []).append(row)
        for name, low, high in page:
            for row in rows.get(name, ()):
                if low < row.sequence <= high and _matches(message := codec.message(row), words):
                    found.append(SessionMatch(name, message))
                    if len(found) == limit:
                        return found
    return found


def _segments(scope: Scope, session: str | None) -> Iterator[Segment]:
    """Where to look: a session with its past, or what each session of the tenant has of its own."""
    if session is not None:
        view = find(scope, session)
        yield from reversed(list(view.segments(view.active)) if view else [])
        return
    head = tables.sessions
    statement = scope.select(head.c.id, head.c.fork, head.c.last_sequence)
    # Every row that is left in `messages` is shown by some session, at least by a branch.
    for row in scope.all(statement.order_by(head.c.updated_at.desc(), head.c.id)):
        yield row[0], row[1], row[2]


def _pages(segments: Iterator[Segment]) -> Iterator[list[Segment]]:
    page: list[Segment] = []
    count = 0
    for name, low, high in segments:
        for top in range(high, low, -_PAGE):
            bottom = max(low, top - _PAGE)
            if page and (count + top - bottom > _PAGE or len(page) == _SEGMENTS):
                yield page
                page, count = [], 0
            page.append((name, bottom, top))
            count += top - bottom
    if page:
        yield page


def _matches(message: Message, words: Sequence[str]) -> bool:
    said = "\n".join(
        (message.text, message.name or "", *(f"{call.name} {call.arguments}" for call in message.tool_calls))
    ).casefold()
    return all(word in said for word in words)
