"""Counts chat prompts as OpenAI's API counts them, offline.

Text is exact: the provider joins the text parts of a message, so does this counter, and every message costs what
OpenAI documents: 3 tokens, the role, the content, 1 for a name and the name itself; 3 more open the answer.

Sources: OpenAI Cookbook, "How to count tokens with tiktoken" (messages, tool schemas of the gpt-4o and gpt-4
families); OpenAI's guide "Images and vision" (image tiles). What is not documented (calls of tools in the history,
whatever a schema says beyond the Cookbook's shape, parts of other kinds) is counted so that it is not too little, and
`is_exact` says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ctxkit.messages import Message, Part
from ctxkit.models.chat_shapes import as_function
from ctxkit.models.joining import JoinedCounter
from ctxkit.models.json_text import json_text
from ctxkit.tokens import ENCODINGS, encoding_for_model, get_counter
from ctxkit.tools import checked_tools

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
_MAX_SIDE = 1_000_000
"""Pixels of an image's side, more than any provider takes."""

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

    Attributes:
        exact: True; of one prompt `is_exact` says more.
        additive: True: a prompt costs its messages, its tools and a constant.

    Errors: `ConfigError` for a model whose encoding is not known, and for tools and parts that are not JSON.

    Example:
        >>> counter = OpenAIChatCounter("gpt-4o")
        >>> counter.count_prompt([Message("user", "Hello, world!")])
        11
    """

    exact = True
    additive = True

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
                total += self._json(part.data, message.id)
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
        """Tokens of tools in any form that `checked_tools` takes, as they are sent.

        The Cookbook's formula for what it covers: name and description of a function; name, type, description and enum
        of each property. Whatever else a tool says costs its JSON text, which is longer than what a model is shown.
        """
        return self._tools(tools)[0]

    def is_exact(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> bool:
        """Whether `count_prompt` of these is exact: texts alone, and tools of the documented shape alone."""
        return self._tools(tools)[1] and not any(
            message.role == "tool"
            or message.tool_calls
            or any(part.kind not in ("text", "reasoning") for part in message.parts)
            for message in messages
        )

    def _tools(self, tools: Sequence[Mapping[str, Any]]) -> tuple[int, bool]:
        """The tokens, and whether the formula alone gave them."""
        total, exact = _END if tools else 0, True
        for tool in map(as_function, checked_tools(tools)):
            opening = _FUNCTION[self.encoding]
            if "function" not in tool:
                total, exact = total + opening + self._json(tool), False
                continue
            function = tool["function"]
            description = function.get("description") or ""
            heading = self.count(f"{function['name']}:{description.removesuffix('.')}")
            schema, covered = self._schema(function.get("parameters", {}))
            beyond = self._beyond(tool, {"type": "function"}, "function")
            beyond += self._beyond(function, {}, "name", "description", "parameters")
            total += opening + heading + schema + beyond
            exact = exact and covered and not beyond and "description" in function and "parameters" in function
        return total, exact

    def _schema(self, schema: Any) -> tuple[int, bool]:
        """The parameters of a function."""
        if not isinstance(schema, dict):
            return self._json(schema), False
        properties = schema.get("properties", {})
        total = _PROPERTIES if properties else 0
        beyond = self._beyond(schema, {"type": "object"}, "properties", "required")
        exact = not beyond and "type" in schema
        for name, value in properties.items():
            tokens, covered = self._property(name, value)
            total, exact = total + tokens, exact and covered
        return total + beyond, exact

    def _property(self, name: str, value: Any) -> tuple[int, bool]:
        if not isinstance(value, dict):
            return _PROPERTY + self.count(f"{name}:") + self._json(value), False
        kind, description, choices = value.get("type"), value.get("description", ""), value.get("enum")
        covered = ["description"]
        total = _PROPERTY
        if isinstance(kind, str):
            covered.append("type")
        if choices and all(isinstance(choice, str) for choice in choices):
            covered.append("enum")
            total += _ENUM + sum(_ENUM_ITEM + self.count(choice) for choice in choices)
        shown = kind if isinstance(kind, str) else ""
        total += self.count(f"{name}:{shown}:{description.removesuffix('.')}")
        beyond = self._beyond(value, {}, *covered)
        return total + beyond, not beyond and "type" in value and "description" in value

    def _beyond(self, value: Mapping[str, Any], usual: Mapping[str, str], *covered: str) -> int:
        """The JSON text of what the formula does not cover: other keys, and keys with another than the usual value."""
        rest = {key: item for key, item in value.items() if key not in covered and usual.get(key) != item}
        return self._json(rest) if rest else 0

    def _json(self, value: Any, subject: str = "") -> int:
        return self.count(json_text(value, subject=subject))

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
    """Width and height in pixels that an image part states; (0, 0) where it states none that an image can have."""
    width, height = part.data.get("width"), part.data.get("height")
    if all(type(side) is int and 0 < side <= _MAX_SIDE for side in (width, height)):
        return int(width), int(height)  # type: ignore[arg-type]
    return 0, 0


def _longest(table: Mapping[str, Any], model: str) -> Any:
    """The entry whose key is the longest that the model's name starts with, or None."""
    keys = [key for key in table if model.startswith(key)]
    return table[max(keys, key=len)] if keys else None
