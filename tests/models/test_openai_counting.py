"""OpenAI's counts: the provider's documented examples, joints, and what is not counted twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.errors import ConfigError
from ctxkit.messages import Message, Part, ToolCall
from ctxkit.models import OpenAIChatCounter, get_chat_counter
from ctxkit.models.joining import JoinedCounter
from ctxkit.protocols import counted_exactly
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


def with_property(**keywords: object) -> dict[str, object]:
    parameters = {"type": "object", "properties": {"x": {"type": "string", "description": "d", **keywords}}}
    return {"type": "function", "function": {"name": "f", "description": "d", "parameters": parameters}}


def with_schema(**keywords: object) -> dict[str, object]:
    parameters = {"type": "object", "properties": {"x": {"type": "string", "description": "d"}}, **keywords}
    return {"type": "function", "function": {"name": "f", "description": "d", "parameters": parameters}}


LONG = "sunflower galaxy " * 40
INNER = {"type": "object", "properties": {"y": {"type": "string", "description": LONG}}}
SAID_ANYWHERE = {
    "items": {"type": "array", "items": {"type": "array", "items": INNER}},
    "items, described": {"type": "array", "items": {"type": "string", "description": LONG}},
    "items, a list": {"type": "array", "items": [{"const": LONG}]},
    "prefixItems": {"prefixItems": [INNER]},
    "additionalProperties": {"type": "object", "additionalProperties": INNER},
    "patternProperties": {"type": "object", "patternProperties": {"^x": INNER}},
    "properties": INNER,
    "if": {"if": {"const": "a"}, "then": INNER},
    "not": {"not": INNER},
    "anyOf": {"anyOf": [{"type": "null"}, INNER]},
    "$defs": {"$defs": {"inner": INNER}},
    "default": {"default": LONG},
    "const": {"const": LONG},
    "title": {"title": LONG},
    "examples": {"examples": [LONG]},
    "pattern": {"pattern": LONG},
    "of a provider": {"x-hint": LONG},
    "an empty key": {"": LONG},
    "enum of several types": {"enum": [1, LONG]},
    "types": {"type": ["string", LONG]},
}


@pytest.mark.parametrize("place", [with_property, with_schema])
@pytest.mark.parametrize("name", SAID_ANYWHERE)
def test_nothing_that_a_schema_says_is_free(name: str, place: Callable[..., dict[str, object]]) -> None:
    counter = OpenAIChatCounter("gpt-4o")
    keywords = SAID_ANYWHERE[name]
    said = place(**keywords)
    assert counter.count_tools([said]) >= counter.count_tools([place()]) + counter.count(LONG) - 2
    documented = place is with_schema and name == "properties"
    assert counter.is_exact([], [said]) == documented
    assert counter.count_prompt([], [said]) == counter.count_tools([said]) + 3


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "custom", "custom": {"name": "f", "description": LONG}},
        {"type": "custom", "name": "f", "description": LONG},
        {"type": "function", "function": {"name": "f", "strict": True, "x": LONG}},
        {"type": "function", "function": {"name": "f"}, "x": LONG},
        {"name": "f", "description": LONG},
        {"name": "f", "input_schema": {"description": LONG, "type": "object"}},
        {"name": "f", "parameters": {"type": "object", "description": LONG}},
        {"name": "f", "parameters": {"type": "array", "items": {"const": LONG}}},
        {"name": "f", "parameters": {"properties": {"x": True, "y": {"description": LONG}}}},
    ],
)
def test_nothing_that_a_tool_says_is_free(tool: dict[str, object]) -> None:
    counter = OpenAIChatCounter("gpt-4o")
    assert counter.count_tools([tool]) >= counter.count(LONG)
    assert not counter.is_exact([], [tool])


def test_what_the_documented_formula_covers_is_exact() -> None:
    counter = OpenAIChatCounter("gpt-4o")
    text = [Message("system", "Be brief."), Message("user", (Part(text="a"), Part("reasoning", "b")))]
    assert counter.is_exact(text)
    assert counter.is_exact(text, [WEATHER, with_property(), with_schema(required=["x"]), with_property(enum=["a"])])
    assert not counter.is_exact(text, [WEATHER, with_property(default="a")])
    for message in (
        Message("user", (Part("image", data={"url": "x"}),)),
        Message("user", (Part("audio", data={"url": "x"}),)),
        Message("assistant", "", tool_calls=(ToolCall("c", "f"),)),
        Message("tool", "r", tool_call_id="c"),
    ):
        assert not counter.is_exact([*text, message])


def test_the_prompt_is_asked_where_the_counter_knows() -> None:
    openai, claude = OpenAIChatCounter("gpt-4o"), get_chat_counter("anthropic:claude-sonnet-4-6")
    assert counted_exactly(openai, [Message("user", "x")], [WEATHER])
    assert not counted_exactly(openai, [Message("user", "x")], [with_property(default="a")])
    assert not counted_exactly(claude, [Message("user", "x")])


def test_one_full_stop_ends_a_description() -> None:
    """The documented code cuts one; two of three are sent."""
    counter = OpenAIChatCounter("gpt-4o")
    one, three = with_property(description="A day."), with_property(description="A day ...")
    assert counter.count_tools([one]) == counter.count_tools([with_property(description="A day")])
    assert counter.count_tools([three]) == counter.count_tools([with_property(description="A day ..")])


@pytest.mark.parametrize(
    "model", ["gpt-4o", "gpt-4.1-mini", "anthropic:claude-sonnet-4-6", "anthropic:claude-opus-4-7"]
)
@pytest.mark.parametrize(
    "size", [(10**400, 1), (1, 10**400), (10**400, 10**400), (10**6, 1), (True, True), (-1, 5), ("a", 2.5)]
)
def test_any_size_of_an_image_has_a_count(model: str, size: tuple[object, object]) -> None:
    counter = get_chat_counter(model if ":" in model else f"openai:{model}")
    image = Message("user", (Part("image", data={"url": "x", "width": size[0], "height": size[1]}),))
    unknown = Message("user", (Part("image", data={"url": "x"}),))
    assert 0 < counter.count_message(image) <= counter.count_message(unknown)
    if size not in [(10**6, 1)]:
        assert counter.count_message(image) == counter.count_message(unknown)


def circular() -> dict[str, object]:
    data: dict[str, object] = {}
    data["again"] = data
    return data


@pytest.mark.parametrize("spec", ["openai:gpt-4o", "anthropic:claude-sonnet-4-6"])
@pytest.mark.parametrize("value", [{"a"}, float("nan"), {1: {2}}, circular(), object(), b"x", [10**5000]])
def test_what_is_not_json_is_refused(spec: str, value: object) -> None:
    counter = get_chat_counter(spec)
    with pytest.raises(ConfigError) as raised:
        counter.count_prompt([Message("user", (Part("audio", data={"x": value}),), id="m7")])
    assert raised.value.subject == "m7"
    assert raised.value.remedy
    with pytest.raises(ConfigError, match=r"tools\[0\] f"):
        counter.count_prompt([Message("user", "x")], [with_property(default=value)])


@pytest.mark.parametrize("spec", ["openai:gpt-4o", "anthropic:claude-sonnet-4-6"])
@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "function": None},
        {"name": "f", "parameters": "abc"},
        {"name": "f", "parameters": {"type": "object", "properties": []}},
        {"name": "f", "parameters": {"type": "object", "properties": {"x": {"enum": None}}}},
        "f",
    ],
)
def test_malformed_tools_are_refused(spec: str, tool: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"tools\[0\]"):
        get_chat_counter(spec).count_prompt([Message("user", "x")], [tool])
