"""What no database holds is refused with its place and a remedy, before anything is written."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.documents import Chunk, Document, Entity, Span, content_hash
from ctxkit.errors import ConfigError, StorageError
from ctxkit.messages import Message, Part, ToolCall
from ctxkit.storage import Store, parse_json
from ctxkit.storage.checks import checked_name, checked_text, decoded, encoded
from tests.storage.making import document, pieces, shared, unit_vectors
from tests.strategies import texts

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=10),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=5), inner, max_size=4
        )
    ),
    max_leaves=12,
)


class TestText:
    @given(texts)
    def test_either_it_is_utf_8_without_nul_or_its_place_is_named(self, text: str) -> None:
        storable = "\x00" not in text
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            storable = False
        if storable:
            assert checked_text(text, "it") is text
        else:
            with pytest.raises(StorageError, match=r"position [\d,]+") as caught:
                checked_text(text, "it")
            position = int(str(caught.value).split("position ")[1].split(".")[0].replace(",", ""))
            assert text[position] == "\x00" or 0xD800 <= ord(text[position]) <= 0xDFFF
            assert caught.value.remedy
            str(caught.value).encode("utf-8")

    def test_a_name_has_a_size(self) -> None:
        assert checked_name("x" * 512, "it") == "x" * 512
        for bad in ("", "x" * 513, "猫" * 171):
            with pytest.raises(StorageError):
                checked_name(bad, "it")


class TestJson:
    @given(json_values)
    def test_a_json_value_comes_back_exactly(self, value: Any) -> None:
        back = decoded(encoded(value, "it"))
        assert json.dumps(back) == json.dumps(value)

    def test_mappings_and_tuples_are_objects_and_lists(self) -> None:
        assert encoded(MappingProxyType({"a": (1, 2)}), "it") == '{"a":[1,2]}'

    @pytest.mark.parametrize(
        ("value", "place"),
        [
            ({"a": [1, math.nan]}, "$.a[1]"),
            ({"a": math.inf}, "$.a"),
            ({"a": {"b": "x\x00"}}, "$.a.b"),
            ({"a b": "\udfff"}, "$['a b']"),
            ({"a": {"x\x00": 1}}, "$.a"),
            ({1: "a", "1": "b"}, "$"),
            ({None: 1}, "$"),
            ({"a": {1, 2}}, "$.a"),
            ({"a": b"x"}, "$.a"),
            ({"a": datetime(2026, 1, 1, tzinfo=UTC)}, "$.a"),
            ({"a": np.int64(1)}, "$.a"),
            ({"a": 10**5000}, "$.a"),
            ({"a": object()}, "$.a"),
        ],
    )
    def test_what_is_not_json_is_named_by_its_path(self, value: Any, place: str) -> None:
        with pytest.raises(StorageError) as caught:
            encoded(value, "it")
        assert place in str(caught.value)
        assert caught.value.remedy

    def test_endless_nesting(self) -> None:
        endless: dict[str, Any] = {}
        endless["self"] = endless
        with pytest.raises(StorageError, match="nested"):
            encoded(endless, "it")

    def test_a_text_enum_is_its_text(self) -> None:
        class Colour(enum.StrEnum):
            RED = "red"

        assert decoded(encoded({"a": Colour.RED}, "it")) == {"a": "red"}


class TestParsing:
    @given(json_values)
    def test_json_from_outside(self, value: Any) -> None:
        assert json.dumps(parse_json(json.dumps(value))) == json.dumps(value)

    @pytest.mark.parametrize(
        "text",
        [
            '{"a": 1, "a": 2}',
            '{"x": [{"a": 1, "b": 2, "a": 1}]}',
            '{"a": NaN}',
            "[Infinity]",
            "-Infinity",
            "1e999",
            '"\\u0000"',
            '"\\ud800"',
            '{"\\u0000": 1}',
            "",
            "{",
            "{'a': 1}",
            "[" * 100_000,
            "9" * 5000,
            b"\xff\xfe\xfa",
        ],
        ids=lambda text: repr(text)[:20],
    )
    def test_what_readers_disagree_on_is_refused(self, text: str | bytes) -> None:
        with pytest.raises(StorageError) as caught:
            parse_json(text)
        assert caught.value.remedy


BAD = "bad \x00 text"
GOOD = document()


def with_entity(entity: Entity) -> Callable[[Store], Any]:
    chunk = dataclasses.replace(pieces(GOOD)[0], entities=(entity,))
    return lambda store: store.documents.put(GOOD, [chunk], recipe="r")


WRITES: dict[str, Callable[[Store], Any]] = {
    "text": lambda store: store.documents.put(document(BAD), [], recipe="r"),
    "surrogate": lambda store: store.documents.put(document("x\ud800"), [], recipe="r"),
    "title": lambda store: store.documents.put(document(title=BAD), [], recipe="r"),
    "source": lambda store: store.documents.put(document(source=BAD), [], recipe="r"),
    "id": lambda store: store.documents.put(Document(BAD, "x"), [], recipe="r"),
    "long id": lambda store: store.documents.put(Document("x" * 513, "x"), [], recipe="r"),
    "recipe": lambda store: store.documents.put(GOOD, [], recipe=BAD),
    "metadata": lambda store: store.documents.put(document(metadata={"a": math.nan}), [], recipe="r"),
    "key of the metadata": lambda store: store.documents.put(document(metadata={"a": {BAD: 1}}), [], recipe="r"),
    "heading": lambda store: store.documents.put(
        GOOD, [dataclasses.replace(pieces(GOOD)[0], heading_path=(BAD,))], recipe="r"
    ),
    "chunk's metadata": lambda store: store.documents.put(
        GOOD, [*pieces(GOOD), dataclasses.replace(pieces(GOOD)[0], metadata={"a": BAD})], recipe="r"
    ),
    "chunk's number": lambda store: store.documents.put(
        GOOD, [*pieces(GOOD), dataclasses.replace(pieces(GOOD)[0], token_count=2**70)], recipe="r"
    ),
    "another document's chunk": lambda store: store.documents.put(
        GOOD, [*pieces(GOOD), *pieces(document("other", source="x"))], recipe="r"
    ),
    "a chunk of another text": lambda store: store.documents.put(
        GOOD, [*pieces(GOOD), Chunk("c", GOOD.id, Span(0, 3), "xyz", 1)], recipe="r"
    ),
    "entity": with_entity(Entity(BAD, "X", Span(0, 1))),
    "entity's label": with_entity(Entity("x", BAD, Span(0, 1))),
    "vectors without a fingerprint": lambda store: store.documents.put(
        GOOD, pieces(GOOD), recipe="r", vectors=unit_vectors(3)
    ),
    "a fingerprint without vectors": lambda store: store.documents.put(GOOD, pieces(GOOD), recipe="r", fingerprint="f"),
    "too few vectors": lambda store: store.documents.put(
        GOOD, pieces(GOOD), recipe="r", fingerprint="f", vectors=unit_vectors(1)
    ),
    "NaN in a vector": lambda store: store.documents.put(
        GOOD, pieces(GOOD), recipe="r", fingerprint="f", vectors=unit_vectors(3) * np.float32("nan")
    ),
    "message": lambda store: store.sessions.append("s", [Message("user", "fine"), Message("user", BAD)]),
    "part": lambda store: store.sessions.append("s", [Message("user", (Part("image", data={"url": BAD}),))]),
    "tool call": lambda store: store.sessions.append("s", [Message("assistant", "", (ToolCall("c", "f", "\udc00"),))]),
    "message's name": lambda store: store.sessions.append("s", [Message("user", "x", name=BAD)]),
    "message's id": lambda store: store.sessions.append("s", [Message("user", "x", id=BAD)]),
    "session": lambda store: store.sessions.append(BAD, [Message("user", "x")]),
    "empty session": lambda store: store.sessions.append("", [Message("user", "x")]),
    "template": lambda store: store.templates.push("t", {"text": BAD}),
    "template's name": lambda store: store.templates.push(BAD, {"text": "x"}),
    "template's message": lambda store: store.templates.push("t", {"text": "x"}, message=BAD),
    "payload": lambda store: store.payloads.put("k", {"a": [BAD]}),
    "payload's NaN": lambda store: store.payloads.put("k", {"a": math.inf}),
    "payload's key": lambda store: store.payloads.put(BAD, {}),
}


def everything(store: Store) -> dict[str, Any]:
    return {name: value for name, value in store.statistics().items() if name != "bytes"}


def refusal(what: str, work: Callable[[], Any]) -> StorageError:
    try:
        work()
    except StorageError as error:
        return error
    raise AssertionError(f"{what} was not refused")


def test_nothing_is_written_of_what_is_refused(store: Store) -> None:
    before = everything(store)
    for what, write in WRITES.items():
        error = refusal(what, lambda write=write: write(store))  # type: ignore[misc]
        assert error.remedy, what
        str(error).encode("utf-8")
        assert everything(store) == before, what
    assert store.check() == []


READS: dict[str, Callable[[Store, str], Any]] = {
    "states": lambda store, bad: store.documents.states([bad]),
    "get": lambda store, bad: store.documents.get(bad),
    "list": lambda store, bad: store.documents.list(bad),
    "delete": lambda store, bad: store.documents.delete([bad]),
    "filter": lambda store, bad: store.documents.matching_keys({"a": bad}),
    "filter's name": lambda store, bad: store.documents.matching_keys({bad: "a"}),
    "source": lambda store, bad: store.documents.matching_keys({"source": bad}),
    "vectors": lambda store, bad: store.documents.vectors(bad),
    "messages": lambda store, bad: store.sessions.messages(bad),
    "delete session": lambda store, bad: store.sessions.delete(bad),
    "template": lambda store, bad: store.templates.get(bad),
    "template's hash": lambda store, bad: store.templates.get("t", hash=bad),
    "template's label": lambda store, bad: store.templates.get("t", label=bad),
    "versions": lambda store, bad: store.templates.versions(bad),
    "label": lambda store, bad: store.templates.label("t", bad, 1),
    "label of": lambda store, bad: store.templates.label(bad, "x", 1),
    "history": lambda store, bad: store.templates.label_history(bad, bad),
    "payload": lambda store, bad: store.payloads.get(bad),
    "payload's hash": lambda store, bad: store.payloads.get(hash=bad),
    "numbers too wide": lambda store, bad: store.documents.chunks([2**70]) or checked_text(bad, "it"),
    "version too wide": lambda store, bad: store.templates.get("t", 2**70),
}


@pytest.mark.parametrize("bad", ["\x00", "\ud800"])
def test_asking_for_what_cannot_be_there_is_an_error_of_ours(store: Store, bad: str) -> None:
    for what, read in READS.items():
        assert refusal(what, lambda read=read: read(store, bad)).remedy, what  # type: ignore[misc]


@given(text=texts, metadata=st.dictionaries(st.text(max_size=5), texts | st.floats(), max_size=3))
@shared
def test_a_document_is_stored_exactly_or_refused(store: Store, text: str, metadata: dict[str, Any]) -> None:
    given_ = document(text, title=text[:20], metadata=metadata)
    store.documents.delete([given_.id])
    try:
        store.documents.put(given_, pieces(given_), recipe="r")
    except StorageError:
        assert store.documents.states([given_.id]) == {}
    else:
        back = store.documents.get(given_.id)
        assert back == given_
        assert back.content_hash == given_.content_hash


@pytest.mark.parametrize("text", ["{", "", "[" * 100_000, "\x00", "[1,]"])
def test_what_something_else_wrote_is_an_error_of_ours(text: str) -> None:
    with pytest.raises(StorageError, match="not the JSON that was written"):
        decoded(text)


def test_damaged_rows_are_errors_of_ours(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        store.templates.push("t", {"messages": []})
        store.payloads.put("k", {"a": 1})
        digest = content_hash({"a": 1})
        store.runs.put("a" * 64, {}, {digest: {"a": 1}})
        with sqlite3.connect(tmp_path / "store.db") as raw:
            for table in ("template_versions", "payloads", "blobs"):
                raw.execute(f"UPDATE {table} SET content = '{{'")
            raw.execute("UPDATE templates SET updated_at = 'yesterday'")
        for read in (
            lambda: store.templates.get("t"),
            store.templates.list,
            lambda: store.payloads.get("k"),
            lambda: store.payloads.search({"a": 1}),
            lambda: store.runs.get("a" * 64),
        ):
            with pytest.raises(StorageError, match="restore a backup"):
                read()


def test_no_day_is_before_the_first(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store, pytest.raises(ConfigError, match="out of range"):
        store.runs.prune(before=datetime.min.replace(tzinfo=timezone(timedelta(hours=1))))


def test_a_message_is_short_however_long_the_key_is() -> None:
    key = "k" * 1_000_000
    for text in (f'{{"{key}": 1, "{key}": 2}}', f'{{"{key}": "\\u0000"}}', f'{{"{key}": {{"{key}": NaN}}}}'):
        with pytest.raises(StorageError) as caught:
            parse_json(text)
        assert len(str(caught.value)) < 1_000
    for value in ({key: {1: 2}}, {key: object()}, {key: 1 << 5_000}, {key: float("inf")}, {key: {key + "\x00": 1}}):
        with pytest.raises(StorageError) as caught:
            encoded(value, "it")
        assert len(str(caught.value)) < 1_000
