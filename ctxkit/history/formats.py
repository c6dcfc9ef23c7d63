"""Export and import of dialogues: the message formats of OpenAI and Anthropic, and JSON Lines of our own.

Ours loses nothing. A provider's format holds no times and no ids, and each lacks more; whatever a conversion cannot
carry is in its `notes`, one line each. Without notes an export reads back as the very same messages.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from ctxkit.errors import ConfigError, HistoryError
from ctxkit.history import anthropic_format, openai_format
from ctxkit.history.conversion import Notes
from ctxkit.messages import ROLES, Message, Part, ToolCall
from ctxkit.timestamps import parse_timestamp

__all__ = ["FORMATS", "Converted", "export_history", "import_history"]

T_co = TypeVar("T_co", covariant=True)

FORMATS = ("jsonl", "openai", "anthropic")

VERSION = 1


@dataclass(frozen=True, slots=True)
class Converted(Generic[T_co]):
    """What came out, and what of the input is not in it."""

    value: T_co
    notes: tuple[str, ...] = ()


def export_history(
    messages: Sequence[Message],
    form: str = "jsonl",
    *,
    strict: bool = False,
) -> Converted[str]:
    """A dialogue as text of a format. Linear.

    Args:
        form: `jsonl`, one message a line, which holds everything; `openai`, the JSON list of chat messages;
            `anthropic`, the JSON object of `system` and `messages`.
        strict: raise instead of leaving something out.

    Raises:
        HistoryError: `strict`, and the format cannot hold something.
        ConfigError: the format is not known.

    Example:
        >>> export_history([Message("user", "Hi.")], "openai").value
        '[{"role": "user", "content": "Hi."}]'
    """
    _check(form)
    notes = Notes(strict=strict)
    if form == "jsonl":
        return Converted("".join(_text(_line(message)) + "\n" for message in messages))
    converted = openai_format.write(messages, notes) if form == "openai" else anthropic_format.write(messages, notes)
    return Converted(_text(converted), notes.lines)


def import_history(text: str, form: str = "jsonl", *, strict: bool = False) -> Converted[list[Message]]:
    """The dialogue that a text of a format holds. Linear.

    Messages without an id get one from their place and content, so that importing the same text twice, or a longer
    version of it, appends only what is new.

    Args:
        form: as `export_history` wrote it; for `openai` also an object with `messages`, or one message a line.
        strict: raise instead of leaving something out.

    Raises:
        HistoryError: the text is not of this format (the line or message is named), or `strict` and something is left
            out.
        ConfigError: the format, or the role of a message, is not known.
    """
    _check(form)
    notes = Notes(strict=strict)
    if form == "jsonl":
        return Converted(_identified(_lines(text)), notes.lines)
    read: Callable[[Any, Notes], list[Message]] = openai_format.read if form == "openai" else anthropic_format.read
    return Converted(_identified(read(_parsed(text, form), notes)), notes.lines)


def _check(form: str) -> None:
    if form not in FORMATS:
        raise ConfigError(f"unknown format {form!r:.60}", remedy=f"Use one of: {', '.join(FORMATS)}.")


def _text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    # A lone surrogate is no UTF-8, but JSON can escape it.
    return text if text.isprintable() or _encodes(text) else json.dumps(value)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _line(message: Message) -> dict[str, Any]:
    content: Any = message.content
    if not isinstance(content, str):
        content = [{"kind": part.kind, "text": part.text, "data": dict(part.data)} for part in content]
    line: dict[str, Any] = {"v": VERSION, "id": message.id, "sequence": message.sequence, "role": message.role}
    if message.created_at is not None:
        line["created_at"] = message.created_at.isoformat()
    if message.name is not None:
        line["name"] = message.name
    line["content"] = content
    if message.tool_calls:
        line["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        line["tool_call_id"] = message.tool_call_id
    return line


_KEYS = {"v", "id", "sequence", "role", "created_at", "name", "content", "tool_calls", "tool_call_id"}


def _lines(text: str) -> list[Message]:
    messages = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            messages.append(_message(_loaded(line, f"line {number}"), f"line {number}"))
    return messages


def _message(data: Any, where: str) -> Message:
    if not isinstance(data, dict) or data.get("v") != VERSION:
        raise HistoryError(
            f"not a message of version {VERSION}",
            subject=where,
            remedy="Give what was exported as jsonl, or say that the format is another: openai or anthropic.",
        )
    if unknown := set(data) - _KEYS:
        raise HistoryError(
            f"unknown keys: {', '.join(sorted(unknown))}", subject=where, remedy="Upgrade ctxkit, or remove them."
        )
    if data.get("role") not in ROLES:
        raise ConfigError(
            f"unknown role {data.get('role')!r:.60}", subject=where, remedy=f"Use one of: {', '.join(ROLES)}."
        )
    try:
        content = data["content"]
        stamp = data.get("created_at")
        # As it was written, with its offset, where Python reads it so.
        return Message(
            role=data["role"],
            content=content if isinstance(content, str) else tuple(Part(**part) for part in content),
            tool_calls=tuple(ToolCall(**call) for call in data.get("tool_calls", ())),
            tool_call_id=data.get("tool_call_id"),
            name=data.get("name"),
            id=data.get("id", ""),
            sequence=data.get("sequence", 0),
            created_at=None if stamp is None else _moment(stamp),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise HistoryError(
            f"not a message ({type(error).__name__}: {error})", subject=where, remedy="Export it again."
        ) from error


def _moment(stamp: str) -> Any:
    from datetime import datetime

    moment = datetime.fromisoformat(stamp)
    return moment if moment.tzinfo is not None else parse_timestamp(stamp)


def _loaded(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise HistoryError(f"not JSON ({error})", subject=where, remedy="Check it with a JSON linter.") from error


def _parsed(text: str, form: str) -> Any:
    """One JSON value, or, where there is one a line, the list of them."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        lines = [line for line in text.split("\n") if line.strip()]
        if form != "openai" or len(lines) < 2 or not lines[0].rstrip().endswith("}"):
            raise HistoryError(f"not JSON ({error})", remedy="Check it with a JSON linter.") from error
        return [_loaded(line, f"line {number}") for number, line in enumerate(lines, 1)]


def _identified(messages: Iterable[Message]) -> list[Message]:
    """Messages without an id get one that the same dialogue always gets."""
    found = []
    digest = hashlib.sha256()
    for number, message in enumerate(messages, 1):
        digest.update(json.dumps(_line(message)).encode())
        found.append(message if message.id else replace(message, id=f"import:{number}:{digest.hexdigest()[:16]}"))
    return found
