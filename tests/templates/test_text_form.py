"""The file form of a template: head, role lines, and a round trip that loses nothing."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.errors import TemplateSyntaxError
from ctxkit.templates import Slot, Template
from ctxkit.templates.front_matter import read_front_matter, write_front_matter
from ctxkit.templates.text_form import SourceMessage, read_text_form, write_text_form
from tests.strategies import stored_texts, texts

FILE = """\
---
# a comment
name: support
description: Answers from the handbook.
slots:
  tone: trusted string
  user: {"type": "object", "trust": "untrusted"}
  count:
    type: integer
    description: How many
model:
  temperature: 0.2
  stop: ["###"]
---

--- system ---
Answer {{count}} times in a {{tone}} tone.

--- history ---

--- user ---
{{user.name}} asks:
{{question}}
"""


def messages_of(text: str) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in Template.parse(text).messages]


def test_a_whole_file() -> None:
    template = Template.parse(FILE)
    assert template.name == "support"
    assert template.description == "Answers from the handbook."
    assert template.slots == {
        "tone": Slot("string", "trusted"),
        "user": Slot("object"),
        "count": Slot("integer", description="How many"),
    }
    assert template.model == {"temperature": 0.2, "stop": ["###"]}
    assert messages_of(FILE) == [
        ("system", "Answer {{count}} times in a {{tone}} tone."),
        ("history", ""),
        ("user", "{{user.name}} asks:\n{{question}}"),
    ]
    assert Template.parse(template.source) == template


def test_a_file_from_windows_is_the_same_template() -> None:
    assert Template.parse(FILE.replace("\n", "\r\n")) == Template.parse(FILE)
    assert Template.parse("\ufeff" + FILE) == Template.parse(FILE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--- user ---\nx", [("user", "x")]),
        ("--- user ---\nx\n", [("user", "x")]),
        ("--- user ---\nx\n\n", [("user", "x\n")]),
        ("\n\n--- user ---\n", [("user", "")]),
        ("---user---\nx", [("user", "x")]),
        ("--- user ---\nx\n--- assistant ---\ny", [("user", "x"), ("assistant", "y")]),
        ("--- user ---\nx\n\n--- assistant ---\ny", [("user", "x"), ("assistant", "y")]),
        ("--- user ---\nx\n\n\n--- assistant ---\ny", [("user", "x\n"), ("assistant", "y")]),
        ("--- user ---\n\\--- system ---\nx", [("user", "--- system ---\nx")]),
        ("--- user ---\n\\\\--- system ---", [("user", "\\--- system ---")]),
        ("\\--- system ---\nx", [("user", "--- system ---\nx")]),
        ("a --- system ---\n---- user ----\n--- x y ---", [("user", "a --- system ---\n---- user ----\n--- x y ---")]),
        ("---\nname: n\n---\nbody\n", [("user", "body")]),
    ],
)
def test_where_messages_begin(text: str, expected: list[tuple[str, str]]) -> None:
    assert messages_of(text) == expected


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("--- sytem ---\nx", "1:1"),
        ("--- user ---\nx\n--- tool ---\n", "3:1"),
        ("hello\n--- user ---\nx", "1:1"),
        ("---\nname: n\nbody", "1:1"),
        ("---\nname: n\nname: m\n---\nx", "3:1"),
        ("---\nslots:\n  - a\n---\nx", "3:1"),
        ("---\nname: 'n'\n---\nx", "2:1"),
        ("---\nname: [1,\n---\nx", "2:1"),
        ('---\nmodel: {"a": 1, "a": 2}\n---\nx', "2:1"),
        ("---\nmodel: {a: 1}\n---\nx", "2:1"),
        ("---\nmodel:\n  t: .nan\n---\nx", "3:1"),
        ("---\ndescription: a: b\n---\nx", "2:1"),
        ("---\ndescription: a #b\n---\nx", "2:1"),
        ("---\ndescription: yes\n---\nx", "2:1"),
        ("---\nslots:\n    a: string\n  b: string\n---\nx", "4:1"),
        ("---\nnaem: n\n---\nx", "1:1"),
        ("---\nname: 3\n---\nx", "1:1"),
        ("---\nslots: 3\n---\nx", "1:1"),
        ("---\nmodel: {}\n---\n\n--- user ---\na\nb {{", "7:3"),
    ],
)
def test_what_is_refused_and_where(text: str, place: str) -> None:
    with pytest.raises(TemplateSyntaxError) as caught:
        Template.parse(text)
    assert caught.value.subject == f"template {place}"
    assert caught.value.remedy


def test_a_file_is_pushed_under_the_name_it_has() -> None:
    with pytest.raises(TemplateSyntaxError, match="support"):
        Template.parse(FILE, name="other")
    assert Template.parse(FILE, name="support").name == "support"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["system", "user", "assistant"]),
            st.one_of(
                texts, st.sampled_from(["--- system ---", "\\\\--- user ---", "---\nname: x\n---", "\n", "\r\n"])
            ),
        ),
        min_size=1,
        max_size=5,
    ),
    st.dictionaries(st.sampled_from(["name", "description", "model"]), stored_texts),
)
def test_any_messages_read_back(messages: list[tuple[str, str]], head: dict[str, str]) -> None:
    written = write_text_form(head, [SourceMessage(role, content) for role, content in messages])
    found_head, found = read_text_form(written, where="t")
    assert [(message.role, message.content) for message in found] == messages
    assert found_head == head
    lines = written.split("\n")
    for message in found:
        assert lines[message.line - 2] == f"--- {message.role} ---"


json_values: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
).map(lambda value: _storable(value))


def _storable(value: Any) -> Any:
    """Without NUL and lone surrogates, which heads refuse as stores do."""
    if isinstance(value, str):
        return value.replace("\x00", "").encode("utf-8", "ignore").decode()
    if isinstance(value, list):
        return [_storable(item) for item in value]
    if isinstance(value, dict):
        return {_storable(key): _storable(item) for key, item in value.items()}
    return value


@given(st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_-]{0,8}", fullmatch=True), json_values, max_size=4))
def test_any_head_reads_back(head: dict[str, Any]) -> None:
    written = write_front_matter(head)
    assert read_front_matter(written.split("\n"), where="t", first_line=1) == head


@pytest.mark.parametrize(
    "text",
    [
        "name: support\ndescription: Answers from the handbook, briefly (v2).",
        "slots:\n  tone: trusted string\n  n:\n    type: integer\nmodel:\n  temperature: 0.2",
        'a: "quoted: text"\nb: [1, "x", null, true]\nc: {"k": {"l": -2.5}}',
        "# comment\n\na: plain text with 'quotes' inside\nb: null\nc: false",
    ],
)
def test_a_head_means_what_yaml_says_it_means(text: str) -> None:
    assert read_front_matter(text.split("\n"), where="t", first_line=1) == yaml.safe_load(text)
