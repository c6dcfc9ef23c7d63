"""Branches: a session that shares another's past. No message is copied, and none of the original changes."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func

from ctxkit.errors import ConflictError, NotFoundError, ProtectedError
from ctxkit.storage import tables
from ctxkit.storage.checks import checked_name, encoded
from ctxkit.storage.clock import now
from ctxkit.storage.session_retention import settle
from ctxkit.storage.session_views import View, existing, find
from ctxkit.storage.tenancy import Scope

__all__ = ["branch", "delete", "locate"]


def locate(scope: Scope, view: View, at: int | str, *, inside: bool = False) -> int:
    """The number of a message that the session shows, by its id or its number.

    Without `inside` also 0, before the first one, and the number of the newest archived one, where a branch may begin.
    """
    sequence = at if isinstance(at, int) else _number_of(scope, view, at)
    if sequence is None or not int(inside) <= sequence <= view.last:
        raise NotFoundError(
            f"the session has no message {at!r:.60}",
            subject=view.id,
            remedy=f"Give the id of one of its messages, or a number up to {view.last}.",
        )
    if view.pinned < sequence < view.archived + inside:
        gone = "deleted" if sequence <= view.deleted else "archived"
        raise NotFoundError(
            f"message {at!r:.60} is {gone}",
            subject=view.id,
            remedy=f"Branch at {view.archived} or later; an archived past can be exported, and imported anew.",
        )
    return sequence


def _number_of(scope: Scope, view: View, id_: str) -> int | None:
    for table in (tables.messages, tables.archived_messages) if view.archived else (tables.messages,):
        statement = scope.select(table.c.session_id, table.c.sequence).where(table.c.id == id_)
        for row in scope.all(statement.where(scope.among(table.c.session_id, view.owners))):
            if view.owns(row):
                return int(row.sequence)
    return None


def branch(scope: Scope, parent: View, sequence: int, name: str | None, replaces: str | None = None) -> str:
    """Make a session of the parent's messages up to a number; its name. The parent is locked by the caller."""
    lineage = []
    for owner, end in (*parent.lineage, (parent.id, parent.last)):
        lineage.append((owner, min(end, sequence)))
        if sequence <= end:
            break
    if sequence == 0:
        lineage = []
    moved = now()
    row = {
        "last_sequence": sequence,
        "created_at": moved,
        "updated_at": moved,
        "fork": sequence,
        "pinned": min(parent.pinned, sequence),
        "archived_through": min(parent.archived, sequence),
        "deleted_through": min(parent.deleted, sequence),
        "encrypted": int(parent.encrypted),
    }
    made = _insert(scope, parent.id, name, row)
    # Under the session that owns the newest shared message, so that the chain is as deep as the past has changes.
    above = lineage[-1][0] if lineage else parent.id
    scope.insert(
        tables.session_branches,
        [
            {
                "session_id": made,
                "parent": above,
                "replaces": replaces,
                "lineage": encoded([list(each) for each in lineage], "the lineage"),
            }
        ],
    )
    return made


def _insert(scope: Scope, parent: str, name: str | None, row: dict[str, object]) -> str:
    if name is not None:
        if not scope.insert_missing(tables.sessions, {"id": checked_name(name, "the branch"), **row}):
            raise ConflictError(
                "there is a session of this name", subject=name, remedy="Give the branch another name, or none."
            )
        return name
    table = tables.session_branches
    number = int(scope.first(scope.select(func.count(), source=table).where(table.c.parent == parent))[0])
    while True:
        number += 1
        made = checked_name(f"{parent}~{number}", "the branch")
        if scope.insert_missing(tables.sessions, {"id": made, **row}):
            return made


def delete(scope: Scope, session: str, *, branches: bool) -> int:
    """Delete a session, its branches too where that is said; how many messages are gone."""
    view = find(scope, session, lock=True)
    if view is None:
        return 0
    doomed = [session]
    level = children(scope, doomed)
    if level and not branches:
        raise ProtectedError(
            f"sessions that branched from it need it: {', '.join(level[:5])}",
            subject=session,
            remedy="Delete them first, or all together: branches=True (--branches).",
        )
    while level:
        doomed += level
        level = children(scope, level)
    gone = 0
    head = tables.sessions
    for name in reversed(doomed):
        for table in (tables.messages, tables.archived_messages):
            gone += scope.execute(scope.delete(table).where(table.c.session_id == name)).rowcount
        scope.execute(scope.delete(head).where(head.c.id == name))
    if view.lineage:  # the older ancestors are still held by this one
        settle(scope, existing(scope, view.lineage[-1][0], lock=True))
    return gone


def children(scope: Scope, parents: Sequence[str]) -> list[str]:
    table = tables.session_branches
    found = scope.select(table.c.session_id).where(scope.among(table.c.parent, parents)).order_by(table.c.session_id)
    return [row[0] for row in scope.all(found)]
