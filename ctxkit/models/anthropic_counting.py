"""Estimates chat prompts for Anthropic's models, never too low by the rules that Anthropic documents.

Claude's tokenizer is not published and the exact count is a request to a server, which law 9 forbids here. So every
documented rule is taken at its upper end:

* text: about 3.5 characters of English a token (glossary); the two published byte-pair encodings bound other scripts;
  the larger of all with a margin of 20 %; a digit may be a token of its own;
* models from Opus 4.7 on: "up to 35 %" more tokens for the same text (migration guide);
* an image: `width * height / 750`, or one token for each 28-pixel patch (vision guide), after the documented resizing;
* tools: the system prompt that enables them, by model (tool use guide), and their schemas.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ctxkit.errors import ConfigError
from ctxkit.messages import Message, Part
from ctxkit.models.json_text import json_text
from ctxkit.models.memo import Memo
from ctxkit.models.openai_counting import image_size
from ctxkit.tokens import get_counter
from ctxkit.tools import checked_tools

__all__ = ["AnthropicChatCounter"]

_CHARACTERS_PER_TOKEN = 3.5
_MARGIN = 1.2
_NEWER_TOKENIZER = 1.35
_PER_MESSAGE = 8
"""The turn's opening and end and its role; Anthropic does not document the number, a one-word request reports 8."""
_PER_BLOCK = 16
"""The frame of a tool_use or tool_result block."""

# The larger of the counts for "auto" and for "any"/"tool".
_TOOLS_PROMPT = {
    "claude-3-opus": 530,
    "claude-3-sonnet": 235,
    "claude-3-haiku": 340,
    "claude-3-5-haiku": 340,
    "claude-3": 346,
    "claude-opus-4": 346,
    "claude-sonnet-4": 346,
    "claude-haiku-4": 346,
}
_TOOLS_PROMPT_UNKNOWN = 820
_DIGIT = re.compile(r"\d")
_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d+)(?:[-.](\d{1,2})(?!\d))?")


def newer_tokenizer(model: str) -> bool:
    """Whether the model has the tokenizer of Opus 4.7; a name that is not understood counts as newer."""
    match = _VERSION.match(model)
    if match is None:
        return True
    return (int(match[1]), int(match[2] or 0)) >= (4, 7)


class AnthropicChatCounter:
    """A `ChatCounter` that estimates for Claude and does not undercount by the documented rules (`exact` is False).

    Args:
        model: its name decides tokenizer, image limits and the tools' system prompt.
        margin: by what the text estimate is multiplied, at least 1.

    Example:
        >>> counter = AnthropicChatCounter("claude-sonnet-4-6")
        >>> counter.exact, counter.count("Hello, world!") >= 4
        (False, True)
    """

    exact = False

    def __init__(self, model: str = "claude-sonnet-4-6", *, margin: float = _MARGIN) -> None:
        if margin < 1:
            raise ConfigError(f"margin is {margin}", subject=model, remedy="An estimate needs a margin of at least 1.")
        self.model = model
        self.newer = newer_tokenizer(model)
        self.factor = margin * (_NEWER_TOKENIZER if self.newer else 1.0)
        self.name = f"anthropic-estimate-{self.factor:.3f}"
        self._encodings = (get_counter("o200k_base"), get_counter("cl100k_base"))
        self.memo: Memo[int] = Memo(self._estimate)

    def _estimate(self, text: str) -> int:
        if not text:
            return 0
        digits = len(_DIGIT.findall(text))
        by_length = digits + math.ceil((len(text) - digits) / _CHARACTERS_PER_TOKEN)
        return math.ceil(self.factor * max(by_length, *(encoding.count(text) for encoding in self._encodings)))

    def count(self, text: str) -> int:
        """The most tokens that a text should have. Linear in what was not counted before."""
        return self.memo(text)

    def count_message(self, message: Message) -> int:
        """The most that a message should add to a prompt; its parts are counted one by one."""
        total = _PER_MESSAGE
        for part in message.parts:
            if part.kind in ("text", "reasoning"):
                total += self.count(part.text)
            elif part.kind == "image":
                total += self._image(part)
            else:
                total += _PER_BLOCK + self._json(part.data, message.id)
        for call in message.tool_calls:
            total += _PER_BLOCK + self.count(call.id) + self.count(call.name) + self.count(call.arguments)
        if message.tool_call_id:
            total += _PER_BLOCK + self.count(message.tool_call_id)
        return total

    def count_prompt(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> int:
        """The most that the whole prompt should have."""
        return sum(map(self.count_message, messages)) + self.count_tools(tools) + _PER_MESSAGE

    def count_tools(self, tools: Sequence[Mapping[str, Any]]) -> int:
        """The schemas as JSON, and the system prompt that the provider adds when there are any."""
        if not tools:
            return 0
        return self._tools_prompt() + sum(_PER_BLOCK + self._json(tool) for tool in checked_tools(tools))

    def _tools_prompt(self) -> int:
        if self.newer:
            return _TOOLS_PROMPT_UNKNOWN
        keys = [key for key in _TOOLS_PROMPT if self.model.startswith(key)]
        return _TOOLS_PROMPT[max(keys, key=len)] if keys else _TOOLS_PROMPT_UNKNOWN

    def _json(self, value: Any, subject: str = "") -> int:
        return self.count(json_text(value, subject=subject))

    def _image(self, part: Part) -> int:
        """An image, resized to at most 1,568 pixels a side and about 1,600 tokens; newer models 2,576 and 4,784."""
        side, most = (2576, 5000) if self.newer else (1568, 1640)
        width, height = image_size(part)
        if not width:
            return most
        scale = min(1.0, side / max(width, height))
        width, height = math.ceil(width * scale), math.ceil(height * scale)
        by_area = math.ceil(width * height / 750)
        by_patch = math.ceil(width / 28) * math.ceil(height / 28)
        return min(most, max(by_area, by_patch))
