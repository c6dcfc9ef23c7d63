"""What a session shows: its own messages and, before its fork, those of the sessions it branched from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Table, and_, bindparam, or_, select

from ctxkit.checking import did_you_mean
from ctxkit.errors import NotFoundError
from ctxkit.storage import tables
from ctxkit.storage.checks import decoded
from ctxkit.storage.tenancy import Scope

__all__ = ["View", "existing", "find", "read", "within"]

_SEGMENTS = 100
"""Segments that one statement asks for; SQLite takes an expression of at most 1,000 levels."""

_NAMES = 1_000

_HEAD = select(
    tables.sessions.c.last_sequence,
    tables.sessions.c.fork,
    tables.sessions.c.pinned,
    tables.sessions.c.archived_through,
    tables.sessions.c.deleted_through,
    tables.sessions.c.encrypted,
).where(tables.sessions.c.tenant == bindparam("of_tenant"), tables.sessions.c.id == bindparam("of_session"))
# Built once: every append reads it, and building takes as long as running.
_LOCKED_HEAD = _HEAD.with_for_update()

Segment = tuple[str, int, int]
"""A session, and the numbers of the messages that are its own: above the first, up to the second."""


@dataclass(frozen=True, slots=True)
class View:
    """The head of a session; `lineage` is each ancestor with the last number taken from it, the oldest first."""

    id: str
    last: int
    fork: int
    pinned: int
    archived: int
    deleted: int
    encrypted: bool
    lineage: tuple[tuple[str, int], ...] = ()

    @property
    def owners(self) -> tuple[str, ...]:
        return (*(name for name, _ in self.lineage), self.id)

    @property
    def active(self) -> list[tuple[int, int]]:
        """The numbers that are shown, as half-open ranges (above, up to)."""
        return _joined((0, self.pinned), (self.archived, self.last))

    @property
    def existing(self) -> list[tuple[int, int]]:
        """The same with what is archived."""
        return _joined((0, self.pinned), (self.deleted, self.last))

    @property
    def count(self) -> int:
        return sum(high - low for low, high in self.active)

    def newest(self, count: int) -> list[tuple[int, int]]:
        """The numbers of the newest `count` messages that are shown; there are no gaps but the archived one."""
        found: list[tuple[int, int]] = []
        for low, high in reversed(self.active):
            if count > 0:
                found.insert(0, (max(low, high - count), high))
                count -= high - low
        return found

    def segments(self, ranges: Iterable[tuple[int, int]]) -> Iterator[Segment]:
        """Where the messages of these numbers are stored."""
        for low, high in ranges:
            start = 0
            for name, end in (*self.lineage, (self.id, self.last)):
                first, last = max(low, start), min(high, end)
                if first < last:
                    yield name, first, last
                start = end

    def owner(self, sequence: int) -> str:
        """The session that the message of this number was appended to."""
        return next((name for name, end in self.lineage if sequence <= end), self.id)

    def owns(self, row: Any) -> bool:
        """Whether a row of one of the owners is part of this session."""
        return bool(row.sequence <= self.last and self.owner(row.sequence) == row.session_id)


def _joined(first: tuple[int, int], second: tuple[int, int]) -> list[tuple[int, int]]:
    if first[1] >= second[0]:
        first, second = (0, 0), (0 if first[1] else second[0], second[1])
    return [part for part in (first, second) if part[0] < part[1]]


def find(scope: Scope, session: str, *, lock: bool = False) -> View | None:
    """The head of a session; `lock` keeps everybody else from changing it until the transaction ends."""
    statement = _LOCKED_HEAD if lock and scope.kind == "postgresql" else _HEAD
    row: Any = scope.prepared(statement, of_session=session).first()
    if row is None:
        return None
    last, fork, pinned, archived, deleted, encrypted = row
    lineage = _lineage(scope, session) if fork else ()
    return View(session, last, fork, pinned, archived, deleted, bool(encrypted), lineage)


def existing(scope: Scope, session: str, *, lock: bool = False) -> View:
    """The same. Raises `NotFoundError` where there is no such session."""
    view = find(scope, session, lock=lock)
    if view is None:
        raise NotFoundError(
            "there is no such session",
            subject=session,
            remedy=f"{did_you_mean(session, _newest_names(scope))}List them: ctxkit sessions list.",
        )
    return view


def _newest_names(scope: Scope) -> list[str]:
    """The sessions that changed last: an error that names the nearest of them must not read them all."""
    table = tables.sessions
    return [row[0] for row in scope.all(scope.select(table.c.id).order_by(table.c.updated_at.desc()).limit(_NAMES))]


def _lineage(scope: Scope, session: str) -> tuple[tuple[str, int], ...]:
    table = tables.session_branches
    row = scope.first(scope.select(table.c.lineage).where(table.c.session_id == session))
    return tuple((str(name), int(end)) for name, end in decoded(row[0]))


def within(table: Table, segments: Sequence[Segment]) -> ColumnElement[bool]:
    """The condition of being in one of the segments."""
    return or_(
        *(
            and_(table.c.session_id == name, table.c.sequence > low, table.c.sequence <= high)
            for name, low, high in segments
        )
    )


def read(scope: Scope, view: View, ranges: Iterable[tuple[int, int]], *, archived: bool = False) -> list[Any]:
    """The rows of these numbers, in order; `archived` looks into the archive too."""
    segments = list(view.segments(ranges))
    rows: list[Any] = []
    for at in range(0, len(segments), _SEGMENTS):
        some = segments[at : at + _SEGMENTS]
        for table in (tables.messages, tables.archived_messages) if archived else (tables.messages,):
            columns = [table.c[column.name] for column in tables.messages.c]
            rows += scope.all(scope.select(*columns).where(within(table, some)).order_by(table.c.sequence))
    # Numbers are unique in a session, and nearly in order: one pass over what is merged.
    rows.sort(key=lambda row: row.sequence)
    return rows
