"""Both remote models against a real server: everything that can go wrong."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from ctxkit.errors import (
    AuthenticationError,
    BudgetError,
    ContextOverflowError,
    CtxkitError,
    ModelNotFoundError,
    ModelTimeoutError,
    ProviderError,
    RateLimitError,
)
from ctxkit.models import OpenAIModel
from ctxkit.models.remote import RemoteModel
from ctxkit.prompts import CompletionOptions
from tests.models import provider_server as provider
from tests.models.provider_server import ANSWER, Held, Server, answer, error, events, raw
from tests.models.remote_asking import OPTIONS, PROMPT, Ask, make, streamed, streamed_async

pytest.importorskip("openai")
pytest.importorskip("anthropic")


@pytest.mark.parametrize(
    ("behaviour", "kind", "message"),
    [
        (
            error(401, "Incorrect API key provided: sk-1", code="invalid_api_key"),
            AuthenticationError,
            r"HTTP 401.*Set \w+_API_KEY",
        ),
        (error(403, "no access"), AuthenticationError, "HTTP 403"),
        (error(404, "model not found", code="model_not_found"), ModelNotFoundError, "model's name"),
        (error(429, "slow down", headers={"retry_after": "7"}), RateLimitError, "Ask again in 7 s"),
        (error(429, "You exceeded your current quota", code="insufficient_quota"), RateLimitError, "quota"),
        (error(500, "oops"), ProviderError, "HTTP 500: oops"),
        (error(529, "Overloaded", kind="overloaded_error"), ProviderError, "HTTP 529"),
        (error(400, "messages: something is wrong"), ProviderError, "something is wrong"),
        (
            error(400, "This model's maximum context length is 128000 tokens.", code="context_length_exceeded"),
            ContextOverflowError,
            "maximum context length",
        ),
        (error(400, "prompt is too long: 205000 tokens > 200000 maximum"), ContextOverflowError, "205000"),
        (
            error(400, "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000"),
            ContextOverflowError,
            "188240",
        ),
        (
            error(413, "Request exceeds the maximum size", kind="request_too_large"),
            ContextOverflowError,
            "maximum size",
        ),
        (raw(502, b"<html>Bad gateway</html>", "text/html"), ProviderError, "HTTP 502"),
        (raw(200, b"{not json"), ProviderError, "."),
        (raw(200, b"<html>hello</html>", "text/html"), ProviderError, "."),
        (raw(200, b""), ProviderError, "."),
        (raw(200, b"{}"), ProviderError, "."),
        (raw(200, b"[]"), ProviderError, "."),
        (raw(200, b"null"), ProviderError, "."),
        (raw(200, b'{"choices": [], "content": [], "type": "message"}'), ProviderError, "."),
        (answer(""), ProviderError, "answered nothing"),
    ],
)
def test_failures_have_their_types_and_remedies(
    model: RemoteModel, ask: Ask, server: Server, behaviour: provider.Behaviour, kind: type[CtxkitError], message: str
) -> None:
    server.script = [behaviour]
    with pytest.raises(kind, match=message) as raised:
        ask(model, PROMPT, OPTIONS)
    assert type(raised.value) is kind
    assert raised.value.subject == model.name
    assert raised.value.remedy
    assert "test-key" not in str(raised.value)
    assert len(server.requests) == 1
    if kind is ContextOverflowError:
        assert isinstance(raised.value, BudgetError)
        assert raised.value.parts == {"prompt": PROMPT.token_count}


def test_the_rate_is_refused_and_then_not(ask: Ask, server: Server) -> None:
    for kind in ("openai", "anthropic"):
        server.script = [error(429, "slow down", headers={"retry_after": "0.2"}), error(500, "oops"), answer()]
        server.requests.clear()
        started = time.perf_counter()
        assert ask(make(kind, server, attempts=4), PROMPT, OPTIONS).text == ANSWER
        assert len(server.requests) == 3
        assert time.perf_counter() - started >= 0.2


def test_tries_are_bounded(ask: Ask, server: Server) -> None:
    server.script = [error(503, "busy")]
    with pytest.raises(ProviderError, match="503"):
        ask(make("openai", server, attempts=3), PROMPT, OPTIONS)
    assert len(server.requests) == 3
    server.requests.clear()
    server.script = [error(429, "slow down", headers={"retry_after": "3600"})]
    with pytest.raises(RateLimitError) as raised:
        ask(make("anthropic", server, attempts=3), PROMPT, OPTIONS)
    assert raised.value.retry_after == 3600
    assert len(server.requests) == 1, "the wait is longer than the timeout"


def test_what_cannot_get_better_is_not_tried_again(ask: Ask, server: Server) -> None:
    for behaviour in (error(401, "no"), error(400, "bad"), error(429, "quota", code="insufficient_quota")):
        server.script = [behaviour]
        server.requests.clear()
        with pytest.raises(CtxkitError):
            ask(make("openai", server, attempts=4), PROMPT, OPTIONS)
        assert len(server.requests) == 1


def test_slow_answers_time_out(model: RemoteModel, ask: Ask, server: Server) -> None:
    held = Held(answer())
    server.script = [held]
    with pytest.raises(ModelTimeoutError, match="timeout"):
        ask(model, PROMPT, CompletionOptions(timeout=0.3))
    assert not held.over.is_set(), "it waited for the answer"
    held.let_go()


@pytest.mark.parametrize("ask", [streamed, streamed_async])
def test_a_stream_that_drips_times_out(model: RemoteModel, ask: Ask, server: Server) -> None:
    server.script = [answer(ANSWER * 10, delay=0.1)]
    with pytest.raises(ModelTimeoutError):
        ask(model, PROMPT, CompletionOptions(timeout=0.5))


@pytest.mark.parametrize("ask", [streamed, streamed_async])
@pytest.mark.parametrize("after", [0, 1, 4])
def test_a_stream_that_breaks_off(model: RemoteModel, ask: Ask, server: Server, after: int) -> None:
    server.script = [answer(break_after=after)]
    with pytest.raises(ProviderError):
        ask(model, PROMPT, OPTIONS)


@pytest.mark.parametrize("ask", [streamed, streamed_async])
@pytest.mark.parametrize(
    "behaviour",
    [
        events("not json"),
        events({"hello": 1}),
        events("[DONE]"),
        events({"error": {"message": "the engine is on fire", "type": "server_error"}}),
        events(),
    ],
)
def test_streams_of_nonsense(model: RemoteModel, ask: Ask, server: Server, behaviour: provider.Behaviour) -> None:
    server.script = [behaviour]
    with pytest.raises(ProviderError):
        ask(model, PROMPT, OPTIONS)


def test_a_stream_that_was_begun_is_not_begun_again(server: Server) -> None:
    server.script = [answer(break_after=5), answer()]
    with pytest.raises(ProviderError, match=r"broke off|failed"):
        streamed(make("openai", server, attempts=4), PROMPT, OPTIONS)
    assert len(server.requests) == 1


def test_a_reader_may_leave_a_stream(model: RemoteModel, server: Server) -> None:
    server.script = [answer(ANSWER * 50, delay=0.01)]
    stream = model.stream(PROMPT, OPTIONS)
    assert next(stream).text
    stream.close()  # type: ignore[attr-defined]
    server.script = [answer()]
    assert model.complete(PROMPT, OPTIONS).text == ANSWER


def test_cancelling_an_async_answer(model: RemoteModel, server: Server) -> None:
    held = Held(answer())
    server.script = [held]

    async def cancel() -> None:
        task = asyncio.create_task(model.acomplete(PROMPT, OPTIONS))
        assert await asyncio.to_thread(held.asked.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert not held.over.is_set(), "it waited for the answer"
    held.let_go()


def test_nobody_listens(ask: Ask) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    model = OpenAIModel("gpt-4o", base_url=f"http://127.0.0.1:{port}/v1", api_key="x", attempts=2)
    with pytest.raises(ProviderError, match="cannot be reached"):
        ask(model, PROMPT, OPTIONS)
