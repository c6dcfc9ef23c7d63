"""Both remote models against a real server: what works, and everything that can go wrong."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ctxkit.errors import (
    AuthenticationError,
    BudgetError,
    ConfigError,
    ContextOverflowError,
    CtxkitError,
    HistoryError,
    ModelNotFoundError,
    ModelTimeoutError,
    ProviderError,
    RateLimitError,
)
from ctxkit.messages import Message, Part, ToolCall
from ctxkit.models import AnthropicModel, OpenAIModel, get_model
from ctxkit.models.remote import Price, RemoteModel
from ctxkit.prompts import Completion, CompletionOptions, Prompt
from ctxkit.testing import ModelConformance
from ctxkit.testing.models import prompt_of
from ctxkit.tokens import get_counter
from tests.models import provider_server as provider
from tests.models.provider_server import ANSWER, Held, Server, answer, error, events, raw
from tests.models.test_openai_counting import WEATHER

pytest.importorskip("openai")
pytest.importorskip("anthropic")
PROMPT = prompt_of(Message("system", "Be brief."), Message("user", "Say hello."))
OPTIONS = CompletionOptions(max_tokens=64, timeout=20)


@pytest.fixture
def server() -> Iterator[Server]:
    with provider.running() as server:
        server.script = [answer()]
        yield server


@pytest.fixture(params=["openai", "anthropic"])
def model(request: pytest.FixtureRequest, server: Server) -> RemoteModel:
    return make(request.param, server)


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


@pytest.fixture(params=[whole, streamed, whole_async, streamed_async], ids=lambda ask: ask.__name__)
def ask(request: pytest.FixtureRequest) -> Ask:
    return request.param  # type: ignore[no-any-return]


class Conformance(ModelConformance):
    kind = ""

    @pytest.fixture(autouse=True)
    def _server(self, server: Server) -> None:
        def behave(handler: provider.Handler, body: dict[str, Any]) -> None:
            if len(str(body)) > 100_000:
                error(400, "prompt is too long: 900000 tokens > 200000 maximum")(handler, body)
            else:
                answer()(handler, body)

        server.script = [behave]
        self.server = server

    def make_model(self) -> RemoteModel:
        return make(self.kind, self.server)

    def test_it_answers_with_usage_timings_and_a_reason(self) -> None:
        model = self.make_model()
        completion = model.complete(self.prompt(model), self.options())
        assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == provider.USAGE
        assert 0 < completion.timings.first_token <= completion.timings.total

    def test_max_tokens_holds(self) -> None:
        model = self.make_model()
        assert model.complete(self.prompt(model), self.options(max_tokens=1)).finish_reason == "length"
        sent = self.server.bodies[-1]
        assert sent.get("max_tokens", sent.get("max_completion_tokens")) == 1


class TestOpenAIConformance(Conformance):
    kind = "openai"


class TestAnthropicConformance(Conformance):
    kind = "anthropic"


del Conformance


def test_an_answer(model: RemoteModel, ask: Ask) -> None:
    completion = ask(model, PROMPT, OPTIONS)
    assert completion.text == ANSWER
    assert completion.model == model.name
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == provider.USAGE
    assert completion.usage.cached_tokens == 4
    assert completion.finish_reason == "stop"
    assert completion.cost is None


def test_calls_of_tools(model: RemoteModel, ask: Ask, server: Server) -> None:
    calls = [("call_a", "get_current_weather", '{"location": "Bern"}'), ("call_b", "get_current_weather", "{}")]
    server.script = [answer("Let me look.", calls=calls)]
    prompt = prompt_of(*PROMPT.turns, tools=[WEATHER])
    completion = ask(model, prompt, OPTIONS)
    assert completion.finish_reason == "tool_calls"
    assert completion.text == "Let me look."
    assert [(call.id, call.name) for call in completion.tool_calls] == [(call[0], call[1]) for call in calls]
    assert completion.tool_calls[0].arguments.replace(" ", "") == '{"location":"Bern"}'
    sent = server.bodies[-1]["tools"][0]
    assert sent.get("function", sent)["name"] == "get_current_weather"


def test_calls_alone_are_an_answer(model: RemoteModel, ask: Ask, server: Server) -> None:
    server.script = [answer("", calls=[("c", "f", "{}")])]
    completion = ask(model, PROMPT, OPTIONS)
    assert completion.text == ""
    assert completion.tool_calls[0].name == "f"


def test_a_stop_that_the_server_ignores_is_cut_all_the_same(model: RemoteModel, ask: Ask, server: Server) -> None:
    server.script = [answer()]
    options = CompletionOptions(stop=("never", "not", "here", "no", "wholly and"), timeout=20)
    completion = ask(model, PROMPT, options)
    assert completion.text == "Hello from the provider, "
    assert completion.finish_reason == "stop"


def test_cut_by_length(model: RemoteModel, ask: Ask) -> None:
    assert ask(model, PROMPT, CompletionOptions(max_tokens=1, timeout=20)).finish_reason == "length"


def test_refused_content(model: RemoteModel, ask: Ask, server: Server) -> None:
    server.script = [answer("", finish="content_filter" if isinstance(model, OpenAIModel) else "refusal")]
    assert ask(model, PROMPT, OPTIONS).finish_reason == "content_filter"


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


def test_no_key_is_said_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    for spec, key in (("openai:gpt-4o", "OPENAI_API_KEY"), ("anthropic:claude-sonnet-4-6", "ANTHROPIC_API_KEY")):
        monkeypatch.delenv(key, raising=False)
        with pytest.raises(AuthenticationError, match=key):
            get_model(spec).complete(PROMPT)


def test_keys_come_from_the_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-env")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "from-env")
    get_model("openai:gpt-4o", base_url=f"{server.url}/v1").complete(PROMPT)
    get_model("anthropic:claude-sonnet-4-6", base_url=server.url).complete(PROMPT)
    headers = [{name.lower(): value for name, value in request["headers"].items()} for request in server.requests]
    assert headers[0].get("authorization") == "Bearer from-env"
    keys = (headers[1].get("x-api-key"), headers[1].get("authorization"))  # by the SDK's version
    assert "from-env" in keys or "Bearer from-env" in keys
    assert [request["path"] for request in server.requests] == ["/v1/chat/completions", "/v1/messages"]


def test_parameters_that_a_model_refuses_are_learnt_once(ask: Ask, server: Server) -> None:
    def picky(handler: provider.Handler, body: dict[str, Any]) -> None:
        if "max_tokens" in body and not handler.anthropic:
            said = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'."
            error(400, said, code="unsupported_parameter", param="max_tokens")(handler, body)
        elif "temperature" in body:
            error(400, "`temperature` is deprecated for this model.")(handler, body)
        else:
            answer()(handler, body)

    for kind, first in (("openai", 3), ("anthropic", 2)):
        server.script = [picky]
        server.requests.clear()
        model = make(kind, server)
        assert ask(model, PROMPT, OPTIONS).text == ANSWER
        assert len(server.requests) == first
        assert ask(model, PROMPT, OPTIONS).text == ANSWER
        assert len(server.requests) == first + 1


def test_the_sampling_options_are_sent(server: Server) -> None:
    options = CompletionOptions(max_tokens=9, temperature=0.5, top_p=0.9, seed=3, stop=("END", " "), timeout=20)
    make("openai", server).complete(PROMPT, options)
    make("anthropic", server).complete(PROMPT, options)
    first, second = server.bodies
    assert first["max_tokens"] == second["max_tokens"] == 9
    assert (first["temperature"], first["top_p"], first["seed"], first["stop"]) == (0.5, 0.9, 3, ["END", " "])
    assert second["top_p"] == 0.9
    assert second["stop_sequences"] == ["END"]


def test_the_cost_is_what_the_price_says(server: Server) -> None:
    price = Price(prompt=2.0, completion=10.0, cached=0.5)
    for kind in ("openai", "anthropic"):
        completion = make(kind, server, price=price).complete(PROMPT, OPTIONS)
        assert completion.cost == pytest.approx((7 * 2.0 + 4 * 0.5 + 7 * 10.0) / 1e6)


def test_anthropic_gets_a_dialogue_by_its_rules(server: Server) -> None:
    """The server checks the rules and answers 400 when one is broken."""
    call = ToolCall("t1", "f", '{"x": 1}')
    image = Part(kind="image", data={"url": "data:image/png;base64,AAAA", "width": 2})
    turns = (
        Message("system", "One."),
        Message("user", (Part(text="Look "), Part(text=" "), Part(text="at this:"), image)),
        Message("user", "And this."),
        Message("assistant", (Part(kind="reasoning", text="hm"), Part(text=" "))),
        Message("assistant", "", tool_calls=(call, ToolCall("t2", "f", "broken {"))),
        Message("tool", "r1", tool_call_id="t1"),
        Message("tool", "", tool_call_id="t2"),
        Message("system", "Two."),
        Message("user", "So?"),
    )
    make("anthropic", server).complete(prompt_of(*turns), OPTIONS)
    body = server.bodies[-1]
    assert body["system"] == "One.\n\nTwo."
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    first, second, third = (message["content"] for message in body["messages"])
    assert first[0]["text"] == "Look  at this:"
    assert first[1]["source"] == {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    assert [block["input"] for block in second] == [{"x": 1}, {"arguments": "broken {"}]
    assert [block["type"] for block in third] == ["tool_result", "tool_result", "text"]


def test_anthropic_needs_the_user_first(server: Server) -> None:
    model = make("anthropic", server)
    for turns in ([Message("assistant", "hi")], [Message("system", "s")], [Message("user", "  ")]):
        with pytest.raises(HistoryError, match="user"):
            model.complete(prompt_of(*turns), OPTIONS)
    assert server.requests == []


def test_openai_gets_images_without_our_sizes(server: Server) -> None:
    image = Part(kind="image", data={"url": "https://x/y.png", "detail": "low", "width": 10, "height": 10})
    make("openai", server).complete(prompt_of(Message("user", (Part(text="What?"), image))), OPTIONS)
    assert server.bodies[-1]["messages"][0]["content"][1]["image_url"] == {"url": "https://x/y.png", "detail": "low"}


def test_wrong_parameters_are_refused(server: Server) -> None:
    for parameters in ({"attempts": 0}, {"window": 1}):
        with pytest.raises(ConfigError):
            make("openai", server, **parameters)
    with pytest.raises(ConfigError):
        OpenAIModel("")
    with pytest.raises(ConfigError, match="name is missing"):
        get_model("openai")


def test_windows_and_counters_may_be_given(server: Server) -> None:
    assert make("openai", server).window == 128_000
    assert make("anthropic", server).window == 200_000
    assert make("anthropic", server, window=1_000_000).window == 1_000_000
    counter = make("openai", server).counter
    assert OpenAIModel("my-own", base_url=server.url, counter=counter).counter is counter


def test_lone_surrogates_are_sent_as_they_are_counted(model: RemoteModel, ask: Ask, server: Server) -> None:
    broken = "a \ud800 b"
    call = ToolCall("c\udc00", f"f {broken}", '{"x": "\\ud800"}')
    tool = {"name": "f", "description": broken, "parameters": {"type": "object", "properties": {broken: {}}}}
    prompt = prompt_of(
        Message("system", broken),
        Message("user", (Part(text=broken), Part(text="\ud83d"), Part(text="\ude00"))),
        Message("assistant", broken, tool_calls=(call,)),
        Message("tool", broken, tool_call_id="c\udc00"),
        tools=[tool],
    )
    assert ask(model, prompt, OPTIONS).text == ANSWER
    sent = json.dumps(server.bodies[-1], ensure_ascii=False)
    sent.encode("utf-8")
    assert "a \ufffd b\U0001f600" in sent
    count = get_counter("o200k_base").count
    assert count(broken + "\ud83d" + "\ude00") == count("a \ufffd b\U0001f600")


def test_what_is_not_json_is_refused_before_it_is_sent(model: RemoteModel, ask: Ask, server: Server) -> None:
    odd = Message("user", (Part(text="x"), Part("document", data={"x": {"a"}})))
    with pytest.raises(ConfigError, match="not JSON"):
        ask(model, prompt_of(odd), OPTIONS)
    with pytest.raises(ConfigError, match=r"tools\[0\] f"):
        ask(model, dataclasses.replace(PROMPT, tools=({"name": "f", "parameters": []},)), OPTIONS)
    assert server.requests == []


def test_tools_of_a_provider_are_sent_as_they_are(server: Server) -> None:
    custom = {"type": "custom", "custom": {"name": "run", "description": "Runs code."}}
    make("openai", server).complete(prompt_of(*PROMPT.turns, tools=[custom, WEATHER]))
    assert server.bodies[-1]["tools"] == [custom, WEATHER]
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
    make("anthropic", server).complete(prompt_of(*PROMPT.turns, tools=[search]))
    assert server.bodies[-1]["tools"] == [search]
