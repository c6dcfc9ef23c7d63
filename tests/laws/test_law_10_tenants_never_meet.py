"""Law 10: the tenant is part of every key; on PostgreSQL row-level security enforces it too.

Two tenants do the same things under the same names, in any order: each sees what it would see alone. Then the
statements themselves: every one that touches a tenant's table says which tenant. Then raw SQL on PostgreSQL, from a
role that owns the tables but is no superuser: without a tenant there are no rows, with one there are only its own.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, event, text
from sqlalchemy.exc import DBAPIError

from ctxkit.documents import Chunk, Document, Entity, Span, content_hash
from ctxkit.errors import CtxkitError
from ctxkit.graph.building import document_graph
from ctxkit.messages import Message
from ctxkit.storage import Keep, Store
from ctxkit.storage.tables import TENANT_TABLES

TENANTS = ["acme", "acme ", "ACME", "%", "a' OR '1'='1", "猫", "acme\\"]
names = st.sampled_from(["x", "y"])
words = st.sampled_from(["one", "two", "three words here"])


def put(store: Store, name: str, word: str) -> Any:
    document = Document(name, word * 3, source=f"notes/{name}", metadata={"word": word})
    spans = [Span(0, len(word)), Span(len(word), 3 * len(word))]
    chunks = [Chunk.of(document, span, 1, entities=(Entity(word[:1], word, Span(0, 1)),)) for span in spans]
    vectors = np.eye(2, 4, k=len(word) % 3, dtype=np.float32)
    graph = document_graph(document.text, chunks)
    return store.documents.put(document, chunks, recipe=word, fingerprint=f"f-{name}", vectors=vectors, graph=graph)


def label(store: Store, name: str, word: str) -> Any:
    return store.templates.label(name, word, store.templates.get(name).version).previous


def include(store: Store, name: str, word: str) -> Any:
    child = store.templates.get(name)
    return store.templates.push("y", {"text": word, "inside": name}, includes=[(name, child.hash)]).version


def run(store: Store, name: str, word: str) -> Any:
    pieces = {content_hash(piece): piece for piece in (word, [name, word])}
    content = {"pieces": sorted(pieces)}
    return store.runs.put(content_hash([name, word, "run"]), content, pieces, session=name, template=word)


def outcomes(store: Store, name: str) -> Any:
    found = store.experiments.values(name)
    return {metric: {arm: each.tolist() for arm, each in of.values.items()} for metric, of in found.items()}


def embed(store: Store, name: str, word: str) -> Any:
    vector = np.eye(1, 4, k=len(word) % 3, dtype=np.float32)[0]
    return store.sessions.put_vectors(name, f"f-{name}", dict.fromkeys(range(1, 6), (word, vector)))


ACTIONS: dict[str, Callable[[Store, str, str], Any]] = {
    "put": put,
    "delete": lambda store, name, word: store.documents.delete([name, "x"]),
    "append": lambda store, name, word: [
        message.sequence for message in store.sessions.append(name, [Message("user", word, id=word), Message("user")])
    ],
    "forget": lambda store, name, word: store.sessions.delete(name, branches=True),
    "branch": lambda store, name, word: store.sessions.branch(name, at=store.sessions.info(name).last_sequence).id,
    "embed": embed,
    "edit": lambda store, name, word: store.sessions.edit(name, 1, Message("user", word), name="y").parent,
    "retire": lambda store, name, word: store.sessions.archive(name, keep=Keep(messages=1)).archived,
    "shorten": lambda store, name, word: store.sessions.prune(name, keep=Keep(messages=len(word))).deleted,
    "push": lambda store, name, word: store.templates.push(name, {"text": word}).version,
    "label": label,
    "include": include,
    "rollback": lambda store, name, word: store.templates.rollback(name, word).version,
    "protect": lambda store, name, word: store.templates.protect(name, word, by=word),
    "unprotect": lambda store, name, word: store.templates.unprotect(name, word, by=word),
    "archive": lambda store, name, word: store.templates.archive(name, len(word) % 2 or None),
    "unarchive": lambda store, name, word: store.templates.unarchive(name, len(word) % 2 or None),
    "run": run,
    "prune": lambda store, name, word: store.runs.prune(session=name),
    "experiment": lambda store, name, word: store.experiments.create(name, word, 0.5, {"word": word}).seed,
    "expose": lambda store, name, word: store.experiments.expose(name, "unit", word),
    "outcome": lambda store, name, word: store.experiments.record(name, "unit", word, "mean", float(len(word))),
    "stop": lambda store, name, word: store.experiments.stop(name, winner=word).winner,
    "payload": lambda store, name, word: store.payloads.put(name, {"word": word}).reference,
}
actions = st.lists(st.tuples(st.sampled_from(sorted(ACTIONS)), names, words), max_size=8)


def tried(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except CtxkitError as error:
        return type(error).__name__, str(error)


def seen(store: Store, names: Sequence[str] = ("x", "y")) -> dict[str, Any]:
    """Everything that the whole API shows of a store, without what differs from run to run: keys and times."""
    documents, keys = store.documents, store.documents.keys()
    position = {key: index for index, key in enumerate(keys.tolist())}

    def places(found: Any) -> Any:
        return None if found is None else [position[key] for key in found.tolist()]

    found: dict[str, Any] = {
        "list": [(info.id, info.source, info.content_hash, info.chunk_count) for info in documents.list()],
        "prefix": [info.id for info in documents.list("notes/x")],
        "states": documents.states(["x", "y", "z"]),
        "revision": documents.revision(),
        "texts": [text for _, text in documents.index_texts(keys)],
        "chunks": [(c.id, c.text, c.entities, c.metadata["word"]) for c in documents.chunks(keys).values()],
        "filters": [
            places(documents.matching_keys(filters))
            for filters in ({"word": ["one", "two"]}, {"source": "notes/*"}, {"document_id": "x"}, {"none": None})
        ],
        "graph": [(part.nodes, places(part.keys), part.mentions.tolist()) for part in store.graph.load()],
        "sessions": [(i.id, i.message_count, i.parent, i.archived_through) for i in store.sessions.list()],
        "said": [(match.session, match.message.id) for match in store.sessions.search("o", limit=100)],
        "experiments": [(each.name, each.seed, each.winner) for each in store.experiments.list()],
        "templates": [(i.name, i.versions, i.labels, i.protected) for i in store.templates.list(archived=True)],
        "found": store.templates.search("o"),
        "payloads": [(info.key, info.version, info.versions, info.hash) for info in store.payloads.list()],
        "holding": [found.hash for found in store.payloads.search({"word": "one"})],
        "runs": [(info.fingerprint, info.session, info.template) for info in store.runs.list()],
        "pieces": store.runs.statistics(),
    }
    for name in names:
        found[name] = {
            "graph": tried(lambda name=name: store.graph.get(name).nodes),  # type: ignore[misc]
            "document": tried(lambda name=name: documents.get(name)),  # type: ignore[misc]
            "messages": [(m.id, m.sequence, m.text) for m in store.sessions.messages(name)],
            "last": [m.id for m in store.sessions.messages(name, last=1)],
            "archived": [m.text for m in store.sessions.messages(name, archived=True)],
            "versions": tried(lambda name=name: [(v.version, v.hash) for v in store.templates.versions(name)]),  # type: ignore[misc]
            "moves": [(m.previous, m.version) for m in store.templates.label_history(name, "one")],
            "events": [(event.action, event.label, event.by) for event in store.templates.events(name)],
            "run": tried(lambda name=name: store.runs.get(content_hash([name, "one", "run"]))[1:]),  # type: ignore[misc]
            "by hash": tried(lambda: store.payloads.get(hash=content_hash({"word": "one"}))),
            "numbered": tried(lambda name=name: [v.hash for v in store.payloads.versions(name)]),  # type: ignore[misc]
            "labelled": tried(lambda name=name: store.templates.get(name, label="one").content),  # type: ignore[misc]
            "payload": tried(lambda name=name: store.payloads.get(name)),  # type: ignore[misc]
            "arm": tried(lambda name=name: store.experiments.find(name, "unit")[1]),  # type: ignore[misc]
            "exposures": tried(lambda name=name: store.experiments.exposures(name)),  # type: ignore[misc]
            "outcomes": tried(lambda name=name: outcomes(store, name)),  # type: ignore[misc]
        }
        spoken = store.sessions.vectors(name, f"f-{name}")
        found[name]["spoken"] = [(at, digest, vector.tolist()) for at, (digest, vector) in sorted(spoken.items())]
        at, vectors = documents.vectors(f"f-{name}")
        found[name]["vectors"] = (places(at), vectors.tolist())
        if store.kind == "postgresql":
            nearest, scores = documents.nearest(f"f-{name}", np.array([1, 0, 0, 0], dtype=np.float32), 9)
            found[name]["nearest"] = (places(nearest), scores.tolist())
    return found


@pytest.fixture(scope="module")
def memory() -> Iterator[Store]:
    with Store.open("sqlite://") as store:
        yield store


FRESH = itertools.count()
"""Each run has tenants of its own: a new tenant is an empty store."""


def interleaved(
    store: Store, tenants: Sequence[str], scripts: Sequence[Sequence[Any]], rng: Random, shown: int | None = None
) -> list[Any]:
    """Every tenant runs its script, in a random interleaving; what each was told, and what it sees in the end."""
    run = next(FRESH)
    views = [store.for_tenant(f"{run}{tenant}") for tenant in tenants]
    told: list[list[Any]] = [[] for _ in tenants]
    order = [index for index, script in enumerate(scripts) for _ in script]
    rng.shuffle(order)
    steps = [iter(script) for script in scripts]
    for index in order:
        action, name, word = next(steps[index])
        told[index].append(tried(lambda: ACTIONS[action](views[index], name, word)))  # noqa: B023
    return [(told[index], seen(view)) for index, view in enumerate(views[:shown])]


pairs = st.lists(st.sampled_from(TENANTS), min_size=2, max_size=2, unique=True)


# An example reads everything a store shows, twice: about 50 transactions each.
@settings(max_examples=settings().max_examples // 3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pairs, actions, actions, st.randoms(use_true_random=False))
def test_a_tenant_sees_what_it_would_see_alone(
    memory: Store, tenants: list[str], first: Sequence[Any], second: Sequence[Any], rng: Random
) -> None:
    (alone,) = interleaved(memory, tenants[:1], [first], rng)
    assert interleaved(memory, tenants, [first, second], rng, shown=1) == [alone]


def test_a_long_day_of_many_tenants(store: Store) -> None:
    rng = Random(10)
    scripts = [
        [
            (rng.choice(sorted(ACTIONS)), rng.choice("xy"), rng.choice(["one", "two", "three words here"]))
            for _ in range(25)
        ]
        for _ in TENANTS
    ]
    together = interleaved(store, TENANTS, scripts, rng)
    for index, tenant in enumerate(TENANTS):
        assert together[index] == interleaved(store, [tenant], [scripts[index]], rng)[0]
    assert store.check() == []


@contextmanager
def recorded(store: Store) -> Iterator[list[tuple[str, Any]]]:
    """The statements that reach the database, with their parameters."""
    statements: list[tuple[str, Any]] = []

    def note(_: Any, __: Any, statement: str, parameters: Any, ___: Any, ____: Any) -> None:
        statements.append((statement, parameters))

    engine = store._database._engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        event.remove(engine, "before_cursor_execute", note)


def unguarded(statement: str) -> list[str]:
    """The tenant's tables in a statement that are held to no tenant."""
    plain = " ".join(statement.replace('"', "").split())
    found = []
    for table in TENANT_TABLES:
        touched = re.search(rf"\b(FROM|JOIN|INTO|UPDATE|,) {table.name}\b", plain)
        if not touched:
            continue
        inserted = re.search(rf"INSERT INTO {table.name} \(tenant,", plain)
        # In an outer join the optional table is held by the join: `ON sessions.tenant = messages.tenant AND …`.
        joined = re.search(rf"LEFT OUTER JOIN {table.name} ON (\w+)\.tenant = {table.name}\.tenant\b", plain) or (
            re.search(rf"LEFT OUTER JOIN {table.name} ON {table.name}\.tenant = (\w+)\.tenant\b", plain)
        )
        held = re.search(rf"\b{table.name}\.tenant = (\?|%\(\w+\)s)", plain)
        other = joined and re.search(rf"\b{joined[1]}\.tenant = (\?|%\(\w+\)s)", plain)
        if not (inserted or held or other):
            found.append(table.name)
    return found


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT chunks.text FROM chunks WHERE chunks.key = ?",
        "SELECT 1 FROM chunks JOIN documents ON chunks.tenant = documents.tenant WHERE chunks.tenant = ?",
        "DELETE FROM documents WHERE documents.id = ?",
        "UPDATE sessions SET last_sequence = ? WHERE sessions.id = ?",
        "INSERT INTO payloads (hash, content) VALUES (?, ?)",
        "SELECT 1 FROM sessions LEFT OUTER JOIN messages ON messages.session_id = sessions.id "
        "WHERE sessions.tenant = ?",
    ],
)
def test_the_check_of_statements_finds_what_is_unguarded(statement: str) -> None:
    assert unguarded(statement)


