"""Encryption at rest: nothing said is in the file, a wrong key or a moved ciphertext is an error, never garbage."""

from __future__ import annotations

import pickle
import sqlite3
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from ctxkit.errors import ConfigError, ConflictError, MissingExtraError, StorageError
from ctxkit.messages import Message, Part, ToolCall
from ctxkit.storage import Encryption, Keep, Store
from tests.storage.making import shared
from tests.strategies import stored_texts

OLD, NEW = b"o" * 32, b"n" * 16
SECRET = "the word is xylophone"


def dialogue() -> list[Message]:
    return [
        Message("user", SECRET, id="1", name="ann"),
        Message(
            "assistant", (Part("reasoning", SECRET), Part(text="猫")), (ToolCall("c", "f", f'{{"a": "{SECRET}"}}'),)
        ),
        Message("tool", SECRET, tool_call_id="c"),
    ]


def statement(store: Store, sql: str, tenant: str = "default") -> Any:
    with store._database._engine.begin() as connection:
        if store.kind == "postgresql":
            connection.execute(text("SELECT set_config('ctxkit.tenant', :tenant, true)"), {"tenant": tenant})
        found = connection.execute(text(sql))
        return found.all() if found.returns_rows else found.rowcount


@pytest.fixture
def opened(store_url: str) -> Any:
    """Opens the store with these keys; everything is closed at the end."""
    stores = []

    def open_(encryption: Encryption | None = None, **options: Any) -> Store:
        stores.append(Store.open(store_url, encryption=encryption, **options))
        return stores[-1]

    yield open_
    for store in stores:
        store.close()


Opened = Callable[..., Store]


@shared
@given(stored_texts, st.lists(stored_texts, max_size=2), st.binary(min_size=32, max_size=32))
def test_what_is_sealed_opens_at_its_place_alone(said: str, place: list[str], key: bytes) -> None:
    encryption = Encryption.of(key)
    sealed = encryption.seal(said, place)
    assert encryption.open(sealed, encryption.current, place) == said
    assert encryption.seal(said, place) != sealed, "a nonce is not used twice"
    other = Encryption.of(key[:31] + bytes([key[31] ^ 1]), key_id=encryption.current)
    changed = sealed[:-4] + ("AAA=" if not sealed.endswith("AAA=") else "AAE=")
    for wrong, with_, where in (
        (sealed, encryption, [*place, ""]),
        (sealed, other, place),
        (changed, encryption, place),
        (sealed[:10], encryption, place),
        ("%%", encryption, place),
        ("", encryption, place),
    ):
        with pytest.raises(StorageError) as caught:
            with_.open(wrong, encryption.current, where)
        assert caught.value.remedy


def test_nothing_said_is_in_the_file(sqlite_url: str) -> None:
    with Store.open(sqlite_url, encryption=Encryption.of(OLD)) as store:
        saved = store.sessions.append("s", dialogue())
        assert store.sessions.messages("s") == saved
        assert [message.content for message in saved] == [message.content for message in dialogue()]
        path = store.path
    assert path is not None
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    content = path.read_bytes()
    assert b"xylophone" not in content and "猫".encode() not in content
    assert b"ann" in content, "names, roles and ids are in the clear, and the page on sessions says so"


class TestKeys:
    def test_without_a_key_nothing_is_read_or_added(self, opened: Opened) -> None:
        opened(Encryption.of(OLD)).sessions.append("s", dialogue())
        plain = opened()
        for work in (
            lambda: plain.sessions.messages("s"),
            lambda: plain.sessions.append("s", [Message("user", "in the clear")]),
            lambda: plain.sessions.append("s", dialogue()[:1]),
            lambda: plain.sessions.search("word"),
            lambda: plain.sessions.archive("s", keep=Keep(messages=1)),
        ):
            with pytest.raises(StorageError, match="encrypted") as caught:
                work()
            assert "encryption=" in caught.value.remedy
        assert plain.sessions.info("s").encrypted
        branch = plain.sessions.branch("s", at=1, name="t")
        assert branch.encrypted
        with pytest.raises(StorageError, match="encrypted"):
            plain.sessions.append("t", [Message("user", "in the clear")])
        assert plain.sessions.delete("s", branches=True) == 3

    def test_a_wrong_key_of_the_same_id_and_a_missing_one(self, opened: Opened) -> None:
        opened(Encryption.of(OLD, key_id="k")).sessions.append("s", dialogue())
        with pytest.raises(StorageError, match="another one") as caught:
            opened(Encryption.of(NEW, key_id="k")).sessions.messages("s")
        assert caught.value.subject == "s/1"
        with pytest.raises(StorageError, match="no key 'k'"):
            opened(Encryption.of(NEW, key_id="other")).sessions.messages("s")

    def test_keys_are_rotated_while_old_messages_stay_readable(self, opened: Opened) -> None:
        saved = opened(Encryption(keys={"old": OLD}, current="old")).sessions.append("s", dialogue())
        both = opened(Encryption(keys={"old": OLD, "new": NEW}, current="new"))
        saved += both.sessions.append("s", [Message("user", "later")])
        both.sessions.archive("s", keep=Keep(messages=1))
        assert both.sessions.messages("s", archived=True) == saved
        assert both.sessions.append("s", dialogue()[:1]) == saved[:1], "the same id is compared with what it says"
        with pytest.raises(ConflictError):
            both.sessions.append("s", [Message("user", "other", id="1")])
        assert both.sessions.encrypt("s") == 3
        assert both.sessions.encrypt("s") == 0
        assert opened(Encryption.of(NEW, key_id="new")).sessions.messages("s", archived=True) == saved

    def test_a_plain_session_becomes_encrypted(self, opened: Opened) -> None:
        saved = opened().sessions.append("s", dialogue())
        store = opened(Encryption.of(OLD))
        assert store.sessions.messages("s") == saved
        assert not store.sessions.info("s").encrypted
        saved += store.sessions.append("s", [Message("user", "more")])
        assert store.sessions.encrypt("s") == 3
        assert store.sessions.messages("s") == saved
        assert not statement(store, "SELECT 1 FROM messages WHERE content LIKE '%xylophone%' OR key_id IS NULL")

    def test_a_function_gives_keys_and_is_asked_once(self, opened: Opened) -> None:
        asked = []

        def provider(key_id: str) -> bytes:
            asked.append(key_id)
            if key_id != "a":
                raise LookupError("s3cret of the service")
            return OLD

        store = opened(Encryption(keys=provider, current="a"))
        saved = store.sessions.append("s", dialogue())
        assert store.sessions.messages("s") == saved
        assert asked == ["a"]
        with pytest.raises(StorageError, match="no key 'b'") as caught:
            opened(Encryption(keys=provider, current="b")).sessions.append("s", [Message("user", "x")])
        assert "s3cret" not in str(caught.value)
        with pytest.raises(ConfigError):
            opened(Encryption(keys=lambda key_id: b"short", current="c")).sessions.append("u", dialogue())

    def test_a_search_decrypts_and_a_branch_reads_its_past(self, opened: Opened) -> None:
        store = opened(Encryption.of(OLD))
        store.sessions.append("s", dialogue())
        assert [match.message.sequence for match in store.sessions.search("XYLOPHONE")] == [3, 2, 1]
        store.sessions.edit("s", "1", Message("user", "new"), name="t")
        store.sessions.branch("s", at=2, name="u")
        assert [message.text for message in store.sessions.messages("t")] == ["new"]
        assert store.sessions.messages("u") == store.sessions.messages("s")[:2]

    def test_tenants_of_one_store_share_its_keys(self, opened: Opened) -> None:
        view = opened(Encryption.of(OLD)).for_tenant("acme")
        view.sessions.append("s", dialogue())
        assert view.sessions.info("s").encrypted


