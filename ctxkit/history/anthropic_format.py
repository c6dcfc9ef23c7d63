"""Dialogues in the form of Anthropic's Messages API.

It holds text, images, thinking with its signature, tool calls and results; the system messages stand apart, in front.
It does not hold ids, times and names, nor where one message ends and the next of the same role begins.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ctxkit.history.conversion import Notes, image_data, image_url, malformed, strict_json
from ctxkit.messages import Message, Part, ToolCall

__all__ = ["read", "write"]

_FOREIGN = {"input_audio", "file", "image_url"}


def write(messages: Sequence[Message], notes: Notes) -> dict[str, Any]:
    """The object of `system` and `messages`, neighbours of one role joined."""
    if any(message.id or message.created_at for message in messages):
        notes.add(None, "ids and times of messages have no place in this format")
    system: list[dict[str, Any]] = []
    turns: list[dict[str, Any]] = []
    ends: Message | None = None
    for index, message in enumerate(messages):
        if message.name is not None:
            notes.add(index, "its name is left out")
        if message.role == "system":
            if turns:
                notes.add(index, "a system message moves to the front")
            elif system:
                notes.add(index, "it is joined with the system message before it")
            said = _blocks(message.parts, index, notes)
            if not said:
                notes.add(index, "a message without content is left out")
            system += said
            _check_form(message, index, notes)
            continue
        blocks = _turn(message, index, notes)
        if not blocks:
            notes.add(index, "a message without content is left out")
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if turns and turns[-1]["role"] == role:
            # Results stand in one message with what the user says next, and are told apart when they are read.
            if ends is not None and not (ends.role == "tool" and message.role in ("tool", "user")):
                notes.add(index, f"it is joined with the {message.role} message before it")
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
        ends = message
    made: dict[str, Any] = {"system": system} if system else {}
    made["messages"] = turns
    return made


def _turn(message: Message, index: int, notes: Notes) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [_result(message, index, notes)]
    blocks = _blocks(message.parts, index, notes)
    if blocks or not message.tool_calls:
        _check_form(message, index, notes)
    for call in message.tool_calls:
        value = strict_json(call.arguments)
        if not isinstance(value, dict):
            value = {"arguments": call.arguments}
            notes.add(index, f"the arguments of the call {call.id!r:.60} are no JSON object, and are wrapped in one")
        elif json.dumps(value, ensure_ascii=False) != call.arguments:
            notes.add(index, f"the arguments of the call {call.id!r:.60} are written in another way")
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": value})
    return blocks


def _check_form(message: Message, index: int, notes: Notes) -> None:
    """Texts are read back as parts: what was one plain text is told apart only where a lone text is one."""
    content = message.content
    if not isinstance(content, str) and (not content or (len(content) == 1 and _is_plain(content[0]))):
        notes.add(index, "a content of one plain text, or none, is read back as a text")


def _is_plain(part: Part) -> bool:
    return part.kind == "text" and not part.data


def _result(message: Message, index: int, notes: Notes) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": message.tool_call_id}
    parts = message.parts
    if any(part.data.get("is_error") is True for part in parts):
        block["is_error"] = True
        marked = [dict(part.data).pop("is_error", None) is True for part in parts]
        if marked != [True] + [False] * (len(parts) - 1):
            notes.add(index, "the mark of an error stands at the result as a whole")
        parts = tuple(
            Part(part.kind, part.text, {key: value for key, value in part.data.items() if key != "is_error"})
            for part in parts
        )
    if isinstance(message.content, str):
        block["content"] = message.content
    elif "is_error" in block and len(parts) == 1 and _is_plain(parts[0]):
        block["content"] = parts[0].text
    else:
        block["content"] = _blocks(parts, index, notes)
        _check_form(message, index, notes)
    return block


def _blocks(parts: Sequence[Part], index: int, notes: Notes) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for part in parts:
        block = _block(part, index, notes)
        if block is not None:
            blocks.append(block)
    return blocks


def _block(part: Part, index: int, notes: Notes) -> dict[str, Any] | None:
    data = dict(part.data)
    if part.kind == "text":
        if not part.text.strip():
            notes.add(index, "a blank text is left out")
            return None
        if data.keys() & {"type", "text"}:
            notes.add(index, "what a text has attached is left out")
            data = {}
        if data.pop("refusal", None) is not None:
            notes.add(index, "a refusal becomes a text")
        return {"type": "text", "text": part.text, **data}
    if part.kind == "reasoning":
        if data.keys() - {"signature"} or not isinstance(data.get("signature"), str):
            notes.add(index, "reasoning that is not signed by this provider is left out")
            return None
        return {"type": "thinking", "thinking": part.text, **data}
    if part.text:
        notes.add(index, f"the text of a part {part.kind!r:.60} is left out")
    if part.kind == "image":
        return _image(part, index, notes)
    if part.kind in _FOREIGN or part.kind in ("tool_use", "tool_result", "thinking") or "type" in data:
        notes.add(index, f"a part of kind {part.kind!r:.60} is left out")
        return None
    return {"type": part.kind, **data}


def _image(part: Part, index: int, notes: Notes) -> dict[str, Any] | None:
    if extra := sorted(set(part.data) - {"url", "source"}):
        notes.add(index, f"of an image is left out: {', '.join(map(str, extra))}")
    if inside := image_data(part):
        return {"type": "image", "source": {"type": "base64", "media_type": inside[0], "data": inside[1]}}
    if isinstance(part.data.get("url"), str) and "source" not in part.data:
        return {"type": "image", "source": {"type": "url", "url": part.data["url"]}}
    if isinstance(part.data.get("source"), Mapping) and "url" not in part.data:
        return {"type": "image", "source": dict(part.data["source"])}
    notes.add(index, "an image without an address is left out")
    return None


def read(value: Any, notes: Notes) -> list[Message]:
    """The messages of an object with `messages` and perhaps `system`, or of a list of messages alone."""
    if isinstance(value, list):
        value = {"messages": value}
    if not isinstance(value, Mapping) or not isinstance(value.get("messages"), list):
        raise malformed(0, "there is no list of messages", 'Give {"system": …, "messages": […]}.')
    messages: list[Message] = []
    try:
        if value.get("system"):
            messages.append(Message("system", _content(value["system"], -1, notes)))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise malformed(-1, f"not a system prompt ({type(error).__name__}: {error})") from error
    for index, item in enumerate(value["messages"]):
        try:
            messages += _read(item, index, notes)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            problem = f"not a message ({type(error).__name__}: {error})"
            raise malformed(index, problem, 'Give objects such as {"role": "user", "content": "…"}.') from error
    return messages


def _read(item: Mapping[str, Any], index: int, notes: Notes) -> list[Message]:
    role = item["role"]
    if role not in ("user", "assistant"):
        raise malformed(index, f"unknown role {role!r:.60}", "Use user or assistant; the system prompt stands apart.")
    if extra := sorted(set(item) - {"role", "content"}):
        notes.add(index, f"left out: {', '.join(extra)}")
    content = item["content"]
    if isinstance(content, str):
        return [Message(role, content)]
    if role == "assistant":
        return [_assistant(content, index, notes)]
    results = [_tool(block, index, notes) for block in content if block["type"] == "tool_result"]
    said = [block for block in content if block["type"] != "tool_result"]
    if results and said and content[0]["type"] != "tool_result":
        notes.add(index, "what the user says moves behind the results")
    return [*results, *([Message("user", _content(said, index, notes))] if said or not results else [])]


def _assistant(content: Sequence[Mapping[str, Any]], index: int, notes: Notes) -> Message:
    calls: list[ToolCall] = []
    said: list[Mapping[str, Any]] = []
    for block in content:
        if block["type"] == "tool_use":
            if extra := sorted(set(block) - {"type", "id", "name", "input"}):
                notes.add(index, f"of a call is left out: {', '.join(extra)}")
            arguments = json.dumps(block["input"], ensure_ascii=False)
            calls.append(ToolCall(_str(block["id"]), _str(block["name"]), arguments))
        else:
            if calls:
                notes.add(index, f"a block {block['type']!r:.60} moves in front of the calls")
            said.append(block)
    return Message("assistant", _content(said, index, notes), tuple(calls))


def _tool(block: Mapping[str, Any], index: int, notes: Notes) -> Message:
    if extra := sorted(set(block) - {"type", "tool_use_id", "content", "is_error"}):
        notes.add(index, f"of a result is left out: {', '.join(extra)}")
    content = _content(block.get("content") or "", index, notes)
    if block.get("is_error"):
        parts = (Part(text=content),) if isinstance(content, str) else content or (Part(),)
        first = Part(parts[0].kind, parts[0].text, {**parts[0].data, "is_error": True})
        content = (first, *parts[1:])
    return Message("tool", content, tool_call_id=_str(block["tool_use_id"]))


def _content(content: Any, index: int, notes: Notes) -> str | tuple[Part, ...]:
    """A lone plain text as a text, all else as parts."""
    if isinstance(content, str):
        return content
    parts = tuple(_part(block, index, notes) for block in content)
    if not parts:
        return ""
    return parts[0].text if len(parts) == 1 and _is_plain(parts[0]) else parts


def _part(block: Mapping[str, Any], index: int, notes: Notes) -> Part:
    kind = _str(block["type"])
    rest = {key: value for key, value in block.items() if key != "type"}
    if kind == "text":
        return Part(text=_str(rest.pop("text")), data={key: value for key, value in rest.items() if value is not None})
    if kind == "thinking":
        return Part("reasoning", _str(rest.pop("thinking")), rest)
    if kind == "image":
        source = rest.pop("source")
        if rest:
            notes.add(index, f"of an image is left out: {', '.join(sorted(rest))}")
        if source["type"] == "base64":
            return Part("image", data={"url": image_url(_str(source["media_type"]), _str(source["data"]))})
        return Part("image", data={"url": _str(source["url"])} if source["type"] == "url" else {"source": dict(source)})
    if kind in ("tool_use", "tool_result"):
        raise ValueError(f"a block {kind!r} stands in the wrong place")
    return Part(kind, data=rest)


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a text, got {value!r:.40}")
    return value
