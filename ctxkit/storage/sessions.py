"""Dialogues: messages in the order they were appended, numbered without gaps, each stored once."""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any

from ctxkit.checking import check_kind
from ctxkit.errors import ConfigError, ConflictError
from ctxkit.messages import Message, Part, ToolCall
from ctxkit.storage import tables
from ctxkit.storage.checks import checked_name, checked_text, decoded, encoded
from ctxkit.storage.clock import moment, now, stamp
from ctxkit.storage.database import Database
from ctxkit.storage.records import SessionInfo
from ctxkit.storage.tenancy import Scope

__all__ = ["Sessions"]

Row = dict[str, Any]

_SAME = ("role", "name", "tool_call_id", "tool_calls", "content")
"""What two messages of one id must share; their times may differ, since a client that retries stamps anew."""


class Sessions:
    """The dialogues of one tenant: `store.sessions`."""

    def __init__(self, database: Database, tenant: str) -> None:
        self._database = database
        self._tenant = tenant

    def append(self, session: str, messages: Sequence[Message]) -> list[Message]:
        """Append messages, all or none, and give them back as they are stored.

        Sequence numbers begin at 1 and have no gaps, however many processes append at once. A message without an id
        gets `{session}:{sequence}`. A message whose id is stored already with the same content changes nothing, so
        that a client may safely try again.

        Raises:
            ConflictError: an id is stored already with another content.
            StorageError: a text holds NUL or a lone surrogate, or a part's data is not JSON.
        """
        given = self._checked(session, messages)
        return self._database.write(self._tenant, lambda scope: _append(scope, session, given)) if given else []

    def check(self, session: str, messages: Sequence[Message] = ()) -> None:
        """Raise what `append` would raise for this name and these messages, and write nothing."""
        self._checked(session, messages)

    def _checked(self, session: str, messages: Sequence[Message]) -> list[tuple[Message, Row]]:
        checked_name(session, "the session")
        for message in messages:
            check_kind(
                message, Message, "a message", remedy="Give a Message; Message.from_openai() makes one of a dict."
            )
        return [
            (message, _to_row(message, f"message {number} for {session[:60]!r}"))
            for number, message in enumerate(messages, 1)
        ]

    def messages(self, session: str, *, last: int | None = None) -> list[Message]:
        """The messages in order, or only the `last` ones; none for a session that does not exist."""
        checked_text(session, "the session")
        if last is not None and last < 0:
            raise ConfigError(f"last is {last}", remedy="Ask for 0 or more messages.")
        table = tables.messages

        def work(scope: Scope) -> list[Message]:
            statement = scope.select(table).where(table.c.session_id == session)
            if last is None:
                return [_from_row(row) for row in scope.all(statement.order_by(table.c.sequence))]
            newest = scope.all(statement.order_by(table.c.sequence.desc()).limit(last))
            return [_from_row(row) for row in reversed(newest)]

        return self._database.read(self._tenant, work)

    def delete(self, session: str) -> int:
        """Delete a session; how many messages it had."""
        checked_text(session, "the session")
        table = tables.sessions

        def work(scope: Scope) -> int:
            mine = table.c.id == session
            row = scope.first(scope.locked(scope.select(table.c.last_sequence).where(mine)))
            scope.execute(scope.delete(table).where(mine))
            return int(row[0]) if row else 0

        return self._database.write(self._tenant, work)

    def list(self) -> list[SessionInfo]:
        """The sessions, by id."""
        table = tables.sessions

        def work(scope: Scope) -> list[SessionInfo]:
            return [
                SessionInfo(row.id, row.last_sequence, moment(row.created_at), moment(row.updated_at))
                for row in scope.all(scope.select(table).order_by(table.c.id))
            ]

        return self._database.read(self._tenant, work)


