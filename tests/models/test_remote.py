"""Both remote models against a real server: what is sent, and what comes back."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from ctxkit.errors import (
    AuthenticationError,
    ConfigError,
    HistoryError,
)
from ctxkit.messages import Message, Part, ToolCall
from ctxkit.models import OpenAIModel, get_model
from ctxkit.models.remote import Price, RemoteModel
from ctxkit.prompts import CompletionOptions
from ctxkit.testing import ModelConformance
from ctxkit.testing.models import prompt_of
from ctxkit.tokens import get_counter
from tests.models import provider_server as provider
from tests.models.provider_server import ANSWER, Server, answer, error
from tests.models.remote_asking import OPTIONS, PROMPT, Ask, make
from tests.models.test_openai_counting import WEATHER

pytest.importorskip("openai")
pytest.importorskip("anthropic")


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
