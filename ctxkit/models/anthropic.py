"""Anthropic's models, through the official SDK."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from ctxkit.errors import ConfigError, HistoryError
from ctxkit.messages import Message, Part
from ctxkit.models.anthropic_counting import AnthropicChatCounter, newer_tokenizer
from ctxkit.models.remote import RemoteModel
from ctxkit.models.remote_reading import Answer
from ctxkit.models.windows import anthropic_window
from ctxkit.prompts import CompletionOptions, Prompt, Usage
from ctxkit.protocols import ChatCounter
from ctxkit.tools import checked_tools

__all__ = ["AnthropicModel"]

_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
_DATA_URL = re.compile(r"data:([\w/+.-]+);base64,(.*)", re.DOTALL)


class AnthropicModel(RemoteModel):
    """A model behind Anthropic's Messages API. Takes every argument of `RemoteModel`.

    The API's rules are kept: system texts stand apart, roles alternate and begin with the user, calls and results are
    blocks. Sampling parameters that newer models refuse are learnt from the answer, once.

    Errors: as for `OpenAIModel`; `HistoryError` when the first message after the system's is not the user's.

    Example:
        AnthropicModel("claude-sonnet-4-6").complete(prompt)
    """

    extra = "anthropic"
    key = "ANTHROPIC_API_KEY"
    clients = ("Anthropic", "AsyncAnthropic")
    optional = ("temperature", "top_p", "stop_sequences")

    @cached_property
    def counter(self) -> ChatCounter:
        return self._counter or AnthropicChatCounter(self.model)

    @cached_property
    def window(self) -> int:
        return self._window or anthropic_window(self.model)

    def request(self, prompt: Prompt, options: CompletionOptions) -> dict[str, Any]:
        system, messages = to_anthropic(prompt.turns)
        request: dict[str, Any] = {"model": self.model, "messages": messages, "max_tokens": options.max_tokens}
        # Models from Opus 4.7 on take neither; the others not both, and the nucleus says more when it is given.
        if options.top_p < 1 and not newer_tokenizer(self.model):
            request["top_p"] = options.top_p
        elif not newer_tokenizer(self.model):
            request["temperature"] = min(options.temperature, 1.0)
        if system:
            request["system"] = system
        stops = [stop for stop in options.stop if stop.strip()]  # the API refuses blank ones; all are cut here
        if stops:
            request["stop_sequences"] = stops
        if prompt.tools:
            request["tools"] = [_tool(tool) for tool in checked_tools(prompt.tools)]
        return request

    def _create(self, client: Any) -> Any:
        return client.messages.create

    def _adapted(self, request: dict[str, Any], *, stream: bool) -> dict[str, Any]:
        sent = super()._adapted(request, stream=stream)
        # Said both ways: without it the SDK refuses by itself what may take long.
        sent["stream"] = stream
        # Newer SDKs have no argument for these; the body takes them from any.
        sent["extra_body"] = {name: sent.pop(name) for name in ("temperature", "top_p") if name in sent}
        return sent

    def _read(self, response: Any, answer: Answer) -> None:
        answer.model = response.model or ""
        answer.seen = response.type == "message"
        for index, block in enumerate(response.content):
            if block.type == "text":
                answer.text.append(block.text)
            elif block.type == "tool_use":
                answer.call(index, id=block.id, name=block.name, arguments=json.dumps(block.input, ensure_ascii=False))
        answer.finish_reason = _FINISH.get(response.stop_reason or "end_turn", "stop")
        answer.usage = _usage(response.usage, response.usage.output_tokens)

    def _read_event(self, event: Any, answer: Answer) -> str:
        kind = event.type
        if kind == "message_start":
            answer.seen = True
            answer.model = event.message.model or ""
            answer.usage = _usage(event.message.usage, event.message.usage.output_tokens)
        elif kind == "content_block_start" and event.content_block.type == "tool_use":
            answer.call(event.index, id=event.content_block.id, name=event.content_block.name)
        elif kind == "content_block_delta":
            if event.delta.type == "text_delta":
                return str(event.delta.text)
            if event.delta.type == "input_json_delta":
                answer.call(event.index, arguments=event.delta.partial_json)
        elif kind == "message_delta":
            if event.delta.stop_reason:
                answer.finish_reason = _FINISH.get(event.delta.stop_reason, "stop")
            answer.usage = Usage(answer.usage.prompt_tokens, event.usage.output_tokens or 0, answer.usage.cached_tokens)
        return ""


def _usage(usage: Any, output: int | None) -> Usage:
    """Anthropic counts the prompt in three parts: fresh, written to the cache, read from it."""
    read = getattr(usage, "cache_read_input_tokens", None) or 0
    written = getattr(usage, "cache_creation_input_tokens", None) or 0
    return Usage((usage.input_tokens or 0) + read + written, output or 0, read)


def to_anthropic(turns: Sequence[Message]) -> tuple[str, list[dict[str, Any]]]:
    """The system text and the messages by the rules of the Messages API.

    Errors: `HistoryError` when the dialogue does not begin with the user, `ConfigError` for a part it cannot carry.
    """
    system = [turn.visible for turn in turns if turn.role == "system" and turn.visible.strip()]
    messages: list[dict[str, Any]] = []
    for turn in turns:
        if turn.role == "system":
            continue
        blocks = _blocks(turn)
        role = "assistant" if turn.role == "assistant" else "user"
        if not blocks:  # the API refuses a blank message, and it says nothing
            continue
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": blocks})
    if not messages or messages[0]["role"] != "user":
        raise HistoryError(
            "the dialogue does not begin with a user message",
            subject=" ".join(turn.role for turn in turns)[:80],
            remedy="Put a user message with some text first.",
        )
    return "\n\n".join(system), messages


def _blocks(turn: Message) -> list[dict[str, Any]]:
    if turn.role == "tool":
        return [{"type": "tool_result", "tool_use_id": turn.tool_call_id, "content": _content(turn.parts)}]
    blocks = _content(turn.parts)
    for call in turn.tool_calls:
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call.arguments)})
    return blocks


def _content(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Blocks; neighbouring texts are one, as the reader of the segments sees them."""
    blocks: list[dict[str, Any]] = []
    for part in parts:
        if part.kind == "text":
            if blocks and blocks[-1]["type"] == "text":
                blocks[-1]["text"] += part.text
            elif part.text:
                blocks.append({"type": "text", "text": part.text})
        elif part.kind == "image":
            blocks.append({"type": "image", "source": _image_source(part)})
        elif part.kind == "reasoning":
            if "signature" in part.data:  # only what the API signed may be sent back
                signed = {"type": "thinking", "thinking": part.text, "signature": part.data["signature"]}
                blocks.append(signed)
        else:
            blocks.append({"type": part.kind, **part.data})
    return [block for block in blocks if block["type"] != "text" or block["text"].strip()]


def _image_source(part: Part) -> dict[str, Any]:
    url = str(part.data.get("url", ""))
    if not url:
        raise ConfigError("an image has no url", remedy="Give its address, or a data: URL with its bytes in base64.")
    match = _DATA_URL.fullmatch(url)
    return {"type": "base64", "media_type": match[1], "data": match[2]} if match else {"type": "url", "url": url}


def _input(arguments: str) -> dict[str, Any]:
    """The call's arguments as an object; what a model once wrote wrongly is kept as text."""
    try:
        value = json.loads(arguments or "{}")
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"arguments": arguments}


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    if "input_schema" in tool or ("type" in tool and "function" not in tool and tool["type"] != "function"):
        return dict(tool)  # Anthropic's own form, or one of its server's tools
    function = tool.get("function", tool)
    made = {"name": function["name"], "input_schema": function.get("parameters") or {"type": "object"}}
    if function.get("description"):
        made["description"] = function["description"]
    return made