def test_every_statement_says_which_tenant(store: Store) -> None:
    view = store.for_tenant("the tenant's name")
    with recorded(store) as statements:
        for name in ("x", "y"):
            for action in sorted(ACTIONS, key=lambda action: action in ("delete", "forget")):
                for word in ("one", "one", "two"):
                    tried(lambda name=name, action=action, word=word: ACTIONS[action](view, name, word))  # type: ignore[misc]
            put(view, name, "two")
            view.sessions.append(name, [Message("user", "again", id=f"{name}:1"), Message("user"), Message("user")])
            seen(view)
        assert view.check() == []
        assert view.statistics()["documents"] >= 1
    touching = [pair for pair in statements if any(table.name in pair[0] for table in TENANT_TABLES)]
    assert len(touching) > 150
    for table in TENANT_TABLES:
        assert any(re.search(rf"\b{table.name}\b", statement) for statement, _ in touching), table.name
    for statement, parameters in touching:
        if "FROM pg_class" in statement:
            continue
        assert not unguarded(statement), statement
        for row in parameters if isinstance(parameters, list) else [parameters]:
            bound = row.values() if isinstance(row, dict) else row
            assert "the tenant's name" in bound, "another tenant is bound"


@pytest.fixture(scope="module")
def filled(postgresql: Any) -> Iterator[Store]:
    name = postgresql.create()
    with Store.open(postgresql.url(name)) as store:
        for tenant in ("acme", "other"):
            for action in (
                "put",
                "append",
                "retire",
                "embed",
                "branch",
                "push",
                "include",
                "label",
                "protect",
                "payload",
                "run",
            ):
                ACTIONS[action](store.for_tenant(tenant), "x", "one")
            for action in ("experiment", "expose", "outcome"):
                ACTIONS[action](store.for_tenant(tenant), "x", "one")
        yield store
    postgresql.drop(name)


