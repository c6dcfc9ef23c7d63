"""OpenAI's chat models, and any server that speaks the same protocol, through the official SDK."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ctxkit.models.chat_shapes import as_function
from ctxkit.models.openai_counting import OpenAIChatCounter
from ctxkit.models.remote import RemoteModel
from ctxkit.models.remote_errors import unsupported_parameter
from ctxkit.models.remote_reading import Answer
from ctxkit.models.windows import openai_window
from ctxkit.prompts import CompletionOptions, Prompt, Usage
from ctxkit.protocols import ChatCounter
from ctxkit.tools import checked_tools

__all__ = ["OpenAIModel"]

_FINISH = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}


class OpenAIModel(RemoteModel):
    """A model behind OpenAI's chat completions API. Takes every argument of `RemoteModel`.

    Parameters that a model refuses as unsupported (`temperature` on reasoning models, `max_tokens` or
    `max_completion_tokens` by server) are learnt from its answer, once.

    Errors: `AuthenticationError`, `RateLimitError` (with `retry_after`), `ProviderError`, `ModelTimeoutError`,
    `ModelNotFoundError`, `ContextOverflowError`; `MissingExtraError` without the SDK.

    Example:
        OpenAIModel("gpt-4o").complete(prompt)
        OpenAIModel("my-model", base_url="http://127.0.0.1:8000/v1", counter=OpenAIChatCounter("o200k_base"))
    """

    extra = "openai"
    key = "OPENAI_API_KEY"
    clients = ("OpenAI", "AsyncOpenAI")
    optional = ("temperature", "top_p", "seed", "stop", "stream_options")

    @cached_property
    def counter(self) -> ChatCounter:
        return self._counter or OpenAIChatCounter(self.model)

    @cached_property
    def window(self) -> int:
        return self._window or openai_window(self.model)

    def request(self, prompt: Prompt, options: CompletionOptions) -> dict[str, Any]:
        request: dict[str, Any] = {
            "model": self.model,
            "messages": [_message(message) for message in prompt.messages],
            "max_completion_tokens": options.max_tokens,
            "temperature": options.temperature,
        }
        if options.top_p < 1:
            request["top_p"] = options.top_p
        if options.seed is not None:
            request["seed"] = options.seed
        if options.stop:
            request["stop"] = list(options.stop[:4])  # the API takes four; all are cut here
        if prompt.tools:
            request["tools"] = [as_function(tool) for tool in checked_tools(prompt.tools)]
        return request

    def _create(self, client: Any) -> Any:
        return client.chat.completions.create

    def _adapted(self, request: dict[str, Any], *, stream: bool) -> dict[str, Any]:
        if stream:
            request = {**request, "stream": True, "stream_options": {"include_usage": True}}
        sent = super()._adapted(request, stream=stream)
        if self._old_limit:
            sent["max_tokens"] = sent.pop("max_completion_tokens")
        return sent

    @cached_property
    def _limit_names(self) -> list[str]:
        """The name of the answer's limit, the one in use last; other servers often know only the older one."""
        names = ["max_tokens", "max_completion_tokens"]
        return names if self._base_url is None else names[::-1]

    @property
    def _old_limit(self) -> bool:
        return self._limit_names[-1] == "max_tokens"

    def _adapt(self, error: BaseException, request: dict[str, Any]) -> bool:
        current = self._limit_names[-1]
        if len(self._limit_names) > 1 and unsupported_parameter(error, (current,)):
            self._limit_names.pop()
            return True
        return super()._adapt(error, request)

    def _read(self, response: Any, answer: Answer) -> None:
        choice = response.choices[0]
        answer.model = response.model or ""
        answer.seen = True
        answer.text.append(choice.message.content or "")
        for index, call in enumerate(choice.message.tool_calls or ()):
            answer.call(index, id=call.id, name=call.function.name, arguments=call.function.arguments)
        answer.finish_reason = _FINISH.get(choice.finish_reason or "stop", "stop")
        _read_usage(response.usage, answer)

    def _read_event(self, event: Any, answer: Answer) -> str:
        answer.model = answer.model or event.model or ""
        _read_usage(event.usage, answer)
        if not event.choices:  # the last event carries the usage alone
            return ""
        answer.seen = True
        choice = event.choices[0]
        for call in choice.delta.tool_calls or ():
            function = call.function
            answer.call(
                call.index,
                id=call.id,
                name=function.name if function else None,
                arguments=function.arguments if function else None,
            )
        if choice.finish_reason:
            answer.finish_reason = _FINISH.get(choice.finish_reason, "stop")
        return choice.delta.content or ""


def _read_usage(usage: Any, answer: Answer) -> None:
    if usage is None:
        return
    details = getattr(usage, "prompt_tokens_details", None)
    cached = getattr(details, "cached_tokens", None) or 0
    answer.usage = Usage(usage.prompt_tokens or 0, usage.completion_tokens or 0, cached)


def _message(message: dict[str, Any]) -> dict[str, Any]:
    """A message with images as the API takes them: the sizes that ctxkit counts with are not the API's."""
    if not isinstance(message.get("content"), list):
        return message
    parts = [
        {**part, "image_url": {key: part["image_url"][key] for key in ("url", "detail") if key in part["image_url"]}}
        if part.get("type") == "image_url"
        else part
        for part in message["content"]
    ]
    return {**message, "content": parts}
