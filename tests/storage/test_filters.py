"""Filters select the same documents on both databases as a few lines of Python do, and never become SQL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.documents import Document
from ctxkit.errors import ConfigError
from ctxkit.storage import Store
from tests.storage.making import pieces, shared

NAMES = [
    "a",
    "a.0",
    "b",
    "a.b",
    "b.a",
    "a b",
    'q"uote',
    "ke'y",
    "$",
    "$.a",
    "a[0]",
    "[0]",
    "0",
    "猫",
    "%",
    "a\\b",
    "",
    "x') OR 1=1 --",
    "source_",
    "type",
    "key",
    "value",
]
names = st.sampled_from(NAMES)
scalars = st.sampled_from(
    [
        "",
        "x",
        "X",
        "1",
        "true",
        "null",
        "a'b",
        'a"b',
        "猫",
        "%",
        "*",
        0,
        1,
        -1,
        2**40,
        2**70,
        1.0,
        0.5,
        True,
        False,
        None,
    ]
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=2), max_leaves=5
)
corpora = st.lists(st.dictionaries(names, values, max_size=4), min_size=1, max_size=5)


def same(left: Any, right: Any) -> bool:
    return isinstance(left, bool) == isinstance(right, bool) and left == right


def expected(metadata: Mapping[str, Any], name: str, wanted: Any) -> bool:
    """What the documentation promises, said in Python."""
    readings = [[name]] + ([name.split(".")] if "." in name else [])
    leaves = []
    for path in readings:
        leaf: Any = metadata
        for step in path:
            leaf = leaf.get(step) if isinstance(leaf, dict) else None
        leaves.append(leaf)
    for value in wanted if isinstance(wanted, list) else [wanted]:
        if value is None:
            if all(leaf is None for leaf in leaves):
                return True
        elif any(
            same(leaf, value) or (isinstance(leaf, list) and any(same(item, value) for item in leaf))
            for leaf in leaves
            if leaf is not None
        ):
            return True
    return False


def fill(store: Store, corpus: list[dict[str, Any]]) -> None:
    store.documents.delete([info.id for info in store.documents.list()])
    for number, metadata in enumerate(corpus):
        document = Document(str(number), "some text", source=f"s/{number}", metadata=metadata)
        store.documents.put(document, pieces(document, 5), recipe="r")


def matched(store: Store, filters: Mapping[str, Any]) -> set[str]:
    keys = store.documents.matching_keys(filters)
    assert keys is not None
    assert keys.tolist() == sorted(keys.tolist())
    chunks = store.documents.chunks(keys)
    documents = [chunk.document_id for chunk in chunks.values()]
    assert all(documents.count(id_) == 2 for id_ in documents), "every chunk of a document, once"
    return set(documents)


@shared
@given(corpora, st.dictionaries(names, scalars | st.lists(scalars, max_size=3), min_size=1, max_size=2))
def test_metadata_filters_are_what_python_says(
    store: Store, corpus: list[dict[str, Any]], filters: dict[str, Any]
) -> None:
    fill(store, corpus)
    assert matched(store, filters) == {
        str(number)
        for number, metadata in enumerate(corpus)
        if all(expected(metadata, name, wanted) for name, wanted in filters.items())
    }


def test_no_filters_mean_no_selection(store: Store) -> None:
    assert store.documents.matching_keys({}) is None


SOURCES = [
    "a/b.md",
    "a/b.txt",
    "a/c/d.md",
    "A/b.md",
    "pages/[id].tsx",
    "pages/i.tsx",
    "50%_off",
    "50x_off",
    "a\\b",
    "猫/犬.md",
    "*",
    "a?",
]


@shared
@given(st.text(st.sampled_from("ab/.*?[]%_\\猫Aidmx"), max_size=8) | st.sampled_from(SOURCES))
def test_sources_by_pattern(store: Store, pattern: str) -> None:
    if not store.documents.list():
        for source in SOURCES:
            document = Document(source, "some text", source=source, title=source)
            store.documents.put(document, pieces(document, 5), recipe="r")
    shape = re.compile(
        "".join({"*": "(?s:.*)", "?": "(?s:.)"}.get(character, re.escape(character)) for character in pattern)
    )
    assert matched(store, {"source": pattern}) == {
        source for source in SOURCES if source == pattern or shape.fullmatch(source)
    }
    assert matched(store, {"title": pattern}) == {source for source in SOURCES if source == pattern}
    assert matched(store, {"document_id": [pattern, "*"]}) == {s for s in SOURCES if s in (pattern, "*")}


def test_filters_narrow_each_other(store: Store) -> None:
    fill(store, [{"lang": "en", "year": 2024}, {"lang": "en", "year": 2025}, {"lang": "zh", "year": 2025}])
    assert matched(store, {"lang": "en", "year": 2025}) == {"1"}
    assert matched(store, {"lang": ["en", "zh"], "source": "s/[12]"}) == set()
    assert matched(store, {"lang": ["en", "zh"], "source": ["s/1", "s/2"]}) == {"1", "2"}
    assert matched(store, {"lang": []}) == set()
    assert matched(store, {"source": []}) == set()


MANY = 5_000


def test_thousands_of_values(store: Store) -> None:
    fill(store, [{"n": 4_999, "t": ["x7"], "a": {"b": "x8"}, "on": True}, {"n": 5_000, "t": "y", "on": None}])
    texts = [f"x{number}" for number in range(MANY)]
    for filters, expected_ids in (
        ({"source": [f"s/{number}" for number in range(1, MANY + 1)]}, {"1"}),
        ({"source": [*texts, "s/?", "[*"]}, {"0", "1"}),
        ({"source": [f"{text}*" for text in texts] + ["*/0"]}, {"0"}),
        ({"title": texts}, set()),
        ({"document_id": [*texts, "1"]}, {"1"}),
        ({"n": list(range(MANY))}, {"0"}),
        ({"n": [float(number) for number in range(1, MANY + 1)]}, {"0", "1"}),
        ({"n": texts}, set()),
        ({"t": texts}, {"0"}),
        ({"a.b": texts}, {"0"}),
        ({"on": [*texts, None]}, {"1"}),
        ({"on": [*texts, 1]}, set()),
        ({"on": [*texts, True, False]}, {"0"}),
        ({"t": texts, "n": list(range(MANY)), "source": [f"s/{number}" for number in range(MANY)]}, {"0"}),
    ):
        assert matched(store, filters) == expected_ids, list(filters)


@shared
@given(corpora, names, st.lists(scalars, max_size=3))
def test_many_values_select_what_each_of_them_does(
    store: Store, corpus: list[dict[str, Any]], name: str, wanted: list[Any]
) -> None:
    """Above the limit of the index PostgreSQL answers by another road."""
    fill(store, corpus)
    assert matched(store, {name: wanted}) == matched(store, {name: [*wanted, *(f"none {n}" for n in range(20))]})


INJECTIONS = [
    "x' OR '1'='1",
    'x" OR 1=1 --',
    "a') OR 1=1; DROP TABLE documents; --",
    "$.a'",
    "%s",
    ":name",
    "%(x)s",
    "{}",
    "a.b'.c",
    "\\'",
    'a"].b',
    "?",
    "??",
    "$1",
]


def test_names_and_values_are_never_sql(store: Store) -> None:
    fill(store, [{"a": 1}])
    for text in INJECTIONS:
        for filters in ({text: "x"}, {"a": text}, {text: text}, {"source": text}, {"title": text}, {f"a.{text}": 1}):
            assert matched(store, filters) == set(), filters
        assert matched(store, {text: None}) == {"0"}
    assert len(store.documents.list()) == 1


@pytest.mark.parametrize("wanted", [{"b": 1}, object(), b"x", float("nan"), [[1]], [{"a": 1}], float("inf")])
def test_what_is_not_a_filter(sqlite_url: str, wanted: Any) -> None:
    with Store.open(sqlite_url) as store:
        for name in ("a", "source"):
            with pytest.raises(ConfigError) as caught:
                store.documents.matching_keys({name: wanted})
            assert caught.value.remedy
        with pytest.raises(ConfigError):
            store.documents.matching_keys({"title": 7})
        with pytest.raises(ConfigError):
            store.documents.matching_keys({".".join("abcdefghijklmnopqrst"): 1})
