"""Taking the newest messages back, on both databases."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from ctxkit.errors import ConfigError, ConflictError, ProtectedError, StorageError
from ctxkit.messages import Message
from ctxkit.storage import Encryption, Keep, Store


def said(store: Store, session: str = "s") -> list[tuple[int, str]]:
    return [(message.sequence, message.text) for message in store.sessions.messages(session)]


def fill(store: Store, count: int = 5, session: str = "s") -> None:
    store.sessions.append(session, [Message("user", str(number)) for number in range(1, count + 1)])


def test_the_newest_go_and_numbers_go_on_from_what_is_left(tenant_store: Store) -> None:
    store = tenant_store
    fill(store)
    gone = store.sessions.rewind("s", 2)
    assert [message.text for message in gone] == ["4", "5"]
    assert [message.sequence for message in gone] == [4, 5]
    (new,) = store.sessions.append("s", [Message("user", "four")])
    assert (new.sequence, new.id) == (4, "s:4")
    assert said(store) == [(1, "1"), (2, "2"), (3, "3"), (4, "four")]
    assert store.sessions.info("s").message_count == 4
    assert store.check() == []


def test_others_take_their_place_in_one_transaction(tenant_store: Store) -> None:
    store = tenant_store
    fill(store)
    (kept,) = store.sessions.messages("s", last=1)
    gone = store.sessions.rewind("s", 3, messages=[Message("user", "three"), kept], expected=5)
    assert len(gone) == 3
    assert said(store) == [(1, "1"), (2, "2"), (3, "three"), (4, "5")]
    with pytest.raises(StorageError):
        store.sessions.rewind("s", 4, messages=[Message("user", "a\x00b")])
    with pytest.raises(ConflictError):  # an id of what is left, with another content: nothing is taken back either
        store.sessions.rewind("s", 2, messages=[Message("user", "other", id="s:1")])
    assert len(said(store)) == 4


def test_nothing_and_more_than_there_is(tenant_store: Store) -> None:
    store = tenant_store
    assert store.sessions.rewind("s", 3) == []
    assert store.sessions.rewind("s", 0, messages=[Message("user", "first")], expected=0) == []
    assert [message.text for message in store.sessions.rewind("s", 9)] == ["first"]
    assert store.sessions.rewind("s", 1) == []
    assert said(store) == []
    for wrong in (-1, True, 1.5):
        with pytest.raises(ConfigError):
            store.sessions.rewind("s", wrong)  # type: ignore[arg-type]


def test_what_somebody_else_has_changed_stays(tenant_store: Store) -> None:
    store = tenant_store
    fill(store)
    for expected in (0, 4, 6):
        with pytest.raises(ConflictError) as caught:
            store.sessions.rewind("s", 1, expected=expected)
        assert caught.value.remedy
    assert len(said(store)) == 5


def test_what_a_branch_shares_and_what_is_archived_stays(tenant_store: Store) -> None:
    store = tenant_store
    fill(store)
    store.sessions.branch("s", at=3, name="b")
    store.sessions.append("b", [Message("user", "own")])
    for session, count in (("s", 3), ("b", 2)):
        with pytest.raises(ProtectedError):
            store.sessions.rewind(session, count)
    assert len(store.sessions.rewind("s", 2)) == 2
    assert len(store.sessions.rewind("b", 1)) == 1
    assert said(store) == said(store, "b") == [(1, "1"), (2, "2"), (3, "3")]
    fill(store, 6, "old")
    store.sessions.archive("old", keep=Keep(messages=2))
    assert len(store.sessions.rewind("old", 5)) == 2, "only what is shown is taken back"
    assert len(store.sessions.messages("old", archived=True)) == 4


async def test_an_encrypted_session_and_the_async_twin(sqlite_url: str) -> None:
    with Store.open(sqlite_url, encryption=Encryption.of(bytes(32))) as store:
        fill(store)
        (gone,) = await store.sessions.arewind("s", 1, messages=[Message("user", "five")])
        assert gone.text == "5"
        assert said(store)[-1] == (5, "five")


def test_writers_that_take_back_at_once_take_each_message_once(store: Store) -> None:
    fill(store, 40)
    with ThreadPoolExecutor(8) as pool:
        gone = [
            message.text for taken in pool.map(lambda _: store.sessions.rewind("s", 1), range(40)) for message in taken
        ]
    assert sorted(gone, key=int) == [str(number) for number in range(1, 41)]
    assert said(store) == []
