"""Payloads: versions of a key, references, containment that both databases agree on, and what is too much."""

from __future__ import annotations

import asyncio
import json
import time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from ctxkit.documents import content_hash
from ctxkit.errors import ConfigError, NotFoundError, StorageError
from ctxkit.storage import Store, parse_json
from ctxkit.storage.payloads import contains, exact
from tests.timing import at_most


@pytest.fixture
def store(tenant_store: Store) -> Store:
    return tenant_store


def test_versions_of_a_key(store: Store) -> None:
    payloads = store.payloads
    one, two = (payloads.put("brand", {"tone": tone}, by="ann", message=tone) for tone in ("brief", "long"))
    assert [one.reference, two.reference] == ["brand@1", "brand@2"]
    assert two.hash == content_hash({"tone": "long"})
    again = payloads.put("brand", {"tone": "brief"}, by="bob")
    assert (again, again.is_new, one.is_new) == (one, False, True)
    assert payloads.get("brand") == {"tone": "brief"}, "put again, it is what the key points at again"
    assert payloads.put("brand", {"tone": "new"}).version == 3, "and the numbers go on without a gap"
    assert [(v.version, v.content["tone"], v.by) for v in payloads.versions("brand")] == [
        (1, "brief", "ann"),
        (2, "long", "ann"),
        (3, "new", ""),
    ]
    assert payloads.get("brand", 2) == payloads.resolve("brand@2").content == {"tone": "long"}
    found = payloads.resolve(f"sha256:{two.hash[:8]}")
    assert (found.content, found.key, found.reference) == ({"tone": "long"}, "", f"sha256:{two.hash}")
    assert payloads.resolve("brand").version == 3
    other = payloads.put("ann@example.com", {"tone": "long"})
    assert payloads.resolve("ann@example.com") == other
    assert [(info.key, info.version, info.versions) for info in payloads.list()] == [
        ("ann@example.com", 1, 1),
        ("brand", 3, 3),
    ]
    for reference in ("brand@4", "nothing", "sha256:00000000", "sha256:x", "brand@0", "nothing@1"):
        with pytest.raises(NotFoundError) as caught:
            payloads.resolve(reference)
        assert caught.value.remedy
    with pytest.raises(NotFoundError, match=r"nothing: .* Known: "):
        payloads.versions("nothing")


def test_the_async_twins() -> None:
    async def work(store: Store) -> None:
        put = await store.payloads.aput("brand", {"tone": "brief"}, by="ann")
        assert await store.payloads.aget("brand", 1) == await store.payloads.aget(hash=put.hash) == {"tone": "brief"}
        assert await store.payloads.aresolve("brand") == put
        assert [found.hash for found in await store.payloads.asearch({"tone": "brief"})] == [put.hash]
        assert [info.key for info in await store.payloads.alist()] == ["brand"]
        assert await store.payloads.aversions("brand") == store.payloads.versions("brand")
        pushed = await store.templates.apush("t", {"a": 1})
        assert await store.templates.aget("t", 1) == pushed
        assert (await store.templates.alabel("t", "production", 1)).version == 1

    with Store.open("sqlite://") as store:
        asyncio.run(work(store))


@pytest.mark.parametrize("key", ["brand@3", "sha256:00000000", "sha256:brand"])
def test_a_key_that_is_a_reference_is_refused(key: str) -> None:
    with Store.open("sqlite://") as store:
        with pytest.raises(ConfigError, match="reference"):
            store.payloads.put(key, {})
        assert store.payloads.list() == []


def deep(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "source",
    [
        '{"a": 1, "a": 2}',
        '{"a": {"b": 1, "b": 1}}',
        '{"a": NaN}',
        '{"a": -Infinity}',
        r'{"a": "\u0000"}',
        r'{"\u0000": 1}',
        r'{"a": "\ud800"}',
        r'{"\udc00": 1}',
        '{"a": 1e400}',
        '{"a":' * 200_000,
        '{"a":' * 200 + "1" + "}" * 200,
        "[" * 100_000,
        '{"a": ' + "9" * 5_000 + "}",
        "",
        "{'a': 1}",
    ],
    ids=lambda source: source[:20],
)
def test_json_that_readers_disagree_on_is_refused(source: str) -> None:
    with pytest.raises(StorageError) as caught:
        parse_json(source)
    assert caught.value.remedy
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "payload",
    [
        {"a": "\x00"},
        {"a\x00": 1},
        {"a": "\ud800"},
        {"a": float("nan")},
        {1: 2},
        {"a": {1}},
        deep(101),
        {"a": 1 << 5_000},
    ],
    ids=lambda payload: ascii(payload)[:20],
)
def test_a_payload_that_is_no_json_is_refused_before_anything_is_written(payload: Any) -> None:
    with Store.open("sqlite://") as store:
        with pytest.raises(StorageError) as caught:
            store.payloads.put("k", payload)
        assert caught.value.remedy
        assert store.payloads.list() == [] and store.statistics()["payloads"] == 0


