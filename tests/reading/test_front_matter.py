"""Front matter: what it makes of a value, what it leaves as text, and no block that takes long."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ctxkit.reading import read_bytes
from ctxkit.storage import Store
from tests.timing import at_most


def test_front_matter_becomes_metadata_title_and_time() -> None:
    text = """---
title: "Key: rotation"   # quoted
date: 2024-05-01
tags: [ops, 'on call']
authors:
  - Ada
  - Grace
draft: false
weight: 3
version: 1.10.2
ratio: .5
phone: 0049
summary: >
  two
  lines
url: https://example.org/#x
nested:
  a: 1
---

# Heading

body
"""
    document = read_bytes(text.encode(), source="a.md")
    metadata = document.metadata
    assert document.title == "Key: rotation"
    assert document.created_at == datetime(2024, 5, 1, tzinfo=UTC)
    assert document.text == text
    assert metadata["tags"] == ["ops", "on call"]
    assert metadata["authors"] == ["Ada", "Grace"]
    assert (metadata["draft"], metadata["weight"], metadata["ratio"]) == (False, 3, 0.5)
    assert (metadata["version"], metadata["phone"]) == ("1.10.2", "0049")
    assert metadata["summary"] == "two lines"
    assert metadata["url"] == "https://example.org/#x"
    assert metadata["nested"] == "a: 1"
    assert metadata["format"] == "markdown"


@pytest.mark.parametrize(
    "text",
    [
        "---\n\nA rule, then prose.\n\n---\n",
        "---\ntitle: never closed\n",
        "text\n---\ntitle: not at the top\n---\n",
        "---\n- a list\n---\n",
    ],
)
def test_what_only_looks_like_front_matter_is_text(text: str) -> None:
    document = read_bytes(text.encode(), source="a.md")
    assert "title" not in document.metadata
    assert document.text == text


def test_a_date_that_cannot_be_read_is_left_alone() -> None:
    document = read_bytes(b"---\ndate: next Tuesday\n---\nx", source="a.md")
    assert document.created_at is None
    assert document.metadata["date"] == "next Tuesday"


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("7e12345", "7e12345"),
        ("1234e56", "1234e56"),
        ("1e999", "1e999"),
        ("-1.0e+999", "-1.0e+999"),
        ("nan", "nan"),
        (".nan", ".nan"),
        ("-inf", "-inf"),
        ("-.inf", "-.inf"),
        ("Infinity", "Infinity"),
        ("1.5e3", 1500.0),
        ("2e+3", 2000.0),
        ("[7e12345, 1, x]", ["7e12345", 1, "x"]),
        ("""["a, b", 'it''s', c d,]""", ["a, b", "it's", "c d"]),
        ("[it's, b]", ["it's", "b"]),
        ("[]", []),
        ("[[1, 2], 3]", "[[1, 2], 3]"),
        ("[{a: 1}]", "[{a: 1}]"),
        ('["open, 1]', '["open, 1]'),
    ],
)
def test_what_front_matter_makes_of_a_value(written: str, value: object, store: Store) -> None:
    document = read_bytes(f"---\nx: {written}\n---\nbody".encode(), source="a.md")
    assert document.metadata["x"] == value
    assert type(document.metadata["x"]) is type(value)
    store.documents.put(document, [], recipe="r")
    assert store.documents.get(document.id).metadata["x"] == value


@pytest.mark.parametrize(
    "line",
    ["a: " + "[" * 20_000, "a: " + "[" * 20_000 + "]" * 20_000, "a" + " " * 60_000 + "b", "a: " + "'\"" * 30_000,
     "a: [" + "' " * 30_000 + "]", "a: [" + " " * 60_000 + "x", "a: [" + "b " * 30_000 + "]", "a:" + " #" * 30_000,
     '"' * 60_000, "a: [" + '"\\' * 30_000 + "]"],
    ids=range(10),
)  # fmt: skip
def test_hostile_front_matter_is_read_at_once(line: str) -> None:
    with at_most(1):
        document = read_bytes(f"---\n{line}\n---\nbody".encode(), source="a.md")
    assert line in document.text
