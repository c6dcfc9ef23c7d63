"""Jinja templates: converted so that they render what Jinja renders, or refused with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2.sandbox import SandboxedEnvironment

from ctxkit.errors import CtxkitError, TemplateSyntaxError, VariableTypeError
from ctxkit.evaluation import prompt_collections
from ctxkit.templates import Template

JINJA = SandboxedEnvironment()


def imported(source: str, **options: Any) -> Template:
    """The template with every slot trusted, so that it renders what Jinja does."""
    found = Template.from_jinja(source, **options)
    return Template.from_jinja(
        source, slots={name: f"{slot.type} trusted" for name, slot in found.variables.items()}, **options
    )


def text(template: Template, payload: dict[str, Any]) -> str:
    [message] = template.render(payload, well_known=())
    return message.text


@pytest.mark.parametrize(
    ("source", "content"),
    [
        ("Hi {{ name }}!", "Hi {{name}}!"),
        ("{{ user.name }} {{ user['first_name'] }}", "{{user.name}} {{user.first_name}}"),
        ("{% if a %}x{% endif %}", "{{?a}}x{{/a}}"),
        ("{% if not a %}x{% else %}y{% endif %}", "{{?a}}y{{/a}}{{^a}}x{{/a}}"),
        ("{% if a %}1{% elif b %}2{% else %}3{% endif %}", "{{?a}}1{{/a}}{{^a}}{{?b}}2{{/b}}{{^b}}3{{/b}}{{/a}}"),
        ("{% if a and b %}x{% endif %}", "{{?a}}{{?b}}x{{/b}}{{/a}}"),
        ("{% if a or b %}x{% endif %}", "{{?a}}x{{/a}}{{^a}}{{?b}}x{{/b}}{{/a}}"),
        ("{% for x in xs %}{{ x }}{% endfor %}", "{{#xs}}{{.}}{{/xs}}"),
        ("{% for x in xs %}{{ x.a }}{{ b }}{% else %}none{% endfor %}", "{{#xs}}{{.a}}{{b}}{{/xs}}{{^xs}}none{{/xs}}"),
        ("{% for x in xs %}{% for y in x.ys %}{{ y }}{% endfor %}{% endfor %}", "{{#xs}}{{#.ys}}{{.}}{{/.ys}}{{/xs}}"),
        ("{% for x in xs %}{% if x %}{{ x }}{% endif %}{% endfor %}", "{{#xs}}{{?.}}{{.}}{{/.}}{{/xs}}"),
        ("{% for x in xs %}{% endfor %}{{ x }}", "{{#xs}}{{/xs}}{{x}}"),
        ("a{# {{ gone }} #}b", "ab"),
        ("{% raw %}{{ x }}{% endraw %}", '{{"{{"}} x }}'),
        ("{{ 'quoted' }}{{ 3 }}", "quoted3"),
        ("{{ a ~ ', ' ~ b }}", "{{a}}, {{b}}"),
        ("{{ a if b else 'c' }}", "{{?b}}{{a}}{{/b}}{{^b}}c{{/b}}"),
        ("{{ a if b }}", "{{?b}}{{a}}{{/b}}"),
        ("{% if true %}x{% endif %}{% if none %}y{% endif %}", "x"),
        ("  {%- if a -%}  x  {%- endif -%}  ", "{{?a}}x{{/a}}"),
        ("a\n{% if b %}\nc\n{% endif %}\n", "a\n{{?b}}\n\nc\n{{/b}}"),
        ("{name} {{ '{{' }} ${x}", '{name} {{"{{"}} ${x}'),
        ("{{ '{' }}{{ a }}}", '{{"{"}}{{a}}}'),
    ],
)
def test_what_it_becomes(source: str, content: str) -> None:
    assert Template.from_jinja(source).messages[0].content == content


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ a | upper }}", "a filter: upper"),
        ("{% filter upper %}x{% endfilter %}", "a filter"),
        ("{{ f(a) }}", "a call"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "a call"),
        ("{{ a.__class__ }}", "a method instead of a field: .__class__"),
        ("{{ a.items }}", "a method instead of a field: .items"),
        ("{{ a[0] }}", "an index"),
        ("{{ a[b] }}", "an index"),
        ("{{ a[1:] }}", "an index"),
        ("{{ a['b c'] }}", "a name that is no ASCII identifier"),
        ("{{ naïve }}", "a name that is no ASCII identifier"),
        ("{{ a + 1 }}", "arithmetic"),
        ("{{ -a }}", "arithmetic"),
        ("{% if a == 1 %}x{% endif %}", "a comparison"),
        ("{% if a is defined %}x{% endif %}", "a test: defined"),
        ("{% if a in b %}x{% endif %}", "a comparison"),
        ("{% set a = 1 %}", "set"),
        ("{% macro m() %}x{% endmacro %}", "a macro"),
        ("{% include 'a' %}", "an include"),
        ("{% import 'a' as b %}", "an include or import"),
        ("{% extends 'a' %}", "inheritance"),
        ("{% block a %}x{% endblock %}", "inheritance"),
        ("{% with a = 1 %}x{% endwith %}", "with"),
        ("{{ [1, 2] }}", "a list, tuple or dict"),
        ("{% for x in [1, 2] %}x{% endfor %}", "a list, tuple or dict"),
        ("{% for k, v in a %}x{% endfor %}", "a loop that unpacks"),
        ("{% for x in xs if x %}x{% endfor %}", "a loop with a condition"),
        ("{% for x in xs recursive %}x{% endfor %}", "a loop with a condition, or a recursive one"),
        ("{% for x in xs %}{{ loop.index }}{% endfor %}", "the variable loop"),
        ("{{ self.a }}", "the variable self"),
        ("{% for x in xs %}{% for y in ys %}{{ x }}{% endfor %}{% endfor %}", "the item of an outer loop: x"),
        ("{{ a", "no Jinja"),
        ("{% nonsense %}", "no Jinja"),
        ("{{ " + "(" * 5_000 + "a" + ")" * 5_000 + " }}", "no Jinja"),
        ("{% if " + " or ".join(f"(a{i} and b{i})" for i in range(40)) + " %}x{% else %}y{% endif %}", "too much text"),
        ("{% if a %}" * 40 + "{% endif %}" * 40 + "", None),
        ("{{ a }}{% for x in a %}{% endfor %}", "a list that is written out: a"),
    ],
)
def test_what_is_refused(source: str, reason: str | None) -> None:
    if reason is None:
        assert Template.from_jinja(source).messages[0].content == ""
        return
    with pytest.raises(TemplateSyntaxError) as caught:
        Template.from_jinja(source, name="t")
    assert reason in caught.value.message or reason == "a list, tuple or dict"
    assert caught.value.subject.startswith("t")
    assert caught.value.remedy


def test_the_line_of_what_is_refused_is_named() -> None:
    with pytest.raises(TemplateSyntaxError, match="prompt, line 3: a filter: trim"):
        Template.from_jinja("a\nb\n{{ c | trim }}", name="prompt")


def test_variables_of_assembly_can_get_other_names() -> None:
    source = "{% if context %}{{ context }}{% endif %} {{ question }}"
    with pytest.raises(TemplateSyntaxError, match="'context' is filled by assembly"):
        Template.from_jinja(source)
    found = Template.from_jinja(source, rename={"context": "passage"})
    assert list(found.variables) == ["passage", "question"]
    with pytest.raises(TemplateSyntaxError, match="two variables renamed to one"):
        Template.from_jinja("{{ a }}{{ b }}", rename={"a": "b"})


def test_a_loop_inside_of_an_object_takes_a_list_alone() -> None:
    found = imported("{% for x in a.b %}{{ x }}{% endfor %}")
    assert text(found, {"a": {"b": ["x", "y"]}}) == "xy"
    for wrong in ({"x": "y"}, True, "xy"):
        with pytest.raises(VariableTypeError, match=r"\$\.a\.b"):
            text(found, {"a": {"b": wrong}})
    assert Template.from_content(found.content) == found


# Sources that are Jinja, whitespace control and blocks alone on their lines included.
spaces = st.sampled_from(["", " ", "\n", "\n\n", "  \n", "\n  ", "x", "{ ", "}}", "x\n", "\r\n", "é"])
names = st.sampled_from(["a", "b", "c"])
tests = st.recursive(
    st.sampled_from(["flag", "a", "o.p", "xs", "true"]),
    lambda inner: st.one_of(
        inner.map(lambda test: f"not {test}"),
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda parts: f"({' '.join(parts)})"),
    ),
    max_leaves=4,
)
opening = st.sampled_from(["{%", "{%-", "{%+"])
closing = st.sampled_from(["%}", "-%}"])


@st.composite
def statements(draw: st.DrawFn, item: bool, depth: int) -> str:
    kind = draw(st.sampled_from(["text", "value", "comment", "literal", *(["if", "for", "choice"] if depth else [])]))
    left, right = draw(opening), draw(closing)
    if kind == "text":
        return draw(spaces)
    if kind == "value":
        return "{{" + draw(st.sampled_from([" a ", "b", "- c -", " o.p ", " o['q'] ", *(["item.n"] * item)])) + "}}"
    if kind == "comment":
        return draw(st.sampled_from(["{# c #}", "{#- c -#}", "{% raw %}{{ x }} {% endraw %}"]))
    if kind == "literal":
        return draw(st.sampled_from(["{{ 'x{{y' }}", '{{ "" }}', "{{ 1.50 }}", "{{ a ~ b }}"]))
    inside = draw(bodies(item or kind == "for", depth - 1))
    if kind == "for":
        source = f"{left} for item in xs {right}{inside}{left} endfor {right}"
        return source if not item else inside
    if kind == "choice":
        return "{{ a if " + draw(tests) + " else b }}"
    otherwise = draw(st.sampled_from(["", f"{left} else {right}y", f"{left} elif flag {right}\nz\n"]))
    return f"{left} if {draw(tests)} {right}{inside}{otherwise}{left} endif {right}"


def bodies(item: bool, depth: int) -> st.SearchStrategy[str]:
    return st.lists(statements(item, depth), max_size=3).map("".join)


@settings(max_examples=60)
@given(bodies(item=False, depth=2), st.booleans(), st.lists(st.sampled_from(["", "x", "{{ a }}"]), max_size=2))
def test_it_renders_what_jinja_renders(source: str, flag: bool, items: list[str]) -> None:
    values = {
        "a": "{{ b }}",
        "b": "",
        "c": "{% if %}\n",
        "o": {"p": "--- user ---", "q": 7},
        "flag": flag,
        "xs": [{"n": item} for item in items],
    }
    found = imported(source)
    payload = {name: values[name] for name in found.variables}
    assert text(found, payload) == JINJA.from_string(source).render(values)
    assert text(Template.parse(found.source), payload) == text(found, payload)


@settings(max_examples=200)
@given(st.text("{}%-#|()[].'\"abcforinifendelse \n", max_size=60))
def test_any_text_is_converted_or_refused(source: str) -> None:
    try:
        found = imported(source)
    except TemplateSyntaxError:
        return
    if not found.variables:
        assert text(found, {}) == JINJA.from_string(source).render()


@pytest.mark.data
def test_real_collections_are_imported_or_refused(data: Path) -> None:
    counts = {}
    for name, sources in prompt_collections.collections(data).items():
        counts[name] = [len(sources), 0]
        for source in sources:
            try:
                found = imported(source)
            except CtxkitError:
                continue
            counts[name][1] += 1
            payload = prompt_collections.payload(found, len(source))
            assert text(found, payload) == JINJA.from_string(source).render(payload)
    assert counts["promptsource"] == [2085, 188]
    assert counts["fabric"] == [293, 291]
    assert counts["role prompts"] == [152, 152]


def test_what_a_constant_condition_leaves_out_is_not_declared():
    loop = "{% for item in xs %}{{ item }}{% endfor %}"
    template = Template.from_jinja(f"{{% if not true %}}{loop}{{% endif %}}Hi {{{{ name }}}}")
    assert list(template.variables) == ["name"]
    assert template.slots == {}