def test_ten_megabytes(store: Store) -> None:
    payload = {f"field {n}": {"n": n, "text": "lorem ipsum " * 90} for n in range(10_000)}
    size = len(json.dumps(payload))
    assert size > 10_000_000
    with at_most(60, time.perf_counter):
        stored = store.payloads.put("large", payload)
        assert store.payloads.get(hash=stored.hash) == payload
        assert store.payloads.search({"field 9999": {"n": 9999}})[0].hash == stored.hash


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.0, -0.0, 1.0, 0.1, 1e16, "a", "A", "", "1", "é"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from("abc"), values, max_size=3)


@settings(max_examples=max(5, settings().max_examples // 10))
@given(objects)
def test_everything_contains_itself_and_nothing_but_itself_is_needed(value: Any) -> None:
    left = exact(json.dumps(value))
    assert contains(left, left)
    assert contains(left, {})
    assert not contains(left, {**left, "d": Decimal(1)})
    for name in left:
        assert contains(left, {name: left[name]})


@pytest.mark.postgres
@settings(
    max_examples=max(5, settings().max_examples // 10), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(pairs=st.lists(st.tuples(objects, objects), min_size=10, max_size=20))
def test_containment_is_that_of_postgresql(pairs: list[Any], asked: Any) -> None:
    rows = [(json.dumps(left), json.dumps(right)) for left, right in pairs]
    statement = text("SELECT a::jsonb @> b::jsonb FROM unnest(CAST(:a AS text[]), CAST(:b AS text[])) AS t (a, b)")
    answers = asked.execute(statement, {"a": [a for a, _ in rows], "b": [b for _, b in rows]}).scalars().all()
    assert answers == [contains(exact(a), exact(b)) for a, b in rows]


@pytest.fixture(scope="module")
def asked(postgresql: Any) -> Any:
    """A connection to PostgreSQL."""
    name = postgresql.create()
    with Store.open(postgresql.url(name)) as store, store._database._engine.connect() as connection:
        yield connection
    postgresql.drop(name)


def test_search_finds_what_contains_it(store: Store) -> None:
    kept = {}
    for key, payload in {
        "a": {"tone": "brief", "tags": ["x", "y"], "n": 1},
        "b": {"tone": "brief", "tags": ["y"], "n": 1.0, "deep": {"er": [{"id": 7}, {"id": 8}]}},
        "c": {"tone": "Brief", "n": "1"},
        "d": {"tone": None, "n": True},
    }.items():
        kept[key] = store.payloads.put(key, payload).hash
    for part, keys in (
        ({}, "abcd"),
        ({"tone": "brief"}, "ab"),
        ({"tags": ["y"]}, "ab"),
        ({"tags": "y"}, ""),
        ({"tags": ["y", "x", "x"]}, "a"),
        ({"n": 1}, "ab"),
        ({"n": True}, "d"),
        ({"tone": None}, "d"),
        ({"deep": {"er": [{"id": 8}]}}, "b"),
        ({"deep": {"er": [{"id": 9}]}}, ""),
        ({"a'; DROP TABLE payloads; --": 1}, ""),
    ):
        assert [found.hash for found in store.payloads.search(part)] == sorted(kept[key] for key in keys), part
    assert len(store.payloads.search({}, limit=3)) == 3
    assert store.for_tenant("other").payloads.search({}) == []
    with pytest.raises(ConfigError):
        store.payloads.search({}, limit=0)


@pytest.mark.postgres
def test_the_gin_index_answers_once_the_operator_may_be_asked_first(postgresql: Any) -> None:
    """Row-level security lets no operator look at a row first that might leak it; a superuser says this one cannot."""
    name = postgresql.create()
    part = json.dumps({"n": 3})

    def plan(store: Store) -> str:
        with store._database._engine.connect() as connection:
            connection.execute(text("SELECT set_config('ctxkit.tenant', 'default', true)"))
            connection.execute(text("SET LOCAL enable_seqscan = off"))
            connection.execute(text("SET LOCAL enable_indexscan = off"))
            asked = (
                "EXPLAIN SELECT hash FROM payloads WHERE tenant = 'default' AND content_index @> CAST(:part AS jsonb)"
            )
            return "\n".join(row[0] for row in connection.execute(text(asked), {"part": part}))

    with Store.open(postgresql.url(name)) as store:
        with store._database._engine.begin() as connection:
            connection.execute(text("SELECT set_config('ctxkit.tenant', 'default', true)"))
            connection.execute(
                text(
                    "INSERT INTO payloads (tenant, hash, created_at, content) "
                    "SELECT 'default', 'h' || n, '2026-01-01', "
                    'format(\'{"n": %s, "m": %s}\', n, n % 7) FROM generate_series(1, 5000) AS n'
                )
            )
        postgresql.execute("ANALYZE payloads", database=name)
        assert "ix_payloads_content_index" not in plan(store)
        postgresql.execute("ALTER FUNCTION jsonb_contains(jsonb, jsonb) LEAKPROOF", database=name)
        assert "ix_payloads_content_index" in plan(store)
        assert [found.hash for found in store.payloads.search({"n": 3})] == ["h3"]
    postgresql.drop(name)
