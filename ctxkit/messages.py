"""The nouns of a dialogue: messages, their parts, and the units that must stay whole."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from ctxkit.documents import content_hash
from ctxkit.errors import ConfigError, HistoryError

__all__ = ["ROLES", "Message", "Part", "Quotation", "Role", "ToolCall", "history_hash"]

Role = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a message's content.

    Args:
        kind: `text`, `image`, `reasoning`, or a provider's own kind.
        text: the text of a text or reasoning part.
        data: JSON values that a provider needs for other kinds, such as `{"url": …, "width": …, "height": …}`.
    """

    kind: str = "text"
    text: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(self.kind, str, "a part's kind")
        _check(self.text, str, "a part's text", remedy='Give a text; a part without one has "".')
        _check(self.data, Mapping, "a part's data", remedy="Give a dict of JSON values.")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that an assistant message asks for; `arguments` is the JSON text exactly as the model wrote it."""

    id: str
    name: str
    arguments: str = "{}"

    def __post_init__(self) -> None:
        _check(self.id, str, "a tool call's id")
        _check(self.name, str, "a tool call's name", subject=self.id)
        _check(
            self.arguments,
            str,
            "a tool call's arguments",
            subject=self.id,
            remedy="Give the JSON text that the model wrote; json.dumps(arguments) makes it from a dict.",
        )

    def to_openai(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        }


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a dialogue. The role is out of band: nothing in `content` can change it (law 4).

    Args:
        role: `system`, `user`, `assistant` or `tool`.
        content: a text, or parts; a list of parts becomes a tuple.
        tool_calls: what an assistant message asks for; a list becomes a tuple.
        tool_call_id: the call that a tool message answers.
        id: unique in its session; appending the same id twice changes nothing.
        sequence: the order in its session, given by the store; 0 while unsaved.
        created_at: aware, or None.

    Raises:
        HistoryError: a field has a type that could not be stored, counted or sent, or that its role does not have.
        ConfigError: the role is unknown, or `created_at` is not aware.
    """

    role: Role
    content: str | tuple[Part, ...] = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    id: str = ""
    sequence: int = 0
    created_at: datetime | None = None

    def __post_init__(self) -> None:
        _check(self.id, str, "a message's id")
        if self.role not in ROLES:
            raise ConfigError(f"unknown role {self.role!r}", subject=self.id, remedy=f"Use one of: {', '.join(ROLES)}.")
        self._check_types()
        if self.tool_calls and self.role != "assistant":
            raise HistoryError(
                f"a {self.role} message cannot ask for tool calls",
                subject=self.id,
                remedy="Only assistant messages carry tool_calls.",
            )
        if (self.role == "tool") != (self.tool_call_id is not None):
            raise HistoryError(
                "tool_call_id and the role 'tool' belong together",
                subject=self.id,
                remedy="Give every tool message, and no other, the id of the call that it answers.",
            )
        if self.created_at is not None and self.created_at.tzinfo is None:
            raise ConfigError("created_at has no time zone", subject=self.id, remedy="Give an aware datetime.")

    def _check_types(self) -> None:
        """Refuse here what would fail on every later turn, once it is stored."""
        if isinstance(self.content, list):
            object.__setattr__(self, "content", tuple(self.content))
        if isinstance(self.tool_calls, list):
            object.__setattr__(self, "tool_calls", tuple(self.tool_calls))
        remedy = 'Give a text ("" for none) or parts; Message.from_openai() reads dicts.'
        _check(self.content, (str, tuple), "a message's content", subject=self.id, remedy=remedy)
        if not isinstance(self.content, str):
            for part in self.content:
                _check(part, Part, "a part of a message's content", subject=self.id, remedy=remedy)
        remedy = "Give ToolCall objects; Message.from_openai() reads dicts."
        _check(self.tool_calls, tuple, "a message's tool_calls", subject=self.id, remedy=remedy)
        for call in self.tool_calls:
            _check(call, ToolCall, "a call of a message's tool_calls", subject=self.id, remedy=remedy)
        _check(self.tool_call_id, (str, type(None)), "a message's tool_call_id", subject=self.id)
        _check(self.name, (str, type(None)), "a message's name", subject=self.id)
        _check(self.sequence, int, "a message's sequence", subject=self.id, remedy="Give a whole number.")
        _check(
            self.created_at,
            (datetime, type(None)),
            "a message's created_at",
            subject=self.id,
            remedy="Give an aware datetime.",
        )

    @property
    def parts(self) -> tuple[Part, ...]:
        """The content as parts; an empty text has none."""
        if isinstance(self.content, str):
            return (Part(text=self.content),) if self.content else ()
        return self.content

    @property
    def text(self) -> str:
        """All text of the content, reasoning included, in order, joined without a separator."""
        return "".join(part.text for part in self.parts)

    @property
    def visible(self) -> str:
        """The text that is sent: that of the text parts, in order, joined without a separator; no reasoning.

        Example:
            >>> Message("assistant", (Part("reasoning", "hm"), Part(text="yes"))).visible
            'yes'
        """
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content if part.kind == "text")

    @property
    def content_hash(self) -> str:
        """SHA-256 of what a model sees of this message: everything but id, sequence and time."""
        return content_hash(self.to_openai())

    def to_openai(self) -> dict[str, Any]:
        """The message in the form of the OpenAI chat API; text parts become one string."""
        parts = self.parts
        content: Any = self.visible
        if any(part.kind not in ("text", "reasoning") for part in parts):
            content = [
                {"type": "text", "text": part.text}
                if part.kind == "text"
                else {"type": "image_url", "image_url": dict(part.data)}
                if part.kind == "image"
                else {"type": part.kind, **part.data}
                for part in parts
                if part.kind != "reasoning"
            ]
        message: dict[str, Any] = {"role": self.role, "content": content}
        if self.name:
            message["name"] = self.name
        if self.tool_calls:
            message["tool_calls"] = [call.to_openai() for call in self.tool_calls]
            if not content:
                message["content"] = None
        if self.tool_call_id is not None:
            message["tool_call_id"] = self.tool_call_id
        return message

    @classmethod
    def from_openai(cls, data: Mapping[str, Any], *, created_at: datetime | None = None) -> Message:
        """The message that an OpenAI chat dict describes. Raises `HistoryError` when it is not one."""
        try:
            role = data["role"]
            raw = data.get("content")
            content: str | tuple[Part, ...]
            if raw is None:
                content = ""
            elif isinstance(raw, str):
                content = raw
            else:
                content = tuple(_part(item) for item in raw)
            calls = tuple(
                ToolCall(
                    id=_text(call["id"]),
                    name=_text(call["function"]["name"]),
                    arguments=_arguments(call["function"].get("arguments", "{}")),
                )
                for call in data.get("tool_calls") or ()
            )
            name, identity, answered = (
                None if data.get(key) is None else _text(data[key]) for key in ("name", "id", "tool_call_id")
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise HistoryError(
                f"not a chat message ({type(error).__name__}: {error})",
                subject=str(data)[:80],
                remedy='Give a dict such as {"role": "user", "content": "…"}.',
            ) from error
        return cls(
            role="system" if role == "developer" else role,
            content=content,
            tool_calls=calls,
            tool_call_id=answered if role == "tool" else None,
            name=name,
            id=identity or "",
            created_at=created_at,
        )


@dataclass(frozen=True, slots=True)
class Quotation(Message):
    """A message that quotes older ones. Only ctxkit makes it: no stored message is one, whatever it says.

    Args:
        quotes: for each part of the content the id of the message that it quotes, "" for what stands around the quotes.
    """

    quotes: tuple[str, ...] = ()


def _check(
    value: object, kinds: type | tuple[type, ...], what: str, *, subject: str = "", remedy: str = "Give a text."
) -> None:
    if not isinstance(value, kinds):
        raise HistoryError(f"{what} is {value!r:.60}, of type {type(value).__name__}", subject=subject, remedy=remedy)


def _part(item: Mapping[str, Any]) -> Part:
    kind = str(item.get("type", "text"))
    if kind in ("text", "input_text", "output_text"):
        return Part(text=_text(item["text"]))
    if kind == "image_url":
        value = item["image_url"]
        return Part(kind="image", data={"url": value} if isinstance(value, str) else dict(value))
    if kind == "reasoning":
        return Part(kind="reasoning", text=_text(item.get("text", "")))
    return Part(kind=kind, data={key: value for key, value in item.items() if key != "type"})


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a text, got {value!r:.40}")
    return value


def _arguments(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def history_hash(messages: Sequence[Message]) -> str:
    """SHA-256 over the content hashes of the messages, in order."""
    return content_hash([message.content_hash for message in messages])
