"""The two ways a message is rendered give the same; payloads of any mapping; limits; large values."""

from __future__ import annotations

from collections import OrderedDict
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxkit.errors import TemplateError, UnexpectedVariableError, VariableTypeError
from ctxkit.templates import Template, delimiters
from tests.strategies import stored_texts
from tests.timing import at_most

parts = st.lists(st.sampled_from(["x ", "{{a}}", "{{b}}", "{{o.p}}", "{{question}}", "\n", "{{n}}"]), max_size=6)


@settings(max_examples=200)
@given(parts, stored_texts, stored_texts, st.sampled_from(["trusted", "untrusted", "history"]))
def test_a_flat_message_is_rendered_as_a_tree_would_be(source: list[str], a: str, b: str, trust: Any) -> None:
    flat_source = "".join(source)
    tree_source = f"{{{{#on}}}}{{{{/on}}}}{flat_source}"
    slots = {name: kind for name, kind in {"a": trust, "n": "integer"}.items() if f"{{{{{name}}}}}" in flat_source}
    flat = Template.parse([{"role": "user", "content": flat_source}], slots=slots)
    tree = Template.parse([{"role": "user", "content": tree_source}], slots=slots)
    values = {"a": a, "b": b, "o": {"p": a}, "n": 3}
    payload = {name: value for name, value in values.items() if name in flat.variables}
    [one], [two] = flat.render(payload), tree.render({**payload, "on": False})
    assert one == two
    assert one.text == two.text == "".join(piece.text for piece in one.pieces)
    assert all(piece.text or piece.slot for piece in one.pieces)


class Text(str):
    """A text of somebody's own type."""

    __slots__ = ()


@pytest.mark.parametrize("mapping", [dict, OrderedDict, MappingProxyType])
def test_payloads_of_any_mapping(mapping: Any) -> None:
    template = Template.parse("{{a}} {{o.b}}{{#xs}} {{.}}{{/xs}}", slots={"a": "trusted", "o": "trusted object"})
    opening, closing = delimiters("y")
    expected = f"x z {opening}y{closing}"
    payload = mapping({"a": Text("x"), "o": mapping({"b": Text("z")}), "xs": ("y",)})
    assert [message.text for message in template.render(payload)] == [expected]
    with pytest.raises(UnexpectedVariableError, match="'c'"):
        template.render(mapping({**payload, "c": 1}))


@pytest.mark.parametrize("trust", ["trusted", "untrusted"])
@pytest.mark.parametrize("bad", ["\x00", "\ud800", Text("\udfff"), "é\x00", 3, None, b"x", ["x"]])
def test_a_flat_message_refuses_what_a_tree_refuses(trust: str, bad: Any) -> None:
    slots = {"a": trust, "b": trust}
    for source in ("{{a}} {{b}}", "{{a}} {{b}}{{?a}}{{/a}}"):
        template = Template.parse(source, slots=slots)
        for payload in ({"a": bad, "b": "x"}, {"a": "x", "b": bad}):
            name = "a" if payload["a"] is bad else "b"
            with pytest.raises(VariableTypeError, match=f"'{name}'"):
                template.render(payload)


def test_ten_megabytes_are_fine() -> None:
    text = "Text with {{slots}} and </data-00000000>. " * 250_000
    template = Template.parse("{{a}}|{{b}}", slots={"a": "trusted"})
    [message] = template.render({"a": text[:5_000_000], "b": text[:9_000_000]})
    opening, closing = delimiters(text[:9_000_000])
    assert len(message.text) == 14_000_001 + len(opening) + len(closing)
    assert [len(piece.text) for piece in message.pieces if piece.section in "ab"] == [5_000_000, 9_000_000]


def test_many_places_of_a_large_value_are_counted_before_they_are_joined() -> None:
    template = Template.parse("{{a}}" * 20_000, slots={"a": "trusted"})
    with at_most(20):
        with pytest.raises(TemplateError, match="grows over"):
            template.render({"a": "x" * 1_000_000})
        with pytest.raises(TemplateError, match="grows over"):
            Template.parse("{{#xs}}{{a}}{{/xs}}").render({"a": "x" * 1_000_000, "xs": [0] * 20_000})


def test_a_condition_takes_everything() -> None:
    template = Template.parse("{{?a}}yes{{/a}}{{^a}}no{{/a}}")
    for value in (True, 1, 0.5, "x", [0], {"a": None}):
        assert [message.text for message in template.render({"a": value})] == ["yes"]
    for value in (False, 0, 0.0, "", [], {}, None):
        assert [message.text for message in template.render({"a": value})] == ["no"]
    assert template.schema["properties"] == {"a": {}}
    with pytest.raises(VariableTypeError, match=r"'a\.0'"):
        template.render({"a": [float("nan")]})


def test_other_open_slots_are_another_program() -> None:
    template = Template.parse("{{question}}", slots={"question": "trusted"})
    for _ in range(2):
        assert [piece.slot for piece in template.render()[0].pieces] == ["question"]
        assert template.render({"question": "q"}, well_known=())[0].text == "q"
        assert template.render({"question": "q"}, well_known=["context"])[0].text == "q"