def _append(scope: Scope, session: str, given: Sequence[tuple[Message, Row]]) -> list[Message]:
    table, head = tables.messages, tables.sessions
    mine = head.c.id == session
    moved = now()
    row = None
    while row is None:  # a session that is deleted between the two statements is made again
        scope.insert_missing(head, {"id": session, "last_sequence": 0, "created_at": moved, "updated_at": moved})
        # From here to the commit nobody else appends to this session.
        row = scope.first(scope.locked(scope.select(head.c.last_sequence).where(mine)))
    sequence = first = int(row[0])
    ids = {message.id or f"{session}:{first + offset}" for offset, (message, _) in enumerate(given, 1)}
    known = {
        found.id: found
        for found in scope.all(scope.select(table).where(table.c.session_id == session, scope.among(table.c.id, ids)))
    }
    stored: dict[str, tuple[Row, Message]] = {id_: (found._asdict(), _from_row(found)) for id_, found in known.items()}
    taken = {*stored, *(message.id for message, _ in given)}
    rows: list[Row] = []
    result: list[Message] = []
    for message, content in given:
        if message.id and message.id in stored:
            earlier, found = stored[message.id]
            _check_same(earlier, content, session)
            result.append(found)
            continue
        sequence += 1
        id_ = message.id or _free_id(scope, session, sequence, taken)
        full = {**content, "id": id_, "session_id": session, "sequence": sequence}
        saved = replace(message, id=id_, sequence=sequence)
        rows.append(full)
        stored[id_] = (full, saved)
        taken.add(id_)
        result.append(saved)
    if rows:
        scope.insert(table, rows)
        scope.execute(scope.update(head).where(mine).values(last_sequence=sequence, updated_at=moved))
    return result


def _free_id(scope: Scope, session: str, sequence: int, taken: Container[str]) -> str:
    """`session:sequence`, or that with a suffix where a caller has used the name for a message of another number."""
    table = tables.messages
    id_, tries = f"{session}:{sequence}", 0
    while id_ in taken or (
        # `taken` knows the plain names of this append, but not those with a suffix.
        tries and scope.first(scope.select(table.c.sequence).where(table.c.session_id == session, table.c.id == id_))
    ):
        tries += 1
        id_ = f"{session}:{sequence}.{tries}"
    return id_


def _check_same(earlier: Row, later: Row, session: str) -> None:
    changed = [name for name in _SAME if _comparable(name, earlier[name]) != _comparable(name, later[name])]
    if changed:
        raise ConflictError(
            f"a message with this id is stored with another {' and '.join(changed)}",
            subject=f"{session}/{earlier['id']}",
            remedy="A stored message never changes: give the new one an id of its own.",
        )


def _comparable(column: str, value: Any) -> Any:
    """JSON compares by value, with the keys of an object in any order; text as it is."""
    return json.dumps(decoded(value), sort_keys=True) if column in ("tool_calls", "content") else value


def _to_row(message: Message, what: str) -> Row:
    if message.id:
        checked_name(message.id, f"the id of {what}")
    content: Any = message.content
    if not isinstance(content, str):
        content = [{"kind": part.kind, "text": part.text, "data": part.data} for part in content]
    calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.tool_calls]
    return {
        "role": message.role,
        "name": None if message.name is None else checked_text(message.name, f"the name of {what}"),
        "tool_call_id": None
        if message.tool_call_id is None
        else checked_text(message.tool_call_id, f"the tool_call_id of {what}"),
        "created_at": stamp(message.created_at),
        "tool_calls": encoded(calls, f"the tool calls of {what}"),
        "content": encoded(content, f"the content of {what}"),
    }


def _from_row(row: Any) -> Message:
    content = decoded(row.content)
    return Message(
        role=row.role,
        content=content if isinstance(content, str) else tuple(Part(**part) for part in content),
        tool_calls=tuple(ToolCall(**call) for call in decoded(row.tool_calls)),
        tool_call_id=row.tool_call_id,
        name=row.name,
        id=row.id,
        sequence=row.sequence,
        created_at=moment(row.created_at) if row.created_at else None,
    )
