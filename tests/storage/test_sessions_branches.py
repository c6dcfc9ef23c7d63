"""Branches, edits and retention against a model: lists in memory. Then their edges, one by one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ctxkit.errors import ConfigError, ConflictError, CtxkitError, NotFoundError, ProtectedError
from ctxkit.messages import Message, ToolCall
from ctxkit.storage import Keep, Store

FRESH = itertools.count()


def user(text: str, id: str = "", **fields: Any) -> Message:  # noqa: A002
    return Message("user", text, id=id, **fields)


def texts(store: Store, session: str, **options: Any) -> list[str]:
    return [message.text for message in store.sessions.messages(session, **options)]


@dataclass
class Model:
    """A session as it should be: every message it ever had, and how much of the beginning has left."""

    said: list[tuple[str, str]] = field(default_factory=list)
    parent: str | None = None
    fork: int = 0
    pinned: int = 0
    archived: int = 0
    deleted: int = 0

    def shown(self, gone: int) -> list[tuple[int, str, str]]:
        numbered = [(number, *said) for number, said in enumerate(self.said, 1)]
        return [each for each in numbered if each[0] <= self.pinned or each[0] > gone]

    def retain(self, keep: int, archive: bool) -> None:
        fresh = not (self.archived or self.deleted)
        leading = next((at for at, (role, _) in enumerate(self.said) if role != "system"), len(self.said))
        pinned = leading if fresh else self.pinned
        there = range(max(pinned, self.archived if archive else self.deleted), len(self.said))
        if len(there) > keep:
            self.pinned = pinned
            through = there[len(there) - keep - 1] + 1
            self.archived = max(self.archived, through)
            if not archive:
                self.deleted = through


names = st.sampled_from(["a", "b", "c", "d"])
roles = st.lists(st.sampled_from(["system", "user", "user", "assistant"]), min_size=1, max_size=4)
numbers = st.integers(0, 9)
operations = st.one_of(
    st.tuples(st.just("append"), names, roles),
    st.tuples(st.just("branch"), names, st.tuples(numbers, names)),
    st.tuples(st.just("edit"), names, st.tuples(numbers, names)),
    st.tuples(st.sampled_from(["archive", "prune"]), names, st.integers(0, 4)),
    st.tuples(st.just("delete"), names, st.booleans()),
)


def descendants(models: dict[str, Model], name: str) -> list[str]:
    children = [child for child, model in models.items() if model.parent == name]
    return children + [each for child in children for each in descendants(models, child)]


def owner(models: dict[str, Model], name: str, number: int) -> str:
    """The session that a message was appended to."""
    model = models[name]
    while number <= model.fork and model.parent is not None:
        name, model = model.parent, models[model.parent]
    return name


def apply(store: Store, models: dict[str, Model], step: tuple[str, str, Any], tag: int) -> None:
    action, name, argument = step
    sessions = store.sessions
    model = models.get(name)
    if action == "append":
        said = [(role, f"{tag}.{at}") for at, role in enumerate(argument)]
        sessions.append(name, [Message(role, text) for role, text in said])  # type: ignore[arg-type]
        models.setdefault(name, Model()).said += said
    elif action == "delete":
        below = descendants(models, name)
        if below and not argument:
            with pytest.raises(ProtectedError):
                sessions.delete(name)
            return
        sessions.delete(name, branches=argument)
        for each in [name, *below]:
            models.pop(each, None)
    elif model is None:
        with pytest.raises(NotFoundError):
            sessions.archive(name, keep=Keep(messages=1))
    elif action in ("archive", "prune"):
        before = (len(model.shown(model.archived)), len(model.shown(model.deleted)))
        done = getattr(sessions, action)(name, keep=Keep(messages=argument))
        model.retain(argument, action == "archive")
        after = (len(model.shown(model.archived)), len(model.shown(model.deleted)))
        assert done.kept == after[0]
        if action == "archive":
            assert (done.archived, done.deleted) == (before[0] - after[0], 0)
        else:
            assert (done.archived, done.deleted) == (0, before[1] - after[1])
    else:
        number, new = argument
        editing = action == "edit"
        bad = not int(editing) <= number <= len(model.said) or model.pinned < number < model.archived + editing
        if bad or new in models:
            with pytest.raises((NotFoundError, ConflictError)):
                branch(store, name, number, new, editing)
            return
        branch(store, name, number, new, editing)
        fork = number - editing
        models[new] = Model(
            model.said[:fork],
            owner(models, name, fork) if fork else name,
            fork,
            min(model.pinned, fork),
            min(model.archived, fork),
            min(model.deleted, fork),
        )
        if editing:
            models[new].said.append(("user", f"new {number}"))


def branch(store: Store, name: str, number: int, new: str, editing: bool) -> None:
    if editing:
        store.sessions.edit(name, number, user(f"new {number}"), name=new)
    else:
        store.sessions.branch(name, at=number, name=new)


def rows(store: Store) -> tuple[int, int]:
    """The rows in the two tables of messages."""
    from sqlalchemy import func

    from ctxkit.storage import tables

    def count(scope: Any) -> tuple[int, ...]:
        both = (tables.messages, tables.archived_messages)
        return tuple(scope.first(scope.select(func.count(), source=table))[0] for table in both)

    active, archived = store._database.read(store.tenant, count)
    return active, archived


@pytest.fixture(scope="module")
def memory() -> Iterator[Store]:
    with Store.open("sqlite://") as store:
        yield store


@settings(max_examples=settings().max_examples // 4)
@given(st.lists(operations, max_size=14))
def test_sessions_are_what_lists_would_be(memory: Store, steps: list[tuple[str, str, Any]]) -> None:
    check_against_lists(memory.for_tenant(f"model {next(FRESH)}"), steps)


@settings(max_examples=5, phases=[Phase.generate])
@given(st.lists(operations, min_size=10, max_size=20))
def test_on_both_databases(opened_store: Store, steps: list[tuple[str, str, Any]]) -> None:
    check_against_lists(opened_store.for_tenant(f"model {next(FRESH)}"), steps)


def check_against_lists(store: Store, steps: list[tuple[str, str, Any]]) -> None:
    models: dict[str, Model] = {}
    for tag, step in enumerate(steps):
        apply(store, models, step, tag)
    infos = {info.id: info for info in store.sessions.list()}
    assert set(infos) == set(models)
    needed: set[tuple[str, int]] = set()
    for name, model in models.items():
        for gone, archived in ((model.archived, False), (model.deleted, True)):
            stored = store.sessions.messages(name, archived=archived)
            assert [(m.sequence, m.role, m.text) for m in stored] == model.shown(gone)
            needed |= {(owner(models, name, number), number) for number, _, _ in model.shown(gone)}
        assert store.sessions.messages(name, last=2) == store.sessions.messages(name)[-2:]
        info = infos[name]
        assert (info.parent, info.fork, info.last_sequence) == (model.parent, model.fork, len(model.said))
        assert info.message_count == len(model.shown(model.archived))
        assert store.sessions.info(name) == info
    assert store.check() == [], "no gaps"
    if not any(model.parent for model in models.values()):
        assert sum(rows(store)) == len(needed), "what is deleted leaves no row"
    store.sessions.append("a", [user("again", "the id")])
    assert store.sessions.append("a", [user("again", "the id")])[0].id == "the id"


class TestBranches:
    @pytest.fixture
    def dialogue(self, tenant_store: Store) -> Store:
        tenant_store.sessions.append("s", [user(text, text) for text in "abcdef"])
        return tenant_store

    def test_a_branch_copies_no_row(self, dialogue: Store) -> None:
        before = rows(dialogue)
        info = dialogue.sessions.branch("s", at="d")
        assert rows(dialogue) == before
        assert (info.id, info.parent, info.fork, info.message_count) == ("s~1", "s", 4, 4)
        assert dialogue.sessions.branch("s", at=2).id == "s~2"
        assert dialogue.sessions.append("s~1", [user("x")])[0] == user("x", "s~1:5", sequence=5)
        dialogue.sessions.append("s", [user("g", "g")])
        assert texts(dialogue, "s~1") == list("abcdx")
        assert texts(dialogue, "s~2") == list("ab")
        assert texts(dialogue, "s") == list("abcdefg")

    def test_an_edit_keeps_the_original_and_says_what_it_replaces(self, dialogue: Store) -> None:
        info = dialogue.sessions.edit("s", "c", user("C", "c2"))
        assert (info.parent, info.fork, info.replaces, info.message_count) == ("s", 2, "c", 3)
        assert texts(dialogue, info.id) == list("abC")
        assert texts(dialogue, "s") == list("abcdef")
        first = dialogue.sessions.edit("s", 1, user("A"), name="anew")
        assert (first.parent, first.fork, first.replaces) == ("s", 0, "a")
        assert texts(dialogue, "anew") == ["A"]
        assert dialogue.sessions.edit("s", "b", user("B", "b")).replaces == "b", "on a branch its id is free"

    def test_the_shared_past_answers_for_its_ids(self, dialogue: Store) -> None:
        dialogue.sessions.branch("s", at=3, name="t")
        assert dialogue.sessions.append("t", [user("b", "b")])[0].sequence == 2
        with pytest.raises(ConflictError):
            dialogue.sessions.append("t", [user("other", "b")])
        assert dialogue.sessions.append("t", [user("other", "e")])[0].sequence == 4, "what came later is not shared"
        with pytest.raises(ConflictError):
            dialogue.sessions.edit("s", "c", user("C", "a"))
        assert [info.id for info in dialogue.sessions.list()] == ["s", "t"], "all or none"

    def test_a_long_chain_of_edits(self, memory: Store) -> None:
        tenant_store = memory.for_tenant("a long chain")
        name, depth = "s", 120
        tenant_store.sessions.append(name, [user("0")])
        for number in range(1, depth):
            tenant_store.sessions.append(name, [user("draft")])
            name = tenant_store.sessions.edit(name, number + 1, user(str(number)), name=f"s{number}").id
        assert texts(tenant_store, name) == [str(number) for number in range(depth)]
        assert texts(tenant_store, name, last=3) == [str(number) for number in range(depth - 3, depth)]
        assert tenant_store.check() == []
        assert tenant_store.sessions.branch(name, at=1).parent == "s", "under whom the message belongs to"
        assert tenant_store.sessions.delete("s", branches=True) == 2 * depth - 1
        assert tenant_store.sessions.list() == []

    def test_a_session_with_branches_is_not_deleted_unasked(self, dialogue: Store) -> None:
        dialogue.sessions.branch("s", at=3, name="t")
        with pytest.raises(ProtectedError, match="t") as caught:
            dialogue.sessions.delete("s")
        assert "branches=True" in caught.value.remedy
        assert dialogue.sessions.delete("t") == 0
        assert dialogue.sessions.delete("s") == 6

    @pytest.mark.parametrize("at", [-1, 7, "nobody", "", True, None, 1.0, "\ud800"])
    def test_not_a_place(self, dialogue: Store, at: Any) -> None:
        with pytest.raises(CtxkitError) as caught:
            dialogue.sessions.branch("s", at=at)
        assert caught.value.remedy
        with pytest.raises(CtxkitError):
            dialogue.sessions.edit("s", at, user("x"))
        with pytest.raises(NotFoundError):
            dialogue.sessions.edit("s", 0, user("x"))
        assert [info.id for info in dialogue.sessions.list()] == ["s"]

    def test_not_a_session_or_not_a_name(self, dialogue: Store) -> None:
        for work in (
            lambda: dialogue.sessions.branch("none", at=0),
            lambda: dialogue.sessions.edit("none", 1, user("x")),
            lambda: dialogue.sessions.info("none"),
            lambda: dialogue.sessions.prune("none", keep=Keep(messages=1)),
        ):
            with pytest.raises(NotFoundError):
                work()
        with pytest.raises(ConflictError):
            dialogue.sessions.branch("s", at=1, name="s")
        for name in ("", "x" * 600, "a\x00"):
            with pytest.raises(CtxkitError):
                dialogue.sessions.branch("s", at=1, name=name)

    async def test_the_async_twins(self, tenant_store: Store) -> None:
        sessions = tenant_store.sessions
        saved = await sessions.aappend("s", [user(text) for text in "abc"])
        assert await sessions.amessages("s", last=2) == saved[1:]
        assert (await sessions.abranch("s", at=2, name="t")).fork == 2
        assert (await sessions.aedit("s", 2, user("B"), name="u")).replaces == "s:2"
        assert (await sessions.aarchive("s", keep=Keep(messages=2))).archived == 1
        assert (await sessions.aprune("s", keep=Keep(messages=1))).deleted == 2
        assert (await sessions.ainfo("s")).message_count == 1
        assert [match.session for match in await sessions.asearch("b")] == ["u", "s"]
        assert len(await sessions.alist()) == 3
        assert await sessions.adelete("s", branches=True) == 4
        with pytest.raises(ConfigError):
            await sessions.aencrypt("s")


def test_a_unit_may_be_split_by_a_branch_and_is_repaired_when_it_is_sent(tenant_store: Store) -> None:
    from ctxkit.history import check_history, repair

    call = Message("assistant", tool_calls=(ToolCall("c", "f"),), id="call")
    tenant_store.sessions.append("s", [user("q"), call, Message("tool", "r", tool_call_id="c"), user("thanks")])
    info = tenant_store.sessions.branch("s", at="call")
    check_history(repair(tenant_store.sessions.messages(info.id)).messages)
