"""Includes: pinned and frozen when a template is parsed, part of its content and hash, never resolved again."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxkit.documents import content_hash
from ctxkit.errors import MissingVariableError, TemplateError, TemplateSyntaxError, VariableTypeError
from ctxkit.templates import Include, Template
from tests.strategies import stored_texts


class Library:
    """Templates by reference, and what was asked for."""

    def __init__(self, **sources: str) -> None:
        self.asked: list[str] = []
        self.templates: dict[str, Template] = {}
        for name, source in sources.items():
            self.add(f"{name}@1", source)

    def add(self, reference: str, source: str) -> None:
        name, _, version = reference.partition("@")
        number = int(version) if version.isdigit() else 0
        self.templates[reference] = Template.parse(source, name=name, version=number, includes=self)

    def __call__(self, written: str) -> Template:
        self.asked.append(written)
        return self.templates[written]


def test_an_include_is_pinned_by_version_and_hash() -> None:
    library = Library(rules="Be brief.")
    library.templates["rules@production"] = library.templates["rules@1"]
    template = Template.parse("{{> rules@production}} Go. {{> rules@production}}", name="answer", includes=library)
    rules = library.templates["rules@1"]
    assert template.includes == (Include("rules@1", rules.hash),)
    assert library.asked == ["rules@production"]
    assert template.content["includes"] == {
        "rules@production": {"reference": "rules@1", "hash": rules.hash, "content": rules.content}
    }
    assert template.hash == content_hash(template.content)
    assert rules.hash == content_hash(rules.content)
    assert template.messages[0].content == "{{> rules@production}} Go. {{> rules@production}}"


def test_a_label_that_moves_changes_nothing_that_is_frozen() -> None:
    library = Library(rules="Be brief.")
    library.templates["rules@production"] = library.templates["rules@1"]
    before = Template.parse("{{> rules@production}}", includes=library)
    library.add("rules@2", "Be long.")
    library.templates["rules@production"] = library.templates["rules@2"]
    after = Template.parse("{{> rules@production}}", includes=library)
    stored = Template.from_content(before.content)
    assert [message.text for message in stored.render()] == ["Be brief."]
    assert [message.text for message in after.render()] == ["Be long."]
    assert stored == before
    assert before.hash != after.hash


def test_the_hash_covers_what_includes_include() -> None:
    def outer(inner: str) -> Template:
        return Template.parse("{{> a@1}}", includes=Library(b=inner, a="{{> b@1}}"))

    assert outer("x").hash == outer("x").hash
    assert outer("x").hash != outer("y").hash
    assert [message.text for message in Template.from_content(outer("x").content).render()] == ["x"]


def test_a_template_without_a_version_is_pinned_by_its_hash() -> None:
    part = Template.parse("x")
    template = Template.parse("{{> part}}", includes=lambda _: part)
    assert template.includes == (Include(f"part@sha256:{part.hash[:16]}", part.hash),)
    assert Template.from_content(template.content) == template


def test_content_that_was_changed_is_refused() -> None:
    template = Template.parse("{{> a@1}}", includes=Library(a="x"))
    for change in (
        lambda entry: entry["content"]["messages"][0].update(content="forged"),
        lambda entry: entry.update(hash="0" * 64),
        lambda entry: entry.pop("content"),
    ):
        content = copy.deepcopy(template.content)
        change(content["includes"]["a@1"])
        with pytest.raises(TemplateError, match="a@1") as caught:
            Template.from_content(content)
        assert caught.value.remedy
    content = copy.deepcopy(template.content)
    content["includes"] = {}
    with pytest.raises(TemplateError, match="a@1"):
        Template.from_content(content)


@pytest.mark.parametrize("source", ["{{> answer@1}}", "{{> a@1}}", "{{> b@1}}"])
def test_a_template_cannot_include_itself_at_any_depth(source: str) -> None:
    library = Library(answer="x", a="{{> answer@1}}", b="{{> a@1}}")
    with pytest.raises(TemplateSyntaxError, match="include itself") as caught:
        Template.parse(f"one\n {source}", name="answer", includes=library)
    assert caught.value.subject == "answer 2:2"


def test_files_that_include_each_other_end() -> None:
    sources = {"a": "{{> b}}", "b": "{{> c}}", "c": "{{> a}}"}

    def resolve(written: str) -> Template:
        return Template.parse(sources[written], name=written, includes=resolve)

    with pytest.raises(TemplateSyntaxError, match="b > c > a > b"):
        resolve("a")
    sources["c"] = "end"
    assert [message.text for message in resolve("a").render()] == ["end"]


def test_depth_is_bounded_in_stored_templates_too() -> None:
    library = Library(t0="x")
    for number in range(1, 8):
        library.add(f"t{number}@1", f"{{{{> t{number - 1}@1}}}}")
    assert [message.text for message in Template.parse("{{> t7@1}}", includes=library).render()] == ["x"]
    library.add("t8@1", "{{> t7@1}}")
    with pytest.raises(TemplateSyntaxError, match="deeper than 8"):
        Template.parse("{{> t8@1}}", includes=library)


def test_what_is_stored_is_bounded() -> None:
    """Empty templates too: each reference keeps its own copy of what it names, and levels multiply."""
    library = Library(a="")
    for number in range(20):
        library.templates[f"a@l{number}"] = library.templates["a@1"]
    library.add("b@1", "".join(f"{{{{> a@l{number}}}}}" for number in range(20)))
    for number in range(20):
        library.templates[f"b@l{number}"] = library.templates["b@1"]
    fits = "".join(f"{{{{> b@l{number}}}}}" for number in range(12))
    assert len(Template.parse(fits, includes=library).includes) == 12
    with pytest.raises(TemplateSyntaxError, match="more than 256 templates"):
        Template.parse(fits + "{{> b@l12}}", includes=library)
    library.add("c@1", "{{! " + "x" * 600_000 + " }}")
    library.templates["c@2"] = library.templates["c@1"]
    with pytest.raises(TemplateSyntaxError, match="1,000,000 characters"):
        Template.parse("{{> c@1}}{{> c@2}}", includes=library)


def test_what_an_include_declares_holds_everywhere() -> None:
    library = Library(a="---\nslots:\n  tone: trusted string\n---\n{{tone}}")
    assert [m.text for m in Template.parse("{{> a@1}}, {{tone}}", includes=library).render({"tone": "x"})] == ["x, x"]
    with pytest.raises(TemplateSyntaxError, match="'tone' is untrusted string here and trusted string in 'a@1'"):
        Template.parse("{{> a@1}}", includes=library, slots={"tone": "untrusted"})
    with pytest.raises(TemplateSyntaxError, match="'tone' is declared as string and used as a section"):
        Template.parse("{{> a@1}}{{#tone}}{{/tone}}", includes=library)


def test_the_schema_of_an_include_sees_its_own_variables() -> None:
    inner = Template.parse(
        "{{n}}", slots={"n": "integer"}, schema={"properties": {"n": {"minimum": 3}}, "maxProperties": 1}
    )
    template = Template.parse("{{> inner@1}} {{other}}", slots={"other": "trusted"}, includes=lambda _: inner)
    assert [message.text for message in template.render({"n": 3, "other": "x"})] == ["3 x"]
    for again in (template, Template.from_content(template.content)):
        with pytest.raises(VariableTypeError, match=r"\$\.n"):
            again.render({"n": 2, "other": "x"})


def test_it_is_missing_where_the_payload_has_it_not() -> None:
    template = Template.parse("{{> a@1}}", includes=Library(a="{{name}}"))
    assert list(template.variables) == ["name"]
    with pytest.raises(MissingVariableError, match="'name'"):
        template.render({})


def test_what_the_resolver_raises_comes_through() -> None:
    def resolve(written: str) -> Template:
        raise TemplateError("not here", subject=written)

    with pytest.raises(TemplateError, match="a@1: not here"):
        Template.parse("{{> a@1}}", includes=resolve)
    assert [message.text for message in Template.parse("x", includes=resolve).render()] == ["x"]


@pytest.mark.parametrize("again", [lambda t: pickle.loads(pickle.dumps(t)), copy.deepcopy, copy.copy])
def test_templates_travel(again: Callable[[Any], Any]) -> None:
    template = Template.parse("{{> a@1}}", name="n", version=3, includes=Library(a="{{name}}"))
    template.render({"name": "x"})
    other = again(template)
    assert other == template
    assert other.reference == "n@3"
    assert other.render({"name": "x"}) == template.render({"name": "x"})


@settings(max_examples=100)
@given(stored_texts, stored_texts, stored_texts)
def test_an_include_is_as_good_as_its_text(before: str, inside: str, after: str) -> None:
    """Where the text is plain: a tag inside of it is compiled alone."""
    plain = [text.replace("{", "(") for text in (before, inside, after)]
    part = Template.parse([{"role": "user", "content": plain[1]}])
    template = Template.parse(
        [{"role": "user", "content": plain[0] + "{{> part@1}}" + plain[2]}], includes=lambda _: part
    )
    assert [message.text for message in template.render()] == ["".join(plain)]


@settings(max_examples=200)
@given(st.text("{}> @ab1\n", max_size=30))
def test_any_tag_is_an_include_or_refused(text: str) -> None:
    refused = False
    try:
        template = Template.parse([{"role": "user", "content": text}], includes=lambda _: Template.parse("x"))
    except TemplateSyntaxError:
        refused = True
    assert refused or all(include.written for include in template.includes)
