"""Several processes write at once: everybody waits, nobody fails, nothing is lost or numbered twice."""

from __future__ import annotations

import textwrap
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import text

from ctxkit.errors import StorageError
from ctxkit.messages import Message
from ctxkit.storage import Store, database
from tests.storage.making import Workers, document, pieces

PROCESSES = 5
EACH = 10


def together(workers: Workers, url: str, code: str) -> list[str]:
    Store.open(url).close()
    return workers.together(f"store = Store.open(url)\ngo()\n{textwrap.dedent(code)}\nstore.close()", url=url)


def test_fifty_pushes_make_fifty_versions(workers: Workers, store_url: str) -> None:
    together(
        workers,
        store_url,
        """
    for turn in range(10):
        store.templates.push("t", {"text": f"{me} {turn}"})
        store.templates.push("t", {"text": "the same from all"})
""",
    )
    with Store.open(store_url) as store:
        versions = store.templates.versions("t")
        assert [version.version for version in versions] == list(range(1, PROCESSES * EACH + 2))
        assert len({version.hash for version in versions}) == len(versions)


def test_fifty_moves_of_a_label_leave_one_holder_and_fifty_records(workers: Workers, store_url: str) -> None:
    with Store.open(store_url) as store:
        for number in range(PROCESSES):
            store.templates.push("t", {"text": number})
    together(
        workers,
        store_url,
        """
    for turn in range(10):
        store.templates.label("t", "production", 1 + (me + turn) % 5)
""",
    )
    with Store.open(store_url) as store:
        moves = store.templates.label_history("t", "production")
        assert len(moves) == PROCESSES * EACH
        assert moves[0].previous is None
        assert all(later.previous == earlier.version for earlier, later in pairwise(moves)), "each saw the one before"
        assert store.templates.list()[0].labels == {"production": moves[-1].version}


def test_compare_and_swap_lets_one_win(workers: Workers, store_url: str) -> None:
    with Store.open(store_url) as store:
        for number in range(PROCESSES + 1):
            store.templates.push("t", {"text": number})
        store.templates.label("t", "production", 1)
    won = together(
        workers,
        store_url,
        """
    try:
        store.templates.label("t", "production", 2 + me, expected=1)
        print("won")
    except ConflictError:
        pass
""",
    )
    assert Counter(won) == {"won\n": 1, "": PROCESSES - 1}


def test_appends_to_one_session_have_no_gaps(workers: Workers, store_url: str) -> None:
    together(
        workers,
        store_url,
        """
    for turn in range(10):
        store.sessions.append("s", [Message("user", f"{me} {turn} {n}", id=f"{me}-{turn}-{n}") for n in range(2)])
        store.sessions.append("s", [Message("user", "from all", id="shared")])
        store.sessions.append(f"own {me}", [Message("user", "mine")])
""",
    )
    with Store.open(store_url) as store:
        messages = store.sessions.messages("s")
        assert [message.sequence for message in messages] == list(range(1, 2 * PROCESSES * EACH + 2))
        assert len({message.id for message in messages}) == len(messages)
        assert all(
            later.sequence == earlier.sequence + 1
            for earlier, later in pairwise(messages)
            if earlier.id.endswith("-0") and later.id == earlier.id[:-1] + "1"
        )
        for number in range(PROCESSES):
            mine = [message for message in messages if message.id.startswith(f"{number}-")]
            assert [message.text for message in mine] == [
                f"{number} {turn} {n}" for turn in range(EACH) for n in (0, 1)
            ]
            assert len(store.sessions.messages(f"own {number}")) == EACH
        assert store.check() == []


def test_puts_of_own_and_of_the_same_documents(workers: Workers, store_url: str) -> None:
    said = together(
        workers,
        store_url,
        """
    def put(name, text):
        document = Document(name, text, source=name)
        spans = [Span(at, min(at + 4, len(text))) for at in range(0, len(text), 4)]
        print(store.documents.put(document, [Chunk.of(document, span, 1) for span in spans], recipe=str(me)))
    for turn in range(10):
        put(f"{me}-{turn}", "x" * turn)
        put("shared", f"text of {me} " * (turn + 1))
        if turn % 3 == me % 3:
            store.documents.delete(["other", "shared"])
        put("other", str(me) * 10)
""",
    )
    with Store.open(store_url) as store:
        names = {info.id for info in store.documents.list()}
        assert {f"{number}-{turn}" for number in range(PROCESSES) for turn in range(EACH)} <= names
        assert store.check() == [], "every document has exactly its chunks"
        assert Counter(" ".join(said).split())["added"] >= PROCESSES * EACH + 1
        assert store.documents.revision() >= 3 * PROCESSES * EACH
        for info in store.documents.list():
            text = store.documents.get(info.id).text
            keys = store.documents.matching_keys({"document_id": info.id})
            assert keys is not None
            assert "".join(chunk.text for chunk in store.documents.chunks(keys).values()) == text


def test_readers_see_whole_documents_while_they_change(workers: Workers, store_url: str) -> None:
    with Store.open(store_url) as store:
        store.documents.put(document("a" * 50), pieces(document("a" * 50)), recipe="r")
    together(
        workers,
        store_url,
        """
    name = store.documents.list()[0].id
    for turn in range(30):
        if me < 2:
            text = "abcdefghij"[turn % 10] * 50
            document = Document(name, text, source="s")
            chunks = [Chunk.of(document, Span(n, n + 10), 1) for n in range(0, 50, 10)]
            store.documents.put(document, chunks, recipe="r")
        else:
            texts = [chunk.text for chunk in store.documents.chunks(store.documents.keys()).values()]
            assert len({text[0] for text in texts}) <= 1, texts
""",
    )


def test_a_lock_that_is_never_released_is_an_error_in_the_end(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "LOCK_TIMEOUT", 0.3)
    with Store.open(store_url) as store, Store.open(store_url) as other:
        store.sessions.append("s", [Message("user", "a")])
        with other._database._transaction(write=True) as connection:
            if store.kind == "postgresql":
                connection.execute(text("SELECT set_config('ctxkit.tenant', 'default', true)"))
                connection.execute(text("SELECT 1 FROM sessions FOR UPDATE"))
            with pytest.raises(StorageError, match="locked") as caught:
                store.sessions.append("s", [Message("user", "b")])
            assert "Wait for the other writer" in caught.value.remedy
            assert len(store.sessions.messages("s")) == 1, "readers do not wait"
        assert store.sessions.append("s", [Message("user", "b")])[0].sequence == 2


@pytest.mark.postgres
def test_a_server_that_goes_away_and_comes_back(postgresql: Any, postgres_url: str) -> None:
    with Store.open(postgres_url) as store:
        store.sessions.append("s", [Message("user", "a")])
        postgresql.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'ctxkit_app'")
        assert len(store.sessions.messages("s")) == 1, "the pool notices that its connections are gone"
