"""The payload's JSON Schema: derived or declared, part of the content, checked without any network."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from ctxkit.errors import (
    MissingVariableError,
    TemplateError,
    TemplateSyntaxError,
    UnexpectedVariableError,
    VariableTypeError,
)
from ctxkit.templates import Template
from tests.timing import at_most

SCHEMA: dict[str, Any] = {
    "type": "object",
    "$defs": {"tag": {"type": "string", "pattern": "^[a-z]+$"}},
    "properties": {
        "user": {
            "type": "object",
            "properties": {"age": {"type": "integer", "minimum": 18}, "tags": {"items": {"$ref": "#/$defs/tag"}}},
            "required": ["age"],
            "additionalProperties": False,
        }
    },
    "required": ["user"],
}
SOURCE = "{{user.age}}{{#user.tags}} {{.}}{{/user.tags}}"


def template(schema: Any = SCHEMA, source: str = SOURCE, **slots: str) -> Template:
    return Template.parse(source, name="t", schema=schema, slots=slots or {"user": "trusted object"})


def test_a_schema_derives_from_the_slots() -> None:
    found = Template.parse(
        "{{a}}{{#b}}{{/b}}{{c.d}}{{question}}", slots={"a": {"type": "number", "description": "How many."}}
    )
    assert found.schema == {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "a": {"type": "number", "description": "How many."},
            "b": {"type": ["array", "boolean", "object"]},
            "c": {"type": "object"},
        },
        "required": ["a", "b", "c"],
        "additionalProperties": False,
    }
    assert found.content["schema"] == found.schema
    assert "schema" not in found.source


def test_a_declared_schema_is_part_of_the_version() -> None:
    found = template()
    assert found.content["schema"] == SCHEMA
    assert found.hash != Template.parse(SOURCE, name="t", slots={"user": "trusted object"}).hash
    assert Template.from_content(found.content, name="t") == found
    assert Template.parse(found.source) == found
    assert Template.parse(found.source).hash == found.hash


def test_a_head_declares_it() -> None:
    source = "---\nschema:\n  properties:\n    n:\n      type: integer\n      minimum: 3\n---\n{{n}}"
    found = Template.parse(source)
    assert found.variables["n"].type == "integer"
    with pytest.raises(VariableTypeError, match=r"\$\.n .*minimum"):
        found.render({"n": 2})


def test_one_that_says_what_the_slots_say_is_none() -> None:
    plain = Template.parse("{{a}}")
    assert Template.parse("{{a}}", schema=plain.schema) == plain
    assert Template.parse("{{a}}", schema=plain.schema).hash == plain.hash


@pytest.mark.parametrize(
    ("payload", "error", "path"),
    [
        ({"user": {"age": 3, "tags": []}}, VariableTypeError, r"\$\.user\.age"),
        ({"user": {"age": 20, "tags": ["a", "B"]}}, VariableTypeError, r"\$\.user\.tags\[1\]"),
        ({"user": {"tags": []}}, MissingVariableError, r"\$\.user .*'age'"),
        ({"user": {"age": 20, "tags": [], "role": "root"}}, UnexpectedVariableError, r"\$\.user .*'role'"),
        ({"user": MappingProxyType({"age": 3, "tags": ()})}, VariableTypeError, r"\$\.user\.age"),
    ],
)
def test_an_error_names_the_path(payload: Any, error: type[Exception], path: str) -> None:
    with pytest.raises(error, match=path) as caught:
        template().render(payload)
    assert "template t" in str(caught.value)
    assert "schema" in str(caught.value)


def test_what_fits_is_rendered() -> None:
    for user in ({"age": 20, "tags": ["a", "b"]}, MappingProxyType({"age": 20, "tags": ("a", "b")})):
        assert [message.text for message in template().render({"user": user})] == ["20 a b"]


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"$ref": "http://127.0.0.1:1/x.json"}, "nothing is ever fetched"),
        ({"properties": {"user": {"$ref": "file:///etc/passwd"}}}, "nothing is ever fetched"),
        ({"properties": {"user": {"items": [{"$ref": "other.json#/a"}]}}}, "nothing is ever fetched"),
        ({"$ref": "#/$defs/none"}, "not there"),
        ({"$ref": "#anchor"}, "not there"),
        ({"$id": "http://127.0.0.1/"}, "not supported"),
        ({"patternProperties": {"^a": {}}}, "not supported"),
        ({"properties": {"user": {"pattern": "("}}}, "no pattern|not a pattern"),
        ({"type": "text"}, "not JSON Schema"),
        ({"properties": 3}, "not JSON Schema"),
        ({"required": ["user", "other"]}, "'other'"),
        ({"required": ["question"]}, "'question'"),
        ({"properties": {"user": {"type": "string"}}}, "'user' is string"),
        ({"$schema": "http://json-schema.org/draft-04/schema#"}, "draft-04"),
    ],
)
def test_what_is_no_schema(schema: Any, problem: str) -> None:
    with pytest.raises(TemplateSyntaxError, match=problem) as caught:
        template(schema)
    assert caught.value.subject == "t, schema"
    assert caught.value.remedy


def test_data_in_a_schema_is_data() -> None:
    found = template({"properties": {"user": {"const": {"$ref": "http://x", "age": 1, "tags": []}}}})
    with pytest.raises(VariableTypeError, match=r"\$\.user"):
        found.render({"user": {"age": 2, "tags": []}})
    named = Template.parse("{{a.b}}", schema={"properties": {"a": {"properties": {"pattern": {"type": "string"}}}}})
    assert named.variables["a"].type == "object"


def test_a_circle_ends() -> None:
    with pytest.raises(TemplateError, match="itself"):
        template({"$ref": "#"}).render({"user": {"age": 1, "tags": []}})


def test_a_schema_types_slots_that_say_nothing() -> None:
    schema = {"properties": {"n": {"type": "number"}, "xs": {"type": "array"}}}
    found = Template.parse("{{n}} {{xs}}", schema=schema, slots={"xs": "trusted"})
    assert (found.variables["n"].type, found.variables["xs"].type) == ("number", "list")
    assert [message.text for message in found.render({"n": 1.5, "xs": [1]})] == ["1.5 [1]"]


def of(a: object, **more: object) -> Template:
    return Template.parse("{{?a}}yes{{/a}}", slots={"a": "any"}, schema={"properties": {"a": a}, **more})


@pytest.mark.parametrize("keyword", ["const", "default", "enum", "examples"])
def test_a_reference_to_data_is_refused_since_nothing_has_checked_it(keyword):
    data = {"$ref": "http://127.0.0.1:9/fetched"}
    place = {keyword: [data] if keyword in ("enum", "examples") else data}
    path = f"#/$defs/x/{keyword}" + ("/0" if keyword in ("enum", "examples") else "")
    with pytest.raises(TemplateSyntaxError, match="not there"):
        of({"$ref": path}, **{"$defs": {"x": place}})


@pytest.mark.parametrize("inner", [{"type": "nonsense"}, {"minimum": "x"}, {"items": 3}])
def test_a_reference_to_what_is_no_schema_is_refused(inner):
    with pytest.raises(TemplateSyntaxError, match="not JSON Schema"):
        of({"$ref": "#/other/x"}, other={"x": inner})


def test_references_that_double_the_work_end():
    levels = {f"d{level}": {"allOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(40)}
    with pytest.raises(TemplateError, match="steps"):
        of({"$ref": "#/$defs/d0"}, **{"$defs": {**levels, "d40": {}}}).render({"a": 1})
    tree = {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/x"}}] * 2}
    nested: list[object] = []
    for _ in range(40):
        nested = [nested, 1]
    with pytest.raises(TemplateError, match="steps"):
        of({"$ref": "#/$defs/x"}, **{"$defs": {"x": tree}}).render({"a": nested})


def test_a_long_payload_has_the_steps_that_it_needs():
    template = of({"items": {"type": "integer", "minimum": 0, "maximum": 9_999, "not": {"const": -1}}})
    assert template.render({"a": list(range(10_000))})[0].text == "yes"


def test_the_texts_of_a_payload_share_the_time_of_patterns(monkeypatch):
    from ctxkit.templates import schema_checking

    monkeypatch.setattr(schema_checking, "_PATTERNS_SECONDS", 0.0)
    with pytest.raises(TemplateError, match="with those before it"):
        of({"items": {"pattern": "x"}}).render({"a": ["x"]})


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"uniqueItems": True}, [1, True, "1", [1], {"x": 1}, [True]], [[1], 2, [1.0]]),
        ({"uniqueItems": True}, [{"x": True}, {"x": 1}], [{"x": 1, "y": [0]}, {"y": [0.0], "x": 1}]),
        ({"items": {"enum": [1, "a", [2], {"k": None}]}}, [1.0, "a", [2.0], {"k": None}], [True]),
        ({"items": {"multipleOf": 0.5}}, [10**400, 2, 1.5], [0.3]),
        ({"items": {"multipleOf": 1.5}}, [3 * 10**400], [10**400]),
    ],
)
def test_equality_and_multiples_are_those_of_json_schema(schema, good, bad):
    assert of(schema).render({"a": good})[0].text == "yes"
    with pytest.raises(VariableTypeError):
        of(schema).render({"a": bad})


def test_lists_without_repetition_and_long_enums_are_checked_in_linear_time():
    items = [{"k": number} for number in range(3_000)]
    with at_most(5):  # every two compared: minutes
        of({"uniqueItems": True, "items": {"enum": items}}).render({"a": items})
