"""Other shapes of a dialogue, for chat templates that cannot take it as it is. Nothing is left out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ctxkit.messages import Message, Part

__all__ = ["as_function", "as_text", "fold_system", "join_roles", "with_tools_as_text"]


def as_text(message: Message) -> Message:
    """A message with its calls, or a tool's result, as text between tags that many models were trained on."""
    if message.tool_calls:
        parts = list(message.parts)
        for call in message.tool_calls:
            start = "\n" if any(part.text for part in parts) else ""
            name = json.dumps(call.name, ensure_ascii=False)
            body = f'{{"name": {name}, "arguments": {call.arguments or "{}"}}}'
            parts.append(Part(text=f"{start}<tool_call>\n{body}\n</tool_call>"))
        return replace(message, content=tuple(parts), tool_calls=())
    if message.role == "tool":
        parts = [Part(text="<tool_response>\n"), *message.parts, Part(text="\n</tool_response>")]
        return replace(message, role="user", content=tuple(parts), tool_call_id=None, name=None)
    return message


def with_tools_as_text(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[Message]:
    functions = (as_function(tool) for tool in tools)
    lines = "\n".join(json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in functions)
    text = (
        "You can call the functions below. To call one, answer with its name and arguments as JSON:\n"
        '<tool_call>\n{"name": "…", "arguments": {}}\n</tool_call>\n'
        f"<tools>\n{lines}\n</tools>"
    )
    if messages and messages[0].role == "system":
        head = replace(messages[0], content=(*messages[0].parts, Part(text=f"\n\n{text}")))
        return [head, *messages[1:]]
    return [Message("system", text), *messages]


def as_function(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A function in the form of the OpenAI chat API; a tool of another type (`custom`, …) as it is."""
    if "function" in tool or ("input_schema" not in tool and tool.get("type", "function") != "function"):
        return dict(tool)
    function = {"parameters" if key == "input_schema" else key: value for key, value in tool.items() if key != "type"}
    return {"type": "function", "function": function}


def fold_system(messages: Sequence[Message]) -> list[Message]:
    """System texts move to the front of the next message, or to the end of the last."""
    folded: list[Message] = []
    waiting: list[Part] = []
    for message in messages:
        if message.role == "system":
            waiting += [*message.parts, Part(text="\n\n")]
        else:
            content = (*waiting, *message.parts) if waiting else message.content
            folded.append(replace(message, content=content))
            waiting = []
    if waiting:
        folded.append(Message("user", tuple(waiting[:-1])))
    return folded


def join_roles(messages: Sequence[Message]) -> list[Message]:
    joined: list[Message] = []
    for message in messages:
        last = joined[-1] if joined else None
        if last and last.role == message.role and not (last.tool_calls or message.tool_calls or message.tool_call_id):
            joined[-1] = replace(last, content=(*last.parts, Part(text="\n\n"), *message.parts))
        else:
            joined.append(message)
    return joined
