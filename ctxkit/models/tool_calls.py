"""Calls of tools in the text of a local model."""

from __future__ import annotations

import json
import re

from ctxkit.messages import ToolCall

__all__ = ["CALL_MARKER", "parse_tool_calls"]

CALL_MARKER = "<tool_call>"
"""Where a call begins, in the form of Hermes, Qwen and SmolLM."""

_CALL = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)


def parse_tool_calls(text: str) -> tuple[ToolCall, ...]:
    """The calls in a text that begins with the marker; empty when any of it is not a call.

    Example:
        >>> [call] = parse_tool_calls('<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>')
        >>> call.name, call.arguments
        ('f', '{"x": 1}')
    """
    calls: list[ToolCall] = []
    for match in _CALL.finditer(text):
        try:
            value = json.loads(match[1])
        except ValueError:
            return ()
        for item in value if isinstance(value, list) else [value]:
            if not isinstance(item, dict) or not isinstance(item.get("name"), str):
                return ()
            arguments = item.get("arguments", item.get("parameters", {}))
            if not isinstance(arguments, str):
                arguments = json.dumps(arguments, ensure_ascii=False)
            calls.append(ToolCall(f"call_{len(calls) + 1}", item["name"], arguments))
    rest = _CALL.sub("", text).strip()
    return tuple(calls) if not rest else ()
