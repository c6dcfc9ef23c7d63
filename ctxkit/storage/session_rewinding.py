"""Rewinding: the newest messages of a dialogue are taken back, and others may take their place, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func

from ctxkit.errors import ConflictError, ProtectedError
from ctxkit.messages import Message
from ctxkit.storage import tables
from ctxkit.storage.clock import now
from ctxkit.storage.session_appending import append
from ctxkit.storage.session_rows import Codec, Row
from ctxkit.storage.session_views import find, read
from ctxkit.storage.tenancy import Scope

__all__ = ["rewind"]


def rewind(
    scope: Scope, codec: Codec, session: str, count: int, given: Sequence[tuple[Message, Row]], expected: int | None
) -> list[Message]:
    """Delete the newest `count` messages that are shown, and append others; what went."""
    view = find(scope, session, lock=True)
    last = view.last if view is not None else 0
    if expected is not None and last != expected:
        raise ConflictError(
            f"the session has {last} messages, not {expected}: somebody else has changed it",
            subject=session,
            remedy="Read it again, and decide anew.",
        )
    gone: list[Message] = []
    if view is not None and count:
        ranges = view.newest(count)
        rows = read(scope, view, ranges)
        gone = [codec.message(row) for row in rows]
        if rows:
            low = rows[0].sequence - 1
            held = _held(scope, session)
            if low < max(view.fork, view.archived, held):
                why = "are shared with a branch" if low < max(view.fork, held) else "stand before archived ones"
                raise ProtectedError(
                    f"the newest {len(rows)} messages cannot be taken back: some {why}",
                    subject=session,
                    remedy="Take fewer back, or go on with a branch: sessions.branch(session, at=…).",
                )
            table, head = tables.messages, tables.sessions
            scope.execute(scope.delete(table).where((table.c.session_id == session) & (table.c.sequence > low)))
            moved = scope.update(head).where(head.c.id == session).values(last_sequence=low, updated_at=now())
            scope.execute(moved)
    if given:
        append(scope, codec, session, given)
    return gone


def _held(scope: Scope, session: str) -> int:
    """The number up to which branches share its messages, 0 without branches."""
    head, links = tables.sessions, tables.session_branches
    joined = links.join(head, (head.c.tenant == links.c.tenant) & (head.c.id == links.c.session_id))
    found = scope.first(scope.select(func.max(head.c.fork), source=joined).where(links.c.parent == session))
    return int(found[0] or 0)
