"""The template language: what each form gives, and what is refused, with line and column."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given

from ctxkit.errors import MissingVariableError, TemplateError, TemplateSyntaxError, VariableTypeError
from ctxkit.templates import Template
from tests.strategies import stored_texts, texts
from tests.timing import at_most, doubling


def rendered(text: str, slots: dict[str, str] | None = None, **payload: Any) -> str:
    """A one-message template with every slot trusted, so that no fences stand in the text."""
    names = Template.parse([{"role": "user", "content": text}], slots=slots).variables
    trusted = {name: f"{slot.type} trusted" for name, slot in names.items() if name not in ("context", "question")}
    [message] = Template.parse([{"role": "user", "content": text}], slots=trusted).render(payload)
    return message.text


@pytest.mark.parametrize(
    ("text", "payload", "expected"),
    [
        ("plain", {}, "plain"),
        ("", {}, ""),
        ("Hello {{name}}!", {"name": "Ann"}, "Hello Ann!"),
        ("{{ name }}{{name}}", {"name": "x"}, "xx"),
        ("{{user.name}} {{user.address.city}}", {"user": {"name": "A", "address": {"city": "B"}}}, "A B"),
        ("{{user.age}} {{user.ok}} {{user.height}}", {"user": {"age": 3, "ok": True, "height": 1.5}}, "3 true 1.5"),
        ("{{#items}}<{{.}}>{{/items}}", {"items": ["a", "b"]}, "<a><b>"),
        ("{{#items}}<{{.}}>{{/items}}", {"items": []}, ""),
        (
            "{{#items}}{{.k}}{{#.tags}}({{.}}){{/.tags}};{{/items}}",
            {"items": [{"k": "x", "tags": ["p", "q"]}]},
            "x(p)(q);",
        ),
        ("{{#rows}}{{#.}}{{.}}{{/.}}|{{/rows}}", {"rows": [["a", "b"], ["c"]]}, "ab|c|"),
        ("{{#items}}{{.}}={{name}} {{/items}}", {"items": ["a"], "name": "n"}, "a=n "),
        ("{{#on}}yes{{/on}}{{^on}}no{{/on}}", {"on": True}, "yes"),
        ("{{#on}}yes{{/on}}{{^on}}no{{/on}}", {"on": False}, "no"),
        ("{{^items}}none{{/items}}", {"items": []}, "none"),
        ("{{^items}}none{{/items}}", {"items": [False]}, ""),
        ("{{#user}}{{.name}}{{/user}}", {"user": {"name": "A"}}, "A"),
        ("{{#user.nick}}{{.}}{{/user.nick}}{{^user.nick}}-{{/user.nick}}", {"user": {"nick": None}}, "-"),
        ("{{#items}}{{#on}}{{.}}{{/on}}{{/items}}", {"items": ["a"], "on": True}, "a"),
        ("a{{! comment }}b", {}, "ab"),
        ("a{{! over\ntwo lines }}b", {}, "ab"),
        ('{{"{{"}}name}}', {}, "{{name}}"),
        ('{{ "a\\n\\"}}" }}', {}, 'a\n"}}'),
        ('{"a": {"b": {{n.x}}}}', {"n": {"x": 1}}, '{"a": {"b": 1}}'),
        ("{name} {% x %} ${x} }} $1", {}, "{name} {% x %} ${x} }} $1"),
    ],
)
def test_what_it_gives(text: str, payload: dict[str, Any], expected: str) -> None:
    assert rendered(text, **payload) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\n{{#on}}\nb\n{{/on}}\nc", "a\nb\nc"),
        ("  {{#on}}  \nb\n  {{/on}}", "b\n"),
        ("a\r\n{{#on}}\r\nb\r\n{{/on}}\r\nc", "a\r\nb\r\nc"),
        ("a\n{{! note }}\nb", "a\nb"),
        ("a {{! note }}\nb", "a \nb"),
        ("{{#on}}{{/on}}\nb", "\nb"),
        ("{{! a }} {{! b }}\nc", " \nc"),
        ("{{#on}}\n\nb{{/on}}", "\nb"),
        ("x {{#on}}\nb\n{{/on}}\n", "x \nb\n"),
    ],
)
def test_a_line_with_one_section_tag_alone_vanishes(text: str, expected: str) -> None:
    payload = {"on": True} if "on" in Template.parse(text).variables else {}
    assert rendered(text, **payload) == expected


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("{{", "1:1"),
        ("one\ntwo {{name", "2:5"),
        ("{{}}", "1:1"),
        ("{{a b}}", "1:1"),
        ("{{a()}}", "1:1"),
        ("{{a[0]}}", "1:1"),
        ("{{a.0}}", "1:1"),
        ("{{a|upper}}", "1:1"),
        ("{{a.}}", "1:1"),
        ("{{.a..b}}", "1:1"),
        ("{{{a}}}", "1:1"),
        ("{{> other}}", "1:1"),
        ("{{naïve}}", "1:1"),
        ("{{pаssword}}", "1:1"),  # a Cyrillic а
        ("{{" + "a" * 65 + "}}", "1:1"),
        ("{{#a}}\n{{/b}}", "2:1"),
        ("x\n  {{#a}}", "2:3"),
        ("{{/a}}", "1:1"),
        ("{{.}}", "1:1"),
        ("{{.a}}", "1:1"),
        ('{{"a}}', "1:1"),
        ('{{"a" b}}', "1:1"),
        ("{{#a}}" * 17 + "{{/a}}" * 17, "1:97"),
    ],
)
def test_what_is_refused(text: str, place: str) -> None:
    with pytest.raises(TemplateSyntaxError) as caught:
        Template.parse(text, name="t")
    assert caught.value.subject == f"t {place}"
    assert caught.value.remedy


@pytest.mark.parametrize("name", ["__class__", "__init__", "keys", "items", "pop"], ids=lambda name: f"the name {name}")
def test_a_path_reaches_keys_and_nothing_else(name: str) -> None:
    template = Template.parse("{{user." + name + "}}")
    with pytest.raises(MissingVariableError, match=name):
        template.render({"user": {}})
    assert rendered("{{user." + name + "}}", user={name: "value"}) == "value"
    with pytest.raises(VariableTypeError):
        Template.parse("{{user.name." + name + "}}").render({"user": {"name": "text"}})


@given(stored_texts)
def test_any_text_can_be_written_as_a_literal(text: str) -> None:
    import json

    assert rendered("a{{" + json.dumps(text, ensure_ascii=False) + "}}b") == f"a{text}b"


@given(texts)
def test_any_source_is_compiled_or_refused(source: str) -> None:
    refusal: TemplateSyntaxError | None = None
    try:
        template = Template.parse([{"role": "user", "content": source}])
    except TemplateSyntaxError as error:
        refusal = error
    if refusal is not None:
        assert refusal.subject.startswith("template, message 1 (user), ")
        assert refusal.remedy
    elif "{{" not in source:
        assert [message.text for message in template.render()] == [source]


@pytest.mark.parametrize(
    ("text", "payload", "error"),
    [
        ("{{#a}}{{/a}}", {"a": "text"}, VariableTypeError),
        ("{{#a.b}}{{/a.b}}", {"a": {"b": 1}}, VariableTypeError),
        ("{{a.b}}", {"a": {"b": None}}, VariableTypeError),
        ("{{a.b}}", {"a": {"b": ["x"]}}, VariableTypeError),
        ("{{a.b}}", {"a": {"b": {}}}, VariableTypeError),
        ("{{a.b.c}}", {"a": {"b": "x"}}, VariableTypeError),
        ("{{a.b}}", {"a": {}}, MissingVariableError),
        ("{{#a}}{{.b}}{{/a}}", {"a": [{}]}, MissingVariableError),
        ("{{#a}}{{.b}}{{/a}}", {"a": ["x"]}, VariableTypeError),
        ("{{#a}}{{.}}{{/a}}", {"a": True}, VariableTypeError),
        ("{{#a}}{{.}}{{/a}}", {"a": [None]}, VariableTypeError),
    ],
)
def test_values_that_do_not_fit_are_named(text: str, payload: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        Template.parse(text, name="t").render(payload)
    assert "'a" in str(caught.value) or "{{.}}" in str(caught.value)
    assert "template t" in str(caught.value)


def test_nested_lists_cannot_grow_without_bound() -> None:
    text = "{{#a}}" * 5 + "x" + "{{/a}}" * 5
    payload = {"a": [0] * 100}
    with at_most(20), pytest.raises(TemplateError, match="repeat more than"):
        Template.parse(text).render(payload)
    with pytest.raises(TemplateError, match="grows over"):
        Template.parse("{{#a}}" + "x" * 1000 + "{{/a}}").render(payload, max_characters=50_000)
    with pytest.raises(TemplateError, match="grows over"):
        Template.parse("{{a}}").render({"a": "x" * 1001}, max_characters=1000)


def test_compiling_takes_time_in_proportion() -> None:
    def parsing(shape: str, size: int) -> Callable[[], object]:
        return lambda: Template.parse([{"role": "user", "content": shape * size}])

    for shape in ("{{! c }}", "{{a}}", " {{#a}} {{/a}}", "\n", '{{"x"}}', "{ { } }"):
        doubling(partial(parsing, shape), 6_000)