class TestMoved:
    """Whoever can write to the database, but has no key, cannot pass one message off as another."""

    @pytest.mark.parametrize(
        "change",
        [
            "UPDATE messages SET session_id = 't', sequence = 9, id = 'x' WHERE session_id = 's' AND sequence = 1",
            "UPDATE messages SET content = (SELECT content FROM messages WHERE session_id = 't' AND sequence = 1) "
            "WHERE session_id = 's' AND sequence = 1",
            "UPDATE messages SET role = 'system' WHERE session_id = 's' AND sequence = 1",
            "UPDATE messages SET name = 'root' WHERE session_id = 's' AND sequence = 1",
            "UPDATE messages SET id = 'y' WHERE session_id = 's' AND sequence = 1",
            "UPDATE messages SET tool_call_id = 'd' WHERE session_id = 's' AND sequence = 3",
            "UPDATE messages SET key_id = 'k2' WHERE session_id = 's' AND sequence = 1",
        ],
    )
    def test_within_a_tenant(self, opened: Opened, change: str) -> None:
        store = opened(Encryption(keys={"k": OLD, "k2": OLD}, current="k"))
        for session in ("s", "t"):
            store.sessions.append(session, dialogue())
        statement(store, "UPDATE sessions SET last_sequence = 9")
        assert statement(store, change) == 1
        with pytest.raises(StorageError, match="moved or changed"):
            store.sessions.messages("t" if "session_id = 't', " in change else "s")

    def test_to_another_tenant(self, sqlite_url: str) -> None:
        with Store.open(sqlite_url, encryption=Encryption.of(OLD)) as store:
            store.sessions.append("s", dialogue())
            statement(
                store,
                "INSERT INTO sessions (tenant, id, last_sequence, created_at, updated_at) "
                "SELECT 'b', id, last_sequence, created_at, updated_at FROM sessions",
            )
            statement(store, "UPDATE messages SET tenant = 'b'")
            with pytest.raises(StorageError, match="moved or changed"):
                store.for_tenant("b").sessions.messages("s")


class TestWrongSettings:
    @pytest.mark.parametrize(
        "wrong",
        [
            {"keys": {"k": b"short"}, "current": "k"},
            {"keys": {"k": "x" * 32}, "current": "k"},
            {"keys": {"k": OLD}, "current": "other"},
            {"keys": {"k": OLD}, "current": ""},
            {"keys": {"k": OLD}, "current": None},
            {"keys": OLD, "current": "k"},
        ],
    )
    def test_not_keys(self, wrong: Any) -> None:
        with pytest.raises(ConfigError) as caught:
            Encryption(**wrong)
        assert caught.value.remedy

    def test_a_key_is_no_encryption(self) -> None:
        with pytest.raises(ConfigError, match="bytes"):
            Store.open("sqlite://", encryption=OLD)  # type: ignore[arg-type]

    def test_keys_are_not_shown_and_not_sent(self, sqlite_url: str) -> None:
        encryption = Encryption.of(OLD)
        assert "ooo" not in repr(encryption)
        with Store.open(sqlite_url, encryption=encryption) as store:
            assert "ooo" not in repr(store)
            with pytest.raises(StorageError, match="keys"):
                pickle.dumps(store)

    def test_without_the_package(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "cryptography", None)
        with pytest.raises(MissingExtraError) as caught:
            Encryption.of(OLD)
        assert caught.value.extra == "encryption"
