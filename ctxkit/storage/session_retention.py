"""Retention: what of a dialogue moves to the archive or is deleted, in whole units, and what branches hold back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import func, literal

from ctxkit.messages import Message
from ctxkit.storage import tables
from ctxkit.storage.clock import moment
from ctxkit.storage.clock import now as clock
from ctxkit.storage.session_records import Keep, Retained
from ctxkit.storage.session_rows import Codec
from ctxkit.storage.session_views import View, existing, read
from ctxkit.storage.tenancy import Scope

__all__ = ["cuts", "retain", "settle"]


def cuts(messages: Sequence[Message]) -> list[int]:
    """Where a dialogue may be cut so that no result is parted from its call, in ascending order. Linear.

    A call that still waits for a result holds what follows it, until a user message says that nobody waits any more.

    Example:
        >>> from ctxkit.messages import ToolCall
        >>> call = Message("assistant", tool_calls=(ToolCall("a", "f"),))
        >>> cuts([Message("user", "x"), call, Message("tool", "y", tool_call_id="a"), Message("user", "z")])
        [0, 1, 3, 4]
    """
    asked: dict[str, int] = {}
    waiting: dict[int, set[str]] = {}
    reach = list(range(len(messages)))  # the last message that each one's unit reaches to
    user = -1
    for index, message in enumerate(messages):
        if message.role == "user":
            user = index
        for call in message.tool_calls:
            asked[call.id] = index
            waiting.setdefault(index, set()).add(call.id)
        if message.tool_call_id is not None and message.tool_call_id in asked:
            owner = asked[message.tool_call_id]
            reach[owner] = index
            waiting[owner].discard(message.tool_call_id)
    for index, left in waiting.items():
        if left and index > user:
            reach[index] = len(messages)
    allowed, furthest = [], -1
    for index in range(len(messages) + 1):
        if furthest < index:
            allowed.append(index)
        if index < len(messages):
            furthest = max(furthest, reach[index])
    return allowed


def _cut(messages: Sequence[Message], sizes: Sequence[int], keep: Keep, now: datetime, updated: datetime) -> int:
    """How many of the messages go."""
    count = len(messages)
    least = 0  # so many have to go
    if keep.messages is not None:
        least = max(least, count - keep.messages)
    if keep.size is not None:
        room, at = keep.size, count
        while at and sizes[at - 1] <= room:
            at -= 1
            room -= sizes[at]
        least = max(least, at)
    allowed = cuts(messages)
    cut = next((each for each in allowed if each >= least), allowed[-1])
    if cut == count and 0 not in (keep.messages, keep.size):
        cut = next((each for each in reversed(allowed) if each < count), 0)
    if keep.age is not None:
        young = next(
            (index for index, message in enumerate(messages) if now - (message.created_at or updated) <= keep.age),
            count,
        )
        cut = max(cut, next(each for each in reversed(allowed) if each <= young))
    return cut


def retain(scope: Scope, codec: Codec, session: str, keep: Keep, now: datetime, *, archive: bool) -> Retained:
    """Archive or delete what is not to be kept."""
    view = existing(scope, session, lock=True)
    head = tables.sessions
    updated = moment(scope.first(scope.select(head.c.updated_at).where(head.c.id == session))[0])
    rows = read(scope, view, view.active if archive else view.existing, archived=not archive)
    messages = [codec.message(row) for row in rows]
    sizes = [len(row.content.encode()) + len(row.tool_calls.encode()) for row in rows]
    pinned = next((at for at, message in enumerate(messages) if message.role != "system"), len(messages))
    # Once something has left, what leads the rest is no head of the dialogue any more.
    pinned = min(pinned, view.pinned) if view.archived or view.deleted else pinned
    cut = pinned + _cut(messages[pinned:], sizes[pinned:], keep, now, updated)
    if cut == pinned:
        shown = [size for row, size in zip(rows, sizes, strict=True) if _within(view.active, row.sequence)]
        return Retained(session, 0, 0, len(shown), sum(shown), 0)
    through = rows[cut - 1].sequence
    changed = View(
        view.id,
        view.last,
        view.fork,
        pinned,
        max(view.archived, through),
        view.deleted if archive else through,
        view.encrypted,
        view.lineage,
    )
    scope.execute(
        scope.update(head)
        .where(head.c.id == session)
        .values(pinned=pinned, archived_through=changed.archived, deleted_through=changed.deleted)
    )
    held = settle(scope, changed)
    left = rows[pinned:cut]
    kept = [size for row, size in zip(rows, sizes, strict=True) if _within(changed.active, row.sequence)]
    return Retained(
        session,
        archived=len(left) if archive else 0,
        deleted=0 if archive else len(left),
        kept=len(kept),
        size=sum(kept),
        shared=sum(row.session_id != session or row.sequence <= held for row in left),
    )


def _within(ranges: Sequence[tuple[int, int]], sequence: int) -> bool:
    return any(low < sequence <= high for low, high in ranges)


def settle(scope: Scope, view: View) -> int:
    """Move or delete the session's own rows that its watermarks say have left, but for what branches share.

    The number up to which branches hold its messages, 0 without branches.
    """
    head, links = tables.sessions, tables.session_branches
    joined = links.join(head, (head.c.tenant == links.c.tenant) & (head.c.id == links.c.session_id))
    found = scope.first(scope.select(func.max(head.c.fork), source=joined).where(links.c.parent == view.id))
    held = int(found[0] or 0)
    low = max(held, view.pinned)
    active, archive = tables.messages, tables.archived_messages
    if view.deleted > low:
        for table in (active, archive):
            gone = (table.c.session_id == view.id) & (table.c.sequence > low) & (table.c.sequence <= view.deleted)
            scope.execute(scope.delete(table).where(gone))
    if view.archived > max(low, view.deleted):
        moving = (active.c.session_id == view.id) & (active.c.sequence > low) & (active.c.sequence <= view.archived)
        source = scope.select(*active.c, literal(clock())).where(moving)
        scope.insert_from(archive, [*(column.name for column in active.c), "archived_at"], source)
        scope.execute(scope.delete(active).where(moving))
    return held
