"""Tools are JSON of a known shape, or a `ConfigError` that names the tool, the place and the remedy."""

from __future__ import annotations

import json
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.errors import ConfigError
from ctxkit.tools import checked_tools

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


def tool(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "look_up", "parameters": schema, **more}}


def of(**keywords: Any) -> dict[str, Any]:
    return tool({"type": "object", "properties": {"x": {"type": "string", **keywords}}})


def circular() -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    schema["properties"] = {"a": schema, "b": schema}
    return tool(schema)


def doubled() -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(20):
        schema = {"properties": {"a": schema, "b": schema}}
    return tool(schema)


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return tool(schema)


@pytest.mark.parametrize(
    "accepted",
    [
        tool({"type": "object", "properties": {}}),
        {"name": "f"},
        {"type": "function", "name": "f", "parameters": {}},
        {"name": "f", "description": "d", "input_schema": {"type": "object"}},
        {"type": "custom", "name": "f", "input_schema": {"type": "object"}},
        {"type": "custom", "custom": {"name": "run", "format": {"type": "grammar"}}},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
        of(enum=["a", 1, None], default=None, const={"enum": None}, examples=[1.5]),
        of(type=["string", "null"], anyOf=[{"type": "string"}, True], additionalProperties=False),
        of(items=[{"type": "string"}], prefixItems=[{}], patternProperties={"^x": {}}),
        tool({"type": "object", "properties": {"properties": {"type": "object"}, "enum": {"type": "string"}}}),
        nested(50),
    ],
)
def test_every_form_of_a_tool_passes_unchanged(accepted: dict[str, Any]) -> None:
    [plain] = checked_tools([accepted])
    assert plain == accepted
    assert plain is not accepted


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        ("f", r"tools\[1\]: it is a text"),
        (None, r"tools\[1\]: it is null"),
        ({"type": "function", "function": None}, r"tools\[1\]: function: it is null"),
        ({"type": "function", "function": {}}, r"function\.name: the name is missing"),
        ({"description": "d"}, "name: the name is missing"),
        ({"name": 3}, "name: the name is missing"),
        ({"type": 3, "name": "f"}, "type: it is of type int"),
        (tool("abc"), r"tools\[1\] look_up: function\.parameters: it is a text, not an object"),
        (tool(None), r"function\.parameters: it is null"),
        (tool({}, description=3), r"function\.description: it is of type int"),
        (tool({"properties": []}), r"function\.parameters\.properties: it is a list"),
        (tool({"properties": {"x": "string"}}), r"properties\.x: it is a text"),
        (of(enum=None), r"properties\.x\.enum: it is null, not a list"),
        (of(type=3), r"x\.type: it is of type int"),
        (of(type=None), r"x\.type: it is null"),
        (of(required="x"), r"x\.required: it is a text"),
        (of(required=[1]), r"x\.required: it holds what is not a text"),
        (of(anyOf={}), r"x\.anyOf: it is an object, not a list"),
        (of(items=3), r"x\.items: it is of type int"),
        (of(items=[{"enum": 1}]), r"x\.items\.0\.enum"),
        (of(allOf=[{"not": {"enum": 1}}]), r"x\.allOf\.0\.not\.enum"),
        (of(description=b"d"), r"x\.description: it is of type bytes, not a JSON value"),
        (of(enum={"a", "b"}), r"x\.enum: it is a set, which has no order.*Give a list"),
        (of(default=frozenset()), r"x\.default: it is a set"),
        (of(default=float("nan")), r"x\.default: the number is not finite"),
        (of(maximum=10**5000), r"x\.maximum: the number is too large"),
        (of(default={1: 2}), r"x\.default: a key is of type int"),
        (of(default=object()), r"x\.default: it is of type object"),
        (circular(), "it contains itself"),
        (doubled(), "more than 100,000 values"),
        (nested(100), "nested deeper than 64"),
    ],
)
def test_what_is_no_tool_is_refused_with_its_place(refused: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        checked_tools([{"name": "fine"}, refused])
    assert raised.value.subject.startswith("tools[1]")
    assert raised.value.remedy
    assert " at 0x" not in str(raised.value)


@pytest.mark.parametrize("refused", ["tools", {"name": "f"}, None, {1}, 3])
def test_tools_come_in_a_list(refused: Any) -> None:
    with pytest.raises(ConfigError, match="tools are not a list"):
        checked_tools(refused)


def test_other_containers_and_subclasses_become_plain() -> None:
    class Unit(StrEnum):
        METRE = "m"

    given_tool = MappingProxyType(
        {"name": "f", "parameters": MappingProxyType({"enum": (Unit.METRE,), "required": ()})}
    )
    [plain] = checked_tools([given_tool])
    assert plain == {"name": "f", "parameters": {"enum": ["m"], "required": []}}
    assert type(plain["parameters"]["enum"][0]) is str
    assert json.loads(json.dumps(plain)) == plain


def test_the_result_shares_nothing_with_what_was_given() -> None:
    given_tool = of(enum=["a"])
    [plain] = checked_tools([given_tool])
    given_tool["function"]["parameters"]["properties"]["x"]["enum"].append("b")
    assert plain == of(enum=["a"])


def test_a_value_may_stand_in_two_places() -> None:
    shared = {"type": "string"}
    assert checked_tools([tool({"properties": {"a": shared, "b": shared}})])


@given(value=json_values)
def test_json_passes_unchanged_wherever_a_schema_holds_data(value: Any) -> None:
    [plain] = checked_tools([of(default=value, examples=[value])])
    assert plain == of(default=value, examples=[value])


@given(value=json_values, key=st.sampled_from(["properties", "items", "enum", "anyOf", "required", "type", "$defs"]))
def test_a_schema_is_taken_or_refused(value: Any, key: str) -> None:
    """Whatever stands at a keyword: nothing but a `ConfigError` leaves."""
    try:
        [plain] = checked_tools([of(**{key: value})])
    except ConfigError:
        return
    assert json.loads(json.dumps(plain)) == plain
