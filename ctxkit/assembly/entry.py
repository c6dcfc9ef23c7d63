"""What comes into an assembly, before anything is counted: texts that can be sent, sections that exist."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ctxkit.checking import did_you_mean
from ctxkit.documents import Candidate
from ctxkit.errors import ConfigError
from ctxkit.messages import Message
from ctxkit.prompts import Budget

if TYPE_CHECKING:
    from ctxkit.templates import Template

__all__ = [
    "check_sections",
    "sendable",
    "sendable_candidates",
    "sendable_history",
    "sendable_tools",
]

_SURROGATE = re.compile("[\ud800-\udfff]")


def sendable(text: str) -> str:
    """The text with each surrogate as U+FFFD, one for one: UTF-8 cannot carry it, so no model can get it.

    What is counted is then what is sent, whoever counts; and a span of a document still says the same characters.

    Example:
        >>> sendable("a\\ud800b") == "a\\N{REPLACEMENT CHARACTER}b"
        True
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)
    return text


def sendable_history(messages: Sequence[Message]) -> list[Message]:
    """The messages with texts that can be sent; one that can be sent as it is stays itself. Linear."""
    return [_sendable_message(message) for message in messages]


def _sendable_message(message: Message) -> Message:
    content: Any = message.content
    if isinstance(content, str):
        content = sendable(content)
    else:
        content = tuple(replace(part, text=sendable(part.text), data=_sendable_json(part.data)) for part in content)
    sent = replace(
        message,
        content=content,
        name=None if message.name is None else sendable(message.name),
        tool_calls=tuple(
            replace(call, id=sendable(call.id), name=sendable(call.name), arguments=sendable(call.arguments))
            for call in message.tool_calls
        ),
        tool_call_id=None if message.tool_call_id is None else sendable(message.tool_call_id),
    )
    return message if sent == message else sent


def sendable_candidates(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates with texts that can be sent; their spans stay true, since no text gets another length."""
    sent = []
    for candidate in candidates:
        text = sendable(candidate.chunk.text)
        same = text == candidate.chunk.text
        sent.append(candidate if same else replace(candidate, chunk=replace(candidate.chunk, text=text)))
    return sent


def sendable_tools(tools: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """The tools, as plain JSON, with texts that can be sent."""
    return tuple(_sendable_json(tool) for tool in tools)


def _sendable_json(value: Any) -> Any:
    if isinstance(value, str):
        return sendable(value)
    if isinstance(value, Mapping):
        return {_sendable_json(key): _sendable_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_sendable_json(item) for item in value]
    return value


def check_sections(budget: Budget, template: Template) -> None:
    """Raise `ConfigError` for a limit of a section that no prompt of this template can have.

    `history`, `context`, `question`, `tools` and `chat format` always exist: a budget is often made for several
    templates.
    """
    known = {"history", "context", "question", "tools", "chat format", *template.variables}
    known |= {message.role for message in template.messages}
    for name in budget.sections:
        if name not in known:
            raise ConfigError(
                f"the template {template.reference} has no section {name!r}",
                subject="budget",
                remedy=f"{did_you_mean(name, sorted(known))}Its sections: {', '.join(sorted(known))}.",
            )
