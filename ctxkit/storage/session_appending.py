"""Appending: numbers without gaps, each id once, all messages or none."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

from sqlalchemy import bindparam, select, update

from ctxkit.messages import Message
from ctxkit.storage import tables
from ctxkit.storage.clock import now
from ctxkit.storage.encryption import needs_key
from ctxkit.storage.session_rows import Codec, Row, check_same
from ctxkit.storage.session_views import View, find
from ctxkit.storage.tenancy import Scope

__all__ = ["append"]

# Built once, since every turn of every dialogue runs them: building takes as long as running.
_ONE = select(tables.messages).where(
    tables.messages.c.tenant == bindparam("of_tenant"),
    tables.messages.c.session_id == bindparam("of_session"),
    tables.messages.c.id == bindparam("of_id"),
)
_MOVED = (
    update(tables.sessions)
    .where(tables.sessions.c.tenant == bindparam("of_tenant"), tables.sessions.c.id == bindparam("of_session"))
    .values(last_sequence=bindparam("to_sequence"), updated_at=bindparam("at"), encrypted=bindparam("now_encrypted"))
)


def append(scope: Scope, codec: Codec, session: str, given: Sequence[tuple[Message, Row]]) -> list[Message]:
    """Append checked messages, each with the columns that it fills by itself, and give them as they are stored."""
    table, head = tables.messages, tables.sessions
    moved = now()
    view = find(scope, session, lock=True)
    while view is None:  # a session that is deleted between the two statements is made again
        scope.insert_missing(head, {"id": session, "last_sequence": 0, "created_at": moved, "updated_at": moved})
        # From here to the commit nobody else appends to this session.
        view = find(scope, session, lock=True)
    if view.encrypted and codec.encryption is None:
        raise needs_key(session)
    sequence = first = view.last
    ids = {message.id or f"{session}:{first + offset}" for offset, (message, _) in enumerate(given, 1)}
    stored = _known(scope, codec, view, ids)
    taken = {*stored, *(message.id for message, _ in given)}
    rows: list[Row] = []
    result: list[Message] = []
    for message, content in given:
        if message.id and message.id in stored:
            earlier, found = stored[message.id]
            check_same(earlier, content, session)
            result.append(found)
            continue
        sequence += 1
        id_ = message.id or _free_id(scope, codec, view, sequence, taken)
        full = {**content, "id": id_, "session_id": session, "sequence": sequence}
        saved = replace(message, id=id_, sequence=sequence)
        rows.append(codec.closed(full))
        stored[id_] = (full, saved)
        taken.add(id_)
        result.append(saved)
    if rows:
        scope.insert(table, rows)
        scope.prepared(
            _MOVED,
            of_session=session,
            to_sequence=sequence,
            at=moved,
            now_encrypted=int(view.encrypted or codec.encryption is not None),
        )
    return result


def _known(scope: Scope, codec: Codec, view: View, ids: set[str]) -> dict[str, tuple[Row, Message]]:
    """The messages of these ids that the session has, archived ones too, as plain rows."""
    found: dict[str, tuple[Row, Message]] = {}
    if len(ids) == 1 and not view.lineage and not view.archived:
        (id_,) = ids
        row = scope.prepared(_ONE, of_session=view.id, of_id=id_).first()
        return {} if row is None else {id_: (codec.opened(row), codec.message(row))}
    for table in (tables.messages, tables.archived_messages) if view.archived else (tables.messages,):
        of_session = scope.among(table.c.session_id, view.owners) if view.lineage else table.c.session_id == view.id
        columns = [table.c[column.name] for column in tables.messages.c]
        for row in scope.all(scope.select(*columns).where(of_session, scope.among(table.c.id, ids))):
            if view.owns(row):
                found[row.id] = (codec.opened(row), codec.message(row))
    return found


def _free_id(scope: Scope, codec: Codec, view: View, sequence: int, taken: Container[str]) -> str:
    """`session:sequence`, or that with a suffix where a caller has used the name for a message of another number."""
    id_, tries = f"{view.id}:{sequence}", 0
    # `taken` knows the plain names of this append, but not those with a suffix.
    while id_ in taken or (tries and _known(scope, codec, view, {id_})):
        tries += 1
        id_ = f"{view.id}:{sequence}.{tries}"
    return id_
