"""Both remote models against the server of `provider_server`, asked in four ways."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ctxkit.messages import Message
from ctxkit.models import AnthropicModel, OpenAIModel
from ctxkit.models.remote import RemoteModel
from ctxkit.prompts import Completion, CompletionOptions, Prompt
from ctxkit.testing.models import prompt_of
from tests.models.provider_server import Server

PROMPT = prompt_of(Message("system", "Be brief."), Message("user", "Say hello."))
OPTIONS = CompletionOptions(max_tokens=64, timeout=20)


def make(kind: str, server: Server, **parameters: Any) -> RemoteModel:
    parameters = {"api_key": "test-key", "attempts": 1, **parameters}
    if kind == "openai":
        return OpenAIModel("gpt-4o", base_url=f"{server.url}/v1", **parameters)
    return AnthropicModel("claude-sonnet-4-6", base_url=server.url, **parameters)


Ask = Callable[[RemoteModel, Prompt, CompletionOptions], Completion]


def whole(model: RemoteModel, prompt: Prompt, options: CompletionOptions) -> Completion:
    return model.complete(prompt, options)


def streamed(model: RemoteModel, prompt: Prompt, options: CompletionOptions) -> Completion:
    *steps, last = model.stream(prompt, options)
    assert last.completion is not None
    assert "".join(step.text for step in steps) == last.completion.text
    return last.completion


def whole_async(model: RemoteModel, prompt: Prompt, options: CompletionOptions) -> Completion:
    return asyncio.run(model.acomplete(prompt, options))


def streamed_async(model: RemoteModel, prompt: Prompt, options: CompletionOptions) -> Completion:
    async def gather() -> Completion:
        steps = [delta async for delta in model.astream(prompt, options)]
        assert steps[-1].completion is not None
        assert "".join(step.text for step in steps) == steps[-1].completion.text
        return steps[-1].completion

    return asyncio.run(gather())
