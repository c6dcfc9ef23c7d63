"""Dialogues in the form of OpenAI's Chat Completions API.

It holds roles, text, images, tool calls and results, names, refusals. It does not hold ids and times of messages,
reasoning, and what other providers attach to a text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ctxkit.history.conversion import Notes, malformed
from ctxkit.messages import Message, Part, ToolCall

__all__ = ["read", "write"]

_IMAGE = {"url", "detail"}
_OWN = {"input_audio", "file"}
_KEYS = {"role", "content", "name", "tool_calls", "tool_call_id", "refusal", "reasoning_content", "function_call", "id"}


def write(messages: Sequence[Message], notes: Notes) -> list[dict[str, Any]]:
    """The list of chat messages; a content of parts stays one."""
    if any(message.id or message.created_at for message in messages):
        notes.add(None, "ids and times of messages have no place in this format")
    return [_written(message, index, notes) for index, message in enumerate(messages)]


def _written(message: Message, index: int, notes: Notes) -> dict[str, Any]:
    made: dict[str, Any] = {"role": message.role, "content": message.content}
    if not isinstance(message.content, str):
        parts = [part for part in message.content if not _is_refusal(part, "field")]
        refused = [part for part in message.content if _is_refusal(part, "field")]
        made["content"] = _parts(parts, index, notes)
        if refused:
            made["refusal"] = "".join(part.text for part in refused)
            if len(refused) > 1 or message.content[-1] is not refused[0]:
                notes.add(index, "refusals are joined, behind the other parts")
            if any(set(part.data) != {"refusal"} for part in refused):
                notes.add(index, "what is attached to a refusal is left out")
        if not made["content"]:
            made["content"] = None if refused else ""
            if not refused:
                notes.add(index, "a content without parts becomes an empty text")
    if message.tool_calls:
        made["tool_calls"] = [call.to_openai() for call in message.tool_calls]
        made["content"] = made["content"] or None
    if message.name is not None:
        made["name"] = message.name
    if message.tool_call_id is not None:
        made["tool_call_id"] = message.tool_call_id
    return made


def _is_refusal(part: Part, kind: str) -> bool:
    return part.kind == "text" and part.data.get("refusal") == kind


def _parts(parts: Sequence[Part], index: int, notes: Notes) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for part in parts:
        extra: set[str] = set()
        if _is_refusal(part, "part"):
            made.append({"type": "refusal", "refusal": part.text})
            extra = set(part.data) - {"refusal"}
        elif part.kind == "text":
            made.append({"type": "text", "text": part.text})
            extra = set(part.data)
        elif part.kind == "image" and "url" in part.data:
            made.append({"type": "image_url", "image_url": {k: v for k, v in part.data.items() if k in _IMAGE}})
            extra = set(part.data) - _IMAGE
            if part.text:
                notes.add(index, "the text of an image is left out")
        elif part.kind in _OWN:
            made.append({**part.data, "type": part.kind})
            extra = {"type"} & set(part.data)
            if part.text:
                notes.add(index, f"the text of a part {part.kind!r} is left out")
        else:
            notes.add(index, f"a part of kind {part.kind!r:.60} is left out")
        if extra:
            notes.add(index, f"of a part {part.kind!r:.60} is left out: {', '.join(sorted(map(str, extra)))}")
    return made


def read(value: Any, notes: Notes) -> list[Message]:
    """The messages of a list, or of an object that has it under `messages`."""
    if isinstance(value, Mapping):
        found = value.get("messages", value.get("body", value))
        value = found.get("messages", [found]) if isinstance(found, Mapping) else found
    if not isinstance(value, list):
        raise malformed(0, "there is no list of messages", "Give a list of chat messages.")
    messages = []
    legacy: list[str] = []
    for index, item in enumerate(value):
        try:
            messages.append(_read(item, index, notes, legacy))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            problem = f"not a chat message ({type(error).__name__}: {error})"
            raise malformed(index, problem, 'Give objects such as {"role": "user", "content": "…"}.') from error
    return messages


def _read(item: Mapping[str, Any], index: int, notes: Notes, legacy: list[str]) -> Message:
    role, content = item["role"], item.get("content")
    parts: str | tuple[Part, ...] = ""
    if isinstance(content, str):
        parts = content
    elif content is not None:
        parts = tuple(_part(part, index, notes) for part in content)
    if item.get("reasoning_content"):
        parts = (Part("reasoning", _str(item["reasoning_content"])), *_as_parts(parts))
    if item.get("refusal") is not None:
        parts = (*_as_parts(parts), Part(text=_str(item["refusal"]), data={"refusal": "field"}))
    calls = [_call(call, index) for call in item.get("tool_calls") or ()]
    answered = item.get("tool_call_id") if role == "tool" else None
    if item.get("function_call"):
        call = item["function_call"]
        legacy.append(f"function_call:{index + 1}")
        calls.append(ToolCall(legacy[-1], _str(call["name"]), _str(call.get("arguments", "{}"))))
        notes.add(index, "a function call of the old form becomes a tool call")
    if role == "function":
        if not legacy:
            raise malformed(index, "a function's result without a call", "Remove it, or put its call before it.")
        role, answered = "tool", legacy[-1]
        notes.add(index, "a function's result of the old form becomes a tool's")
    if role == "developer":
        role = "system"
        notes.add(index, "the role developer becomes system")
    if unknown := sorted(key for key in set(item) - _KEYS if item[key] is not None):
        notes.add(index, f"left out: {', '.join(map(str, unknown))}")
    if item.get("tool_call_id") is not None and answered is None:
        notes.add(index, f"a tool_call_id at the role {role!r} is left out")
    return Message(
        role=role,
        content=parts,
        tool_calls=tuple(calls),
        tool_call_id=None if answered is None else _str(answered),
        name=None if item.get("name") is None else _str(item["name"]),
        id=_str(item.get("id") or ""),
    )


def _as_parts(content: str | tuple[Part, ...]) -> tuple[Part, ...]:
    return content if not isinstance(content, str) else (Part(text=content),) if content else ()


def _call(call: Mapping[str, Any], index: int) -> ToolCall:
    if call.get("type", "function") != "function":
        raise malformed(
            index, f"a tool call of type {call['type']!r:.60}", "Only calls of functions are read: remove it."
        )
    arguments = call["function"].get("arguments", "{}")
    # Some write the arguments as the object that they are.
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return ToolCall(_str(call["id"]), _str(call["function"]["name"]), text)


def _part(item: Mapping[str, Any], index: int, notes: Notes) -> Part:
    kind = item["type"]
    if kind in ("text", "input_text", "output_text"):
        if extra := sorted(key for key in set(item) - {"type", "text"} if item[key]):
            notes.add(index, f"of a text is left out: {', '.join(extra)}")
        return Part(text=_str(item["text"]))
    if kind == "refusal":
        return Part(text=_str(item["refusal"]), data={"refusal": "part"})
    if kind == "image_url":
        image = item["image_url"]
        return Part("image", data={"url": image} if isinstance(image, str) else dict(image))
    if kind == "reasoning":
        return Part("reasoning", _str(item.get("text", "")))
    if kind not in _OWN:
        raise ValueError(f"a part of type {kind!r:.60}")
    return Part(kind, data={key: value for key, value in item.items() if key != "type"})


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a text, got {value!r:.40}")
    return value
