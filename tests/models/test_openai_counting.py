"""OpenAI's counts: the provider's documented examples, joints, and what is not counted twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.errors import ConfigError
from ctxkit.messages import Message, Part, ToolCall
from ctxkit.models import OpenAIChatCounter, get_chat_counter
from ctxkit.models.joining import JoinedCounter
from ctxkit.testing import ChatCounterConformance
from ctxkit.tokens import get_counter
from tests.strategies import texts

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_current_weather",
        "description": "Get the current weather in a given location",
        "parameters": {
            "type": "object",
            "properties": {
                "location": {"type": "string", "description": "The city and state, e.g. San Francisco, CA"},
                "unit": {
                    "type": "string",
                    "description": "The unit of temperature to return",
                    "enum": ["celsius", "fahrenheit"],
                },
            },
            "required": ["location"],
        },
    },
}


class TestConformance(ChatCounterConformance):
    def make_counter(self) -> OpenAIChatCounter:
        return OpenAIChatCounter("gpt-4o")


class TestConformanceOlder(ChatCounterConformance):
    def make_counter(self) -> OpenAIChatCounter:
        return OpenAIChatCounter("gpt-4")


@pytest.mark.parametrize(
    ("model", "tokens"), [("gpt-4o", 101), ("gpt-4o-mini", 101), ("gpt-4", 105), ("gpt-3.5-turbo", 105)]
)
def test_the_documented_tool_example(model: str, tokens: int) -> None:
    messages = [
        Message("system", "You are a helpful assistant that can answer to questions about the weather."),
        Message("user", "What's the weather like in San Francisco?"),
    ]
    assert OpenAIChatCounter(model).count_prompt(messages, [WEATHER]) == tokens


@pytest.mark.parametrize(("model", "tokens"), [("gpt-4o", 124), ("gpt-4o-mini", 124), ("gpt-4", 129)])
def test_the_documented_message_example_with_names(model: str, tokens: int) -> None:
    user, assistant = "example_user", "example_assistant"
    messages = [
        Message(
            "system",
            "You are a helpful, pattern-following assistant that translates corporate jargon into plain English.",
        ),
        Message("system", "New synergies will help drive top-line growth.", name=user),
        Message("system", "Things working well together will increase revenue.", name=assistant),
        Message(
            "system",
            "Let's circle back when we have more bandwidth to touch base on opportunities for increased leverage.",
            name=user,
        ),
        Message("system", "Let's talk later when we're less busy about how to do better.", name=assistant),
        Message("user", "This late pivot means we don't have time to boil the ocean for the client deliverable."),
    ]
    assert OpenAIChatCounter(model).count_prompt(messages) == tokens


@pytest.mark.parametrize("encoding", ["o200k_base", "cl100k_base"])
@given(parts=st.lists(texts, max_size=6))
def test_parts_are_counted_as_the_provider_joins_them(encoding: str, parts: list[str]) -> None:
    counter = OpenAIChatCounter(encoding)
    joined = get_counter(encoding).count("".join(parts))
    overhead = counter.count_message(Message("user", ""))
    assert counter.count_message(Message("user", tuple(Part(text=part) for part in parts))) == joined + overhead


@pytest.mark.parametrize("encoding", ["o200k_base", "cl100k_base"])
@given(
    parts=st.lists(
        st.text(st.sampled_from("aB1é\u0301 \n\r\t/'.{中\u3000\x85\x1c\u2028\xa0👍\ud800"), max_size=12), max_size=8
    )
)
def test_joints_of_every_kind_are_exact(encoding: str, parts: list[str]) -> None:
    whole = get_counter(encoding)
    assert JoinedCounter(whole.count)(parts) == whole.count("".join(parts))


def test_adding_a_segment_does_not_count_the_rest_again() -> None:
    calls: list[int] = []
    exact = get_counter("o200k_base")

    def count(text: str) -> int:
        calls.append(len(text))
        return exact.count(text)

    counter = JoinedCounter(count)
    parts = [f"Passage {number} says this. " + "It goes on for a while.\n" * 40 for number in range(1000)]
    counter(parts)
    calls.clear()
    new = "Another passage, the last one. " * 10
    total = counter([*parts, new])
    assert total == exact.count("".join([*parts, new]))
    assert sum(calls) <= len(new) + 200
    calls.clear()
    counter([*parts[:500], new, *parts[500:]])
    assert sum(calls) <= 200


def test_control_tokens_are_plain_text() -> None:
    counter = OpenAIChatCounter("gpt-4o")
    assert counter.count("<|endoftext|>") == get_counter("o200k_base").count("<|endoftext|>") == 7
    assert counter.count_prompt([Message("user", "<|im_start|>")]) > counter.count_prompt([Message("user", "a")]) + 3


def test_tool_calls_and_results_are_not_free() -> None:
    counter = OpenAIChatCounter("gpt-4o")
    call = ToolCall("call_abc", "search", '{"q": "' + "word " * 200 + '"}')
    assert counter.count_message(Message("assistant", "", tool_calls=(call,))) > 200
    assert counter.count_message(Message("tool", "r", tool_call_id="call_abc")) > counter.count_message(
        Message("user", "r")
    )


def test_nested_schemas_and_unknown_keywords_are_counted() -> None:
    counter = OpenAIChatCounter("gpt-4o")

    def tool(schema: dict[str, object]) -> dict[str, object]:
        return {"name": "f", "parameters": {"type": "object", "properties": {"x": schema}}}

    flat = counter.count_tools([tool({"type": "object"})])
    inner = {"type": "object", "properties": {"long_name": {"type": "string", "description": "d " * 50}}}
    assert counter.count_tools([tool(inner)]) > flat + 50
    assert counter.count_tools([tool({"type": "array", "items": inner})]) > flat + 50
    assert counter.count_tools([tool({"anyOf": [inner, {"type": "null"}]})]) > flat + 50


@pytest.mark.parametrize(
    ("model", "data", "tokens"),
    [
        ("gpt-4o", {"detail": "low"}, 85),
        ("gpt-4o", {"width": 1024, "height": 1024}, 765),
        ("gpt-4o", {"width": 2048, "height": 4096}, 1105),
        ("gpt-4o", {}, 1445),
        ("gpt-4o-mini", {"width": 512, "height": 512}, 2833 + 5667),
        ("gpt-4.1-mini", {"width": 1024, "height": 1024}, int(1024 * 1.62) + 1),
        ("gpt-5", {"width": 512, "height": 512}, 210),
    ],
)
def test_images_by_the_documented_tiles(model: str, data: dict[str, object], tokens: int) -> None:
    counter = OpenAIChatCounter(model)
    image = Message("user", (Part(kind="image", data={"url": "data:…", **data}),))
    assert counter.count_message(image) - counter.count_message(Message("user", "")) == tokens


def test_an_unknown_model_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match="o200k_base"):
        get_chat_counter("openai:my-own-model")


def test_counters_are_shared() -> None:
    assert get_chat_counter("openai:gpt-4o") is get_chat_counter("openai:gpt-4o")
    assert get_chat_counter("o200k_base").name == get_chat_counter("openai:gpt-4o").name == "o200k_base"
