"""The registry against a model of dictionaries: versions, labels, rollback, protection, archive, search, includes."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ctxkit.errors import ConfigError, ConflictError, CtxkitError, NotFoundError, ProtectedError, StorageError
from ctxkit.storage import Store, TemplateVersion
from ctxkit.templates import TemplateRegistry

LABELS = ("production", "staging")


@pytest.fixture
def store(tenant_store: Store) -> Store:
    return tenant_store


class Registry(RuleBasedStateMachine):
    """One template, which any sequence of calls leaves as the model says; what is refused changes nothing."""

    store = Store.open("sqlite://")
    numbers = itertools.count()

    @initialize()
    def open(self) -> None:
        # A new tenant is an empty store, and opening one takes longer than the whole example.
        self.templates = self.store.for_tenant(str(next(self.numbers))).templates
        self.contents: list[int] = []
        self.labels: dict[str, int] = {}
        self.trails: dict[str, list[int]] = {}
        self.moves: dict[str, list[tuple[int | None, int, str, bool]]] = {}
        self.protected: set[str] = set()
        self.archived: set[int] = set()
        self.closed = False
        self.events = 0

    def expect(self, error: type[CtxkitError] | None, call: Any) -> Any:
        if error is None:
            return call()
        with pytest.raises(error) as caught:
            call()
        assert type(caught.value) is error
        assert caught.value.remedy
        return None

    @rule(content=st.integers(0, 4))
    def push(self, content: int) -> None:
        found = self.expect(
            ProtectedError if self.closed else None, lambda: self.templates.push("t", {"number": content})
        )
        if found is not None:
            assert found.is_new == (content not in self.contents)
            if found.is_new:
                self.contents.append(content)
            assert found.version == self.contents.index(content) + 1

    def refusal(self, version: int, label: str, expected: Any, force: bool) -> type[CtxkitError] | None:
        """What a move is refused with: the questions are asked in this order."""
        if not self.contents:
            return NotFoundError
        if self.closed:
            return ProtectedError
        if expected != "any" and self.labels.get(label) != expected:
            return ConflictError
        if not 1 <= version <= len(self.contents):
            return NotFoundError
        if version in self.archived or (label in self.protected and not force):
            return ProtectedError
        return None

    def moved(self, label: str, version: int, action: str) -> None:
        previous = self.labels.get(label)
        self.moves.setdefault(label, []).append((previous, version, action, label in self.protected))
        self.labels[label] = version

    @rule(
        label=st.sampled_from(LABELS),
        version=st.integers(0, 5),
        expected=st.sampled_from(["any", None, 1, 2]),
        force=st.booleans(),
    )
    def label(self, label: str, version: int, expected: Any, force: bool) -> None:
        guard = {} if expected == "any" else {"expected": expected}
        refused = self.refusal(version, label, expected, force)
        self.expect(refused, lambda: self.templates.label("t", label, version, force=force, **guard))
        if refused is None:
            trail = self.trails.setdefault(label, [])
            if not trail or trail[-1] != version:
                trail.append(version)
            self.moved(label, version, "move")

    @rule(label=st.sampled_from(LABELS), force=st.booleans())
    def rollback(self, label: str, force: bool) -> None:
        trail = self.trails.get(label, [])
        refused: type[CtxkitError] | None
        if not self.contents or (not trail and not self.closed):
            refused = NotFoundError
        elif self.closed:
            refused = ProtectedError
        elif len(trail) < 2:
            refused = ConflictError
        else:
            refused = self.refusal(trail[-2], label, "any", force)
        move = self.expect(refused, lambda: self.templates.rollback("t", label, force=force))
        if refused is None:
            trail.pop()
            assert move.version == trail[-1]
            self.moved(label, trail[-1], "rollback")

    @precondition(lambda self: self.contents)
    @rule(label=st.sampled_from(LABELS), on=st.booleans())
    def protect(self, label: str, on: bool) -> None:
        work = self.templates.protect if on else self.templates.unprotect
        changed = self.expect(ProtectedError if self.closed else None, lambda: work("t", label, by="ann"))
        if not self.closed:
            assert changed == ((label in self.protected) != on)
            self.events += changed
            (self.protected.add if on else self.protected.discard)(label)

    @precondition(lambda self: self.contents)
    @rule(version=st.integers(1, 5), on=st.booleans())
    def archive_version(self, version: int, on: bool) -> None:
        work = self.templates.archive if on else self.templates.unarchive
        refused = None
        if version > len(self.contents):
            refused = NotFoundError
        elif on and version in self.labels.values() and version not in self.archived:
            refused = ProtectedError
        changed = self.expect(refused, lambda: work("t", version))
        if refused is None:
            assert changed == ((version in self.archived) != on)
            self.events += changed
            (self.archived.add if on else self.archived.discard)(version)

    @precondition(lambda self: self.contents)
    @rule(on=st.booleans())
    def archive(self, on: bool) -> None:
        changed = (self.templates.archive if on else self.templates.unarchive)("t")
        assert changed == (self.closed != on)
        self.events += changed
        self.closed = on

    @invariant()
    def it_is_what_the_model_says(self) -> None:
        if not hasattr(self, "templates"):
            return
        (info,) = self.templates.list(archived=True) or [None]
        if info is None:
            assert not self.contents
            return
        assert (info.versions, info.labels, set(info.protected)) == (len(self.contents), self.labels, self.protected)
        assert (info.archived_at is not None) == self.closed == (not self.templates.list())
        versions = self.templates.versions("t")
        assert [version.content for version in versions] == [{"number": content} for content in self.contents]
        assert {version.version for version in versions if version.archived_at} == self.archived
        for label in LABELS:
            moves = self.templates.label_history("t", label)
            assert [(m.previous, m.version, m.action, m.forced) for m in moves] == self.moves.get(label, [])
        assert len(self.templates.events("t")) == self.events
        open_versions = [number for number in range(1, len(versions) + 1) if number not in self.archived]
        if open_versions:
            assert self.templates.get("t").version == open_versions[-1]
        else:
            self.expect(NotFoundError, lambda: self.templates.get("t"))


Registry.TestCase.settings = settings(max_examples=max(5, settings().max_examples // 20), stateful_step_count=30)
TestRegistry = Registry.TestCase


def two_versions(store: Store) -> list[TemplateVersion]:
    return [store.templates.push("t", {"text": text}) for text in ("one", "two")]


class TestRollback:
    def test_it_goes_further_back_each_time(self, store: Store) -> None:
        for number in range(4):
            store.templates.push("t", {"text": str(number)})
            store.templates.label("t", "production", number + 1)
        assert [store.templates.rollback("t", "production").version for _ in range(3)] == [3, 2, 1]
        with pytest.raises(ConflictError, match="nowhere before"):
            store.templates.rollback("t", "production")
        store.templates.label("t", "production", 4)
        assert store.templates.rollback("t", "production").version == 1

    def test_by_compare_and_swap(self, store: Store) -> None:
        two_versions(store)
        for version in (1, 2):
            store.templates.label("t", "production", version)
        with pytest.raises(ConflictError, match="at version 2"):
            store.templates.rollback("t", "production", expected=1)
        move = store.templates.rollback("t", "production", expected=2, by="ann", message="It lost citations")
        assert (move.previous, move.version, move.action, move.by) == (2, 1, "rollback", "ann")
        assert store.templates.label_history("t", "production")[-1] == move

    def test_to_an_archived_version(self, store: Store) -> None:
        two_versions(store)
        for version in (1, 2):
            store.templates.label("t", "production", version)
        store.templates.archive("t", 1)
        with pytest.raises(ProtectedError, match="archived"):
            store.templates.rollback("t", "production")
        assert store.templates.get("t", label="production").version == 2


def test_everything_is_on_record_with_who_when_and_why(store: Store) -> None:
    two_versions(store)
    assert store.templates.push("u", {}, by="bob", message="Begin").by == store.templates.get("u").by == "bob"
    store.templates.protect("t", "production", by="ann", message="Ask me first")
    store.templates.label("t", "production", 1, force=True, by="bob", message="She is away")
    store.templates.unprotect("t", "production", by="ann")
    store.templates.archive("t", 2, by="ann", message="Never used")
    store.templates.unarchive("t", 2)
    (move,) = store.templates.label_history("t", "production")
    assert (move.by, move.message, move.forced) == ("bob", "She is away", True)
    events = store.templates.events("t")
    assert [(event.action, event.label, event.version, event.by) for event in events] == [
        ("protect", "production", None, "ann"),
        ("unprotect", "production", None, "ann"),
        ("archive", None, 2, "ann"),
        ("unarchive", None, 2, ""),
    ]
    assert [event.message for event in events[:1]] == ["Ask me first"]
    assert all(abs(datetime.now(UTC) - event.happened_at) < timedelta(minutes=1) for event in events)


def test_what_another_template_includes_is_in_use(store: Store) -> None:
    child = store.templates.push("rules", {"text": "be kind"})
    parent = store.templates.push("answer", {"text": "…"}, includes=[("rules", child.hash)])
    with pytest.raises(ProtectedError, match="answer@1"):
        store.templates.archive("rules", child.version)
    store.templates.archive("answer", parent.version)
    assert store.templates.archive("rules", child.version)


def test_nothing_deletes_a_template(store: Store) -> None:
    assert not [name for name in dir(store.templates) if "delete" in name or "remove" in name]


@pytest.fixture
def filled(store: Store) -> Store:
    content = {"messages": [{"role": "system", "content": "Straße, ΣΊΣΥΦΟΣ, İstanbul, 100%_sure 'a' \\ x"}]}
    store.templates.push("Greeting/One", content, slots=["Customer_Name"], message="Erster Versuch")
    store.templates.push("Greeting/One", {"messages": [{"role": "user", "content": "later"}]})
    store.templates.label("Greeting/One", "Live-EU", 1)
    store.templates.push("other", {"messages": [{"role": "system", "content": "later"}]})
    return store


def test_search_folds_case_alike_on_both_databases_and_knows_no_patterns(filled: Store) -> None:
    search = filled.templates.search
    for query, place in {
        "STRASSE": "text",
        "σίσυφος": "text",
        "100%_SURE": "text",
        "'A' \\ X": "text",
        "erster v": "text",
        "customer_": "slot",
        "live-eu": "label",
    }.items():
        (match,) = search(query)
        assert (match.name, match.version, match.places) == ("Greeting/One", 1, (place,)), query
        assert match.labels == {"Live-EU": 1}
        assert search(query, places=["name"]) == []
    assert [(match.name, match.version) for match in search("LATER")] == [("Greeting/One", 2), ("other", 1)]
    assert [(match.name, match.places) for match in search("greeting")] == [("Greeting/One", ("name",))]
    assert [len(search(query)) for query in ("%", "_sur", "system", "later%", "l_ter")] == [1, 1, 0, 0, 0]
    filled.templates.archive("other")
    filled.templates.archive("Greeting/One", 2)
    assert search("later") == []
    assert len(search("later", archived=True)) == 2


def test_search_finds_what_somebody_wrote_and_not_what_every_template_has(tenant_store: Store) -> None:
    registry = TemplateRegistry(tenant_store)
    registry.push("plain", "Hello {{name}}")
    source = (
        '---\nslots:\n  tone: {"type": "string", "trust": "trusted", "description": "How it sounds"}\n---\nBe {{tone}}.'
    )
    registry.push("toned", source)
    for query in ("string", "object", "https", "trusted", "properties", "draft"):
        assert registry.search(query) == [], query
    assert [match.name for match in registry.search("how it SOUNDS")] == ["toned"]
    registry.push("outer", "{{> plain@1}} there")
    assert [match.name for match in registry.search("hello")] == ["outer", "plain"]


def test_a_version_and_its_label_are_one_change(tenant_store: Store) -> None:
    registry = TemplateRegistry(tenant_store)
    assert registry.push("t", "one", label="staging").version == 1
    assert registry.push("t", "two", label="staging", by="ann", message="why").version == 2
    assert registry.push("t", "two", label="staging").version == 2
    assert [(move.version, move.by) for move in registry.history("t", "staging")] == [(1, ""), (2, "ann")]
    assert registry.push("t", "one", label="staging").version == 1
    assert registry.get("t@staging").version == 1
    registry.protect("t", "staging")
    epoch = tenant_store.templates.epoch()
    with pytest.raises(ProtectedError):
        registry.push("t", "three", label="staging")
    with pytest.raises(ConfigError):
        registry.push("t", "three", label="latest")
    with pytest.raises(ConflictError):
        registry.push("t", "three", newest=1)
    assert [version.version for version in registry.versions("t")] == [1, 2]
    assert tenant_store.templates.epoch() == epoch


def test_what_is_no_search() -> None:
    with Store.open("sqlite://") as store:
        for query in ("", "  ", "a\nb"):
            with pytest.raises(ConfigError):
                store.templates.search(query)
        for query in ("\x00", "\ud800"):
            with pytest.raises(StorageError):
                store.templates.search(query)
        with pytest.raises(ConfigError, match="attic"):
            store.templates.search("x", places=["attic"])


ODD = [
    "",
    "a\x00",
    "a\ud800",
    "a\n",
    "\x1b[31m",
    "pay\u200bload",
    "р\u0430ураl",
    "\uff41",
    "a\u202e",
    " a",
    "a ",
    "a" * 600,
]


def test_names_that_look_like_others_or_like_none_are_refused_before_anything_is_written(store: Store) -> None:
    two_versions(store)
    for name in ODD:
        for call in (
            lambda name=name: store.templates.push(name, {"a": 1}),
            lambda name=name: store.templates.label("t", name, 1),
            lambda name=name: store.templates.protect("t", name),
            lambda name=name: store.payloads.put(name, {"a": 1}),
        ):
            with pytest.raises(StorageError) as caught:
                call()
            assert caught.value.remedy
    assert [info.name for info in store.templates.list()] == ["t"]
    assert (store.templates.list()[0].labels, store.templates.list()[0].protected) == ({}, ())
    assert store.payloads.list() == []
