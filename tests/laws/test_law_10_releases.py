"""Law 10 for releases: a tenant who knows every name, hash and fingerprint of another's finds nothing of it.

On PostgreSQL through a role that owns no table and may only read and write rows: row-level security is not up to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from ctxkit import ContextEngine, Document
from ctxkit.errors import ConfigError, CtxkitError, NotFoundError
from ctxkit.storage import Store
from ctxkit.storage.tables import TENANT_TABLES
from ctxkit.templates import TemplateRegistry

SECRET = "the secret of B"
CRAFTED = [
    "b",
    "plan",
    "%",
    "_",
    "*",
    "plan' OR '1'='1",
    "plan'; SELECT set_config('ctxkit.tenant', 'b', false); --",
    '"; DROP TABLE templates; --',
    "b/plan",
    "b\\plan",
    "..",
    "plan@production",
    "$tenant",
    "{b}",
    "b\x00plan",
    "b\ud800",
]


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def stores(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, Store]]:
    """The store as A and as B see it; B has everything."""
    if request.param == "sqlite":
        url = other = f"sqlite:///{tmp_path_factory.mktemp('law10') / 'store.db'}"
    else:
        postgresql = request.getfixturevalue("postgresql")
        name = postgresql.create()
        url, other = postgresql.url(name), postgresql.url(name, role="ctxkit_guest")
    Store.open(url).close()
    if url != other:
        postgresql.execute("CREATE ROLE ctxkit_guest LOGIN NOSUPERUSER NOBYPASSRLS")
        for statement in (
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO ctxkit_guest",
            "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO ctxkit_guest",
        ):
            postgresql.execute(statement, database=name)
    with Store.open(other, tenant="a", create=False) as a:
        b = a.for_tenant("b")
        with ContextEngine(b, embedder=None) as engine:
            engine.ingest_documents([Document.from_text(f"{SECRET} is in a document", source="plan")])
            engine.templates.push("plan", f"{SECRET} {{{{context}}}} {{{{question}}}}", message=SECRET, by=SECRET)
            engine.templates.push("plan", f"{SECRET} two {{{{question}}}}")
            for version in (1, 2):
                engine.templates.label("plan", "production", version, by=SECRET)
            engine.templates.protect("plan", "production", message=SECRET)
            b.payloads.put("plan", {"secret": SECRET})
            engine.assemble(f"What is {SECRET}?", template="plan@1", session="plan", record=True)
        yield a, b
    if url != other:
        postgresql.drop(name)
        postgresql.execute("DROP ROLE ctxkit_guest")


def known(b: Store) -> dict[str, str]:
    """What A has overheard of B."""
    return {
        "template": b.templates.get("plan").hash,
        "payload": b.payloads.resolve("plan").hash,
        "run": b.runs.list()[0].fingerprint,
    }


def test_b_has_it_all(stores: tuple[Store, Store]) -> None:
    _, b = stores
    assert SECRET in str(b.templates.get("plan").content)
    assert SECRET in str(b.payloads.get("plan"))
    assert SECRET in str(b.runs.get(known(b)["run"]))
    assert len(b.templates.label_history("plan", "production")) == 2
    assert b.templates.search(SECRET)


def test_lists_and_searches_are_empty(stores: tuple[Store, Store]) -> None:
    a, _ = stores
    assert a.templates.list(archived=True) == a.payloads.list() == a.runs.list() == a.documents.list() == []
    assert a.payloads.search({}) == a.payloads.search({"secret": SECRET}) == []
    for query in (SECRET, "s", "%", "plan", "production", "'"):
        assert a.templates.search(query, archived=True) == []
    assert a.runs.statistics() == {"runs": 0, "pieces": 0, "characters": 0}
    assert a.statistics()["templates"] == a.statistics()["payloads"] == 0


def test_names_hashes_and_fingerprints_open_nothing(stores: tuple[Store, Store]) -> None:
    a, b = stores
    overheard = known(b)
    registry, engine = TemplateRegistry(a), ContextEngine(a, embedder=None)
    calls: list[Callable[[str], Any]] = [
        lambda name: a.templates.get(name),
        lambda name: a.templates.get(name, hash=overheard["template"]),
        lambda name: a.templates.get("plan", label=name),
        lambda name: a.templates.versions(name),
        lambda name: a.templates.label(name, "production", 1, force=True),
        lambda name: a.templates.rollback(name, "production", force=True),
        lambda name: a.templates.unprotect(name, "production"),
        lambda name: a.templates.archive(name),
        lambda name: a.templates.archive("plan", 1),
        lambda name: registry.get(name),
        lambda name: registry.get(f"{name}@sha256:{overheard['template']}"),
        lambda name: registry.push("mine", f"{{{{> {name}}}}}"),
        lambda name: a.payloads.get(name),
        lambda name: a.payloads.resolve(name),
        lambda name: a.payloads.versions(name),
        lambda _: a.payloads.get(hash=overheard["payload"]),
        lambda _: a.payloads.resolve(f"sha256:{overheard['payload'][:8]}"),
        lambda name: a.runs.get(name),
        lambda _: engine.replay(overheard["run"]),
        lambda _: engine.replay(overheard["run"][:8]),
        lambda name: engine.assemble("?", template=f"{name}@production"),
        lambda name: engine.assemble("?", payload=name),
    ]
    for call in calls:
        for name in CRAFTED:
            with pytest.raises(CtxkitError) as caught:
                call(name)
            assert SECRET not in str(caught.value)
    assert a.runs.prune(session="plan") == 0
    assert a.templates.label_history("plan", "production") == a.templates.events("plan") == []
    assert a.templates.list(archived=True) == []


def test_the_same_content_tells_nothing_of_the_other(stores: tuple[Store, Store]) -> None:
    a, b = stores
    before = [b.templates.versions("plan"), b.payloads.versions("plan"), b.runs.list()]
    view = a.for_tenant("c")  # as A, but empty for the other tests
    mine = view.payloads.put("plan", {"secret": SECRET})
    assert (mine.version, mine.is_new) == (1, True)
    pushed = view.templates.push("plan", b.templates.get("plan").content)
    assert (pushed.version, pushed.is_new) == (1, True)
    info, content, pieces = b.runs.get(known(b)["run"])
    assert view.runs.put(info.fingerprint, content, pieces), "as new as if nobody had it"
    assert view.runs.prune(session=None, before=view.runs.list()[0].updated_at.replace(year=9999)) == 1
    assert [b.templates.versions("plan"), b.payloads.versions("plan"), b.runs.list()] == before
    assert b.runs.get(info.fingerprint)[2] == pieces


@pytest.mark.postgres
@pytest.mark.parametrize("stores", ["postgres"], indirect=True)
class TestGuest:
    def test_it_owns_nothing(self, stores: tuple[Store, Store]) -> None:
        with stores[0]._database._engine.connect() as connection:
            assert connection.execute(text("SELECT current_user")).scalar() == "ctxkit_guest"
            owned = text("SELECT count(*) FROM pg_class WHERE relowner = current_user::regrole")
            assert connection.execute(owned).scalar() == 0

    @pytest.mark.parametrize("table", TENANT_TABLES, ids=lambda table: table.name)
    def test_raw_statements_find_a_tenants_rows_alone(self, stores: tuple[Store, Store], table: Any) -> None:
        with stores[0]._database._engine.connect() as connection:
            connection.execute(text("SELECT set_config('ctxkit.tenant', 'a', true)"))
            for statement in (
                f"SELECT count(*) FROM {table.name}",
                f"SELECT count(*) FROM {table.name} WHERE tenant = 'b' OR true",
                f"SELECT count(*) FROM (SELECT * FROM {table.name} UNION ALL SELECT * FROM {table.name}) AS t",
            ):
                assert connection.execute(text(statement)).scalar() == 0, statement
            assert connection.execute(text(f"DELETE FROM {table.name}")).rowcount == 0
            for statement in (
                f"ALTER TABLE {table.name} DISABLE ROW LEVEL SECURITY",
                f"DROP POLICY tenant_isolation ON {table.name}",
                f"TRUNCATE {table.name}",
                f"INSERT INTO {table.name} (tenant) VALUES ('b')",
                f"COPY {table.name} TO PROGRAM 'cat'",
            ):
                with pytest.raises(DBAPIError), connection.begin_nested():
                    connection.execute(text(statement))
            connection.execute(text("SET LOCAL row_security = off"))
            with pytest.raises(DBAPIError, match="row-level security"):
                connection.execute(text(f"SELECT * FROM {table.name}"))


def test_a_look_alike_tenant_is_another(stores: tuple[Store, Store]) -> None:
    a, _ = stores
    for name in ("B", "b ", "ｂ", "%", "b' OR '1'='1"):
        with pytest.raises(NotFoundError):
            a.for_tenant(name).templates.get("plan")
    for name in ("", "b\x00", "b" * 200):
        with pytest.raises((CtxkitError, ConfigError)):
            a.for_tenant(name)