@pytest.mark.postgres
class TestRowLevelSecurity:
    @pytest.fixture
    def connection(self, filled: Store) -> Iterator[Connection]:
        with filled._database._engine.connect() as connection:
            yield connection

    def become(self, connection: Connection, tenant: str) -> None:
        connection.execute(text("SELECT set_config('ctxkit.tenant', :tenant, true)"), {"tenant": tenant})

    def test_the_role_is_subject_to_it(self, connection: Connection) -> None:
        (row,) = connection.execute(
            text("SELECT rolsuper, rolbypassrls, rolname FROM pg_roles WHERE rolname = current_user")
        )
        assert tuple(row) == (False, False, "ctxkit_app")
        owner = connection.execute(
            text("SELECT DISTINCT tableowner FROM pg_tables WHERE tablename = 'chunks'")
        ).scalar()
        assert owner == "ctxkit_app", "even the owner of the tables"

    @pytest.mark.parametrize("table", TENANT_TABLES, ids=lambda table: table.name)
    def test_raw_statements_see_one_tenant_or_nothing(self, connection: Connection, table: Any) -> None:
        count = text(f"SELECT count(*) FROM {table.name}")
        tenants = text(f"SELECT DISTINCT tenant FROM {table.name}")
        assert connection.execute(count).scalar() == 0, "no tenant is set"
        for tenant in ("acme", "other"):
            self.become(connection, tenant)
            assert connection.execute(tenants).scalars().all() == [tenant]
        for nobody in ("", "nobody", "acme ", "%"):
            self.become(connection, nobody)
            assert connection.execute(count).scalar() == 0
        self.become(connection, "acme")
        connection.rollback()
        assert connection.execute(count).scalar() == 0, "the setting ends with its transaction"

    @pytest.mark.parametrize("table", TENANT_TABLES, ids=lambda table: table.name)
    def test_raw_statements_change_nothing_of_another_tenant(self, connection: Connection, table: Any) -> None:
        self.become(connection, "other")
        before = connection.execute(text(f"SELECT * FROM {table.name} ORDER BY 1, 2")).all()
        assert before
        self.become(connection, "acme")
        where = text(f"DELETE FROM {table.name} WHERE tenant = 'other'")
        assert connection.execute(where).rowcount == 0
        for statement in (
            f"UPDATE {table.name} SET tenant = 'other'",
            f"INSERT INTO {table.name} (tenant) VALUES ('other')",
        ):
            with pytest.raises(DBAPIError), connection.begin_nested():
                connection.execute(text(statement))
        self.become(connection, "other")
        assert connection.execute(text(f"SELECT * FROM {table.name} ORDER BY 1, 2")).all() == before

    def test_a_connection_goes_back_to_the_pool_without_its_tenant(self, postgres_url: str) -> None:
        with Store.open(postgres_url, tenant="acme") as store:
            put(store, "x", "one")
            assert len(store.documents.list()) == 1
            with store._database._engine.connect() as connection:
                assert connection.execute(text("SELECT count(*) FROM documents")).scalar() == 0
                assert not connection.execute(text("SELECT current_setting('ctxkit.tenant', true)")).scalar()
