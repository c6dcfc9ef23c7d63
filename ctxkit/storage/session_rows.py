"""Messages as rows and back, in the clear or encrypted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ctxkit.errors import ConflictError
from ctxkit.messages import Message, Part, ToolCall
from ctxkit.storage.checks import checked_name, checked_text, decoded, encoded
from ctxkit.storage.clock import moment, stamp
from ctxkit.storage.encryption import Encryption, needs_key

__all__ = ["Codec", "Row", "check_same", "to_row"]

Row = dict[str, Any]

_SAME = ("role", "name", "tool_call_id", "tool_calls", "content")
"""What two messages of one id must share; their times may differ, since a client that retries stamps anew."""


def to_row(message: Message, what: str) -> Row:
    """The columns that a message fills by itself. Raises `StorageError` for what no database holds."""
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
        "key_id": None,
    }


class Codec:
    """Reads and writes the rows of one tenant; with keys, it writes what messages say encrypted."""

    __slots__ = ("encryption", "tenant")

    def __init__(self, tenant: str, encryption: Encryption | None) -> None:
        self.tenant = tenant
        self.encryption = encryption

    def closed(self, row: Row) -> Row:
        """A complete plain row as it is stored."""
        if self.encryption is None:
            return row
        plain = f"[{row['content']},{row['tool_calls']}]"
        key_id = self.encryption.current
        row = {**row, "key_id": key_id, "tool_calls": "[]"}
        return {**row, "content": self.encryption.seal(plain, self._place(row))}

    def opened(self, row: Any) -> Row:
        """A stored row as a plain one: what `closed` was given."""
        plain = row if isinstance(row, dict) else dict(row._mapping)
        key_id = plain["key_id"]
        if key_id is None:
            return plain
        if self.encryption is None:
            raise needs_key(f"{plain['session_id']}/{plain['id']}", key_id)
        content, calls = json.loads(self.encryption.open(plain["content"], key_id, self._place(plain)))
        return {**plain, "content": _text(content), "tool_calls": _text(calls), "key_id": None}

    def message(self, row: Any) -> Message:
        plain = self.opened(row) if row.key_id is not None else row._mapping
        return _message(plain)

    def _place(self, row: Row) -> tuple[Any, ...]:
        names = ("session_id", "id", "sequence", "role", "name", "tool_call_id")
        return (self.tenant, *(row[name] for name in names))


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _message(row: Mapping[str, Any]) -> Message:
    content = decoded(row["content"])
    calls = row["tool_calls"]
    return Message(
        role=row["role"],
        content=content if isinstance(content, str) else tuple(Part(**part) for part in content),
        tool_calls=() if calls == "[]" else tuple(ToolCall(**call) for call in decoded(calls)),
        tool_call_id=row["tool_call_id"],
        name=row["name"],
        id=row["id"],
        sequence=row["sequence"],
        created_at=moment(row["created_at"]) if row["created_at"] else None,
    )


def check_same(earlier: Row, later: Row, session: str) -> None:
    """Raise `ConflictError` where two plain rows of one id say different things."""
    changed = [name for name in _SAME if _comparable(name, earlier[name]) != _comparable(name, later[name])]
    if changed:
        raise ConflictError(
            f"a message with this id is stored with another {' and '.join(changed)}",
            subject=f"{session}/{earlier['id']}",
            remedy="A stored message never changes: give the new one an id of its own, or edit() it on a branch.",
        )


def _comparable(column: str, value: Any) -> Any:
    """JSON compares by value, with the keys of an object in any order; text as it is."""
    return json.dumps(decoded(value), sort_keys=True) if column in ("tool_calls", "content") else value
