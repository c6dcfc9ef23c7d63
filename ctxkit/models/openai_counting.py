"""Counts chat prompts as OpenAI's API counts them, offline.

Text is exact: the provider joins the text parts of a message, so does this counter, and every message costs what
OpenAI documents: 3 tokens, the role, the content, 1 for a name and the name itself; 3 more open the answer.

Sources: OpenAI Cookbook, "How to count tokens with tiktoken" (messages, tool schemas of the gpt-4o and gpt-4
families); OpenAI's guide "Images and vision" (image tiles). What is not documented (calls of tools in the history,
nested schemas, parts of other kinds) is counted so that it is not too little.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ctxkit.messages import Message, Part
from ctxkit.models.joining import JoinedCounter
from ctxkit.tokens import ENCODINGS, encoding_for_model, get_counter

__all__ = ["OpenAIChatCounter"]

_PER_MESSAGE = 3
_PER_NAME = 1
_ANSWER = 3
_SHORT = 256
"""Characters up to which a text is cheaper to count whole."""
_PER_CALL = 8
"""Punctuation and channel of one tool call: not documented; measurements by users lie between 3 and 7."""

# The Cookbook's numbers: opening of a function, of its properties, of one property, of an enum, of an enum's item; end.
_FUNCTION = {"o200k_base": 7, "cl100k_base": 10}
_PROPERTIES, _PROPERTY, _ENUM, _ENUM_ITEM, _END = 3, 3, -3, 3, 12

# (base, per 512-pixel tile) by model family; families that count 32-pixel patches have a cap of 1536 times a factor.
_TILES = {"gpt-4o-mini": (2833, 5667), "gpt-5": (70, 140), "o1": (75, 150), "o3": (75, 150)}
_PATCHES = {
    "gpt-4.1-mini": 1.62,
    "gpt-4.1-nano": 2.46,
    "gpt-5-mini": 1.62,
    "gpt-5-nano": 2.46,
    "o4-mini": 1.72,
}


class OpenAIChatCounter:
    """A `ChatCounter` for OpenAI's chat models, and for servers that count like them.

    A part that was seen before is not encoded again: a prompt that grows by one segment costs the segment and the
    characters around its joints.

    Args:
        model: an OpenAI model, or an encoding (`o200k_base`, `cl100k_base`).

    Errors: `ConfigError` for a model whose encoding is not known.

    Example:
        >>> counter = OpenAIChatCounter("gpt-4o")
        >>> counter.count_prompt([Message("user", "Hello, world!")])
        11
    """

    exact = True

    def __init__(self, model: str = "gpt-4o") -> None:
        self.model = model
        self.encoding = model if model in ENCODINGS else encoding_for_model(model)
        self.name = self.encoding
        self._joined = JoinedCounter(get_counter(self.encoding).count)

    def count(self, text: str) -> int:
        """Tokens of a text by itself; `<|endoftext|>` counts as the plain text that it is."""
        # A long text is counted as a part of a prompt is, so that the prompt finds it counted.
        return self._joined((text,)) if len(text) > _SHORT else self._joined.memo(text)

    def count_message(self, message: Message) -> int:
        """What the message adds to a prompt, exactly."""
        total = _PER_MESSAGE + self.count(message.role)
        texts = []
        for part in message.parts:
            if part.kind == "text":
                texts.append(part.text)
            elif part.kind == "image":
                total += self._image(part)
            elif part.kind != "reasoning":  # the chat API does not take reasoning back
                total += self._json(part.data)
        total += self._joined(texts)
        if message.name:
            total += _PER_NAME + self.count(message.name)
        for call in message.tool_calls:
            total += _PER_CALL + self.count(call.id) + self.count(call.name) + self.count(call.arguments)
        if message.tool_call_id:
            total += _PER_CALL + self.count(message.tool_call_id)
        return total

    def count_prompt(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> int:
        """What the API counts for the whole prompt. Linear in what was not counted before."""
        return sum(map(self.count_message, messages)) + self.count_tools(tools) + _ANSWER

    def count_tools(self, tools: Sequence[Mapping[str, Any]]) -> int:
        """Tokens of tool schemas in the form of the OpenAI chat API (`{"type": "function", "function": {…}}`)."""
        if not tools:
            return 0
        total = _END
        for tool in tools:
            function = tool.get("function", tool)
            description = str(function.get("description", "")).rstrip(".")
            total += _FUNCTION[self.encoding] + self.count(f"{function.get('name', '')}:{description}")
            total += self._properties(function.get("parameters") or function.get("input_schema") or {})
        return total

    def _properties(self, schema: Mapping[str, Any]) -> int:
        """The properties of an object's schema and of the schemas inside them."""
        properties = schema.get("properties") or {}
        total = _PROPERTIES if properties else 0
        for name, value in properties.items():
            value = value if isinstance(value, Mapping) else {}
            total += _PROPERTY
            if "enum" in value:
                total += _ENUM + sum(_ENUM_ITEM + self.count(str(item)) for item in value["enum"])
            kind = value.get("type", "")
            kind = kind if isinstance(kind, str) else "|".join(map(str, kind))
            description = str(value.get("description", "")).rstrip(".")
            total += self.count(f"{name}:{kind}:{description}")
            total += self._nested(value)
        return total + self._combined(schema)

    def _nested(self, value: Mapping[str, Any]) -> int:
        total = self._properties(value)
        if isinstance(value.get("items"), Mapping):
            items = value["items"]
            total += _PROPERTY + self.count(str(items.get("type", ""))) + self._properties(items)
            total += sum(_ENUM_ITEM + self.count(str(item)) for item in items.get("enum", ()))
        return total

    def _combined(self, schema: Mapping[str, Any]) -> int:
        """Schemas the Cookbook's formula does not know are counted by their JSON."""
        keys = ("anyOf", "oneOf", "allOf", "$defs", "definitions")
        return sum(self._json(schema[key]) for key in keys if key in schema)

    def _json(self, value: Any) -> int:
        return self.count(json.dumps(value, ensure_ascii=False, default=str))

    def _image(self, part: Part) -> int:
        """An image by the documented tiles or patches; without a known size, the most that an image can cost."""
        factor = _longest(_PATCHES, self.model)
        width, height = image_size(part)
        sized = width > 0
        if factor is not None:
            patches = -(-width // 32) * -(-height // 32) if sized else 1536
            return int(min(patches, 1536) * factor) + 1
        base, per_tile = _longest(_TILES, self.model) or (85, 170)
        if part.data.get("detail") == "low":
            return base
        if not sized:
            return base + 8 * per_tile
        # Fit into 2048 x 2048, then shrink the shorter side to 768, then count tiles of 512.
        scale = min(1.0, 2048 / max(width, height))
        scale *= min(1.0, 768 / (min(width, height) * scale))
        tiles = -(-int(width * scale + 0.999) // 512) * -(-int(height * scale + 0.999) // 512)
        return base + tiles * per_tile


def image_size(part: Part) -> tuple[int, int]:
    """Width and height in pixels that an image part states; (0, 0) where it does not."""
    width, height = part.data.get("width"), part.data.get("height")
    if isinstance(width, int) and isinstance(height, int) and width > 0 and height > 0:
        return width, height
    return 0, 0


def _longest(table: Mapping[str, Any], model: str) -> Any:
    """The entry whose key is the longest that the model's name starts with, or None."""
    keys = [key for key in table if model.startswith(key)]
    return table[max(keys, key=len)] if keys else None
