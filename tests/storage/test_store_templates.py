"""Templates and payloads: immutable by their hash; labels move by compare-and-swap, each move on record."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.documents import content_hash
from ctxkit.errors import ConfigError, ConflictError, NotFoundError
from ctxkit.storage import ANY, Store
from tests.storage.making import shared
from tests.storage.test_checks import json_values
from tests.strategies import stored_texts

objects = st.dictionaries(stored_texts.map(lambda text: text[:10]), json_values, max_size=4)


@pytest.fixture
def store(tenant_store: Store) -> Store:
    return tenant_store


class TestVersions:
    def test_they_count_from_one(self, store: Store) -> None:
        pushed = [store.templates.push("t", {"text": str(number)}, message=f"m{number}") for number in range(4)]
        assert [version.version for version in pushed] == [1, 2, 3, 4]
        assert store.templates.versions("t") == pushed
        assert store.templates.get("t") == pushed[-1]
        assert store.templates.get("t", 2) == store.templates.get("t", hash=pushed[1].hash) == pushed[1]
        assert pushed[0].message == "m0"
        assert abs(datetime.now(UTC) - pushed[0].created_at) < timedelta(minutes=1)

    def test_the_same_content_is_the_same_version(self, store: Store) -> None:
        first = store.templates.push("t", {"a": 1, "b": [2]}, message="first")
        store.templates.push("t", {"a": 2})
        assert store.templates.push("t", {"b": [2], "a": 1}, message="again") == first
        assert len(store.templates.versions("t")) == 2
        assert store.templates.push("other", {"a": 1, "b": [2]}).version == 1

    @shared
    @given(objects)
    def test_content_and_hash_are_exact(self, store: Store, content: dict[str, Any]) -> None:
        pushed = store.templates.push("t", content)
        back = store.templates.get("t", hash=content_hash(content))
        assert back.version == pushed.version
        assert json.dumps(back.content, sort_keys=True) == json.dumps(content, sort_keys=True)
        assert content_hash(dict(back.content)) == back.hash == content_hash(content)

    def test_what_is_not_there(self, store: Store) -> None:
        with pytest.raises(NotFoundError) as caught:
            store.templates.get("t")
        assert "push one" in caught.value.remedy
        store.templates.push("t", {"a": 1})
        store.templates.label("t", "production", 1)
        for named in ({"version": 2}, {"version": 0}, {"version": -1}, {"hash": "0" * 64}, {"label": "staging"}):
            with pytest.raises(NotFoundError) as caught:
                store.templates.get("t", **named)  # type: ignore[arg-type]
            assert "versions 1 to 1" in caught.value.remedy
            assert "production (1)" in caught.value.remedy
        for call in (lambda: store.templates.versions("u"), lambda: store.templates.get("u", label="x")):
            with pytest.raises(NotFoundError, match="no such template") as caught:
                call()
            assert "Known: t" in caught.value.remedy

    def test_named_twice(self, store: Store) -> None:
        with pytest.raises(ConfigError):
            store.templates.get("t", 1, label="x")


class TestLabels:
    def test_they_move_and_are_on_record(self, store: Store) -> None:
        for number in range(3):
            store.templates.push("t", {"text": str(number)})
        store.templates.label("t", "production", 1, expected=None)
        store.templates.label("t", "production", 3, expected=1)
        store.templates.label("t", "production", 2)
        store.templates.label("t", "production", 2, expected=ANY)
        store.templates.label("t", "staging", 3)
        assert store.templates.get("t", label="production").version == 2
        assert store.templates.get("t", label="staging").version == 3
        moves = store.templates.label_history("t", "production")
        assert [(move.previous, move.version) for move in moves] == [(None, 1), (1, 3), (3, 2), (2, 2)]
        assert [move.moved_at for move in moves] == sorted(move.moved_at for move in moves)
        (info,) = store.templates.list()
        assert (info.name, info.versions, info.labels) == ("t", 3, {"production": 2, "staging": 3})
        assert store.templates.label_history("t", "none") == []

    @pytest.mark.parametrize("expected", [None, 2, 7])
    def test_a_label_that_is_elsewhere_does_not_move(self, store: Store, expected: int | None) -> None:
        store.templates.push("t", {"a": 1})
        store.templates.push("t", {"a": 2})
        store.templates.label("t", "production", 1)
        with pytest.raises(ConflictError, match="at version 1"):
            store.templates.label("t", "production", 2, expected=expected)
        assert store.templates.get("t", label="production").version == 1
        assert len(store.templates.label_history("t", "production")) == 1

    def test_a_label_that_was_expected_somewhere_but_is_new(self, store: Store) -> None:
        store.templates.push("t", {"a": 1})
        with pytest.raises(ConflictError, match="no version"):
            store.templates.label("t", "production", 1, expected=1)

    def test_only_to_a_version_that_exists(self, store: Store) -> None:
        for name, version in (("t", 1), ("t", 0)):
            with pytest.raises(NotFoundError):
                store.templates.label(name, "production", version)
        store.templates.push("t", {"a": 1})
        with pytest.raises(NotFoundError, match="version 2"):
            store.templates.label("t", "production", 2)
        assert store.templates.list()[0].labels == {}

    def test_labels_of_two_templates_do_not_meet(self, store: Store) -> None:
        for name in ("a", "a-b"):
            store.templates.push(name, {"name": name})
            store.templates.label(name, "b", 1)
        assert store.templates.get("a", label="b").content == {"name": "a"}
        assert len(store.templates.label_history("a", "b")) == 1


class TestPayloads:
    @shared
    @given(objects)
    def test_they_come_back_exactly_by_key_and_by_hash(self, store: Store, payload: dict[str, Any]) -> None:
        digest = store.payloads.put("k", payload).hash
        assert digest == content_hash(payload)
        for back in (store.payloads.get("k"), store.payloads.get(hash=digest)):
            assert json.dumps(back, sort_keys=True) == json.dumps(payload, sort_keys=True)

    def test_a_key_moves_on_and_the_payload_stays(self, store: Store) -> None:
        first = store.payloads.put("k", {"a": 1}).hash
        second = store.payloads.put("k", {"a": 2}).hash
        store.payloads.put("other", {"a": 1})
        assert store.payloads.get("k") == {"a": 2}
        assert store.payloads.get(hash=first) == store.payloads.get("other") == {"a": 1}
        assert store.payloads.get(hash=second) == {"a": 2}
        assert store.statistics()["payloads"] == 2

    def test_numbers_that_jsonb_would_change(self, store: Store) -> None:
        payload = {"large": 1e16, "zero": -0.0, "exact": 10**30, "tiny": 5e-324, "one": 1.0}
        store.payloads.put("k", payload)
        assert json.dumps(store.payloads.get("k")) == json.dumps(payload)

    def test_what_is_not_there(self, store: Store) -> None:
        with pytest.raises(NotFoundError):
            store.payloads.get("k")
        with pytest.raises(NotFoundError):
            store.payloads.get(hash="0" * 64)

    def test_named_twice_or_not_at_all(self, store: Store) -> None:
        for named in ({}, {"key": "k", "hash": "h"}):
            with pytest.raises(ConfigError):
                store.payloads.get(**named)

    def test_only_a_mapping(self, store: Store) -> None:
        with pytest.raises(ConfigError):
            store.payloads.put("k", [1, 2])  # type: ignore[arg-type]
