"""Retrieval over a session's past: cited by message, following the session, of one tenant, on both databases."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from uuid import uuid4

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ctxkit.documents import Query
from ctxkit.errors import ConfigError, NotFoundError, StorageError
from ctxkit.messages import Message
from ctxkit.recall import HistoryRetriever, Ranking
from ctxkit.storage import Encryption, Keep, Store
from ctxkit.testing import HashEmbedder
from tests.recall.dialogues import Counting, past


def ids(retriever: HistoryRetriever, question: str, session: str = "alice", k: int = 50) -> list[str]:
    query = Query(question, session=session, tenant=retriever.store.tenant)
    return [found.chunk.id for found in retriever.retrieve(query, k)]


def test_a_turn_is_found_and_cited_by_its_message(store: Store) -> None:
    store.sessions.append("alice", past(20))
    found = HistoryRetriever(store, HashEmbedder()).retrieve(Query("Who plays the violin?", session="alice"), 3)
    first = found[0]
    assert first.chunk.document_id == first.chunk.id
    assert first.chunk.id in {"m2", "m7", "m17"}
    assert first.text == next(one.text for one in store.sessions.messages("alice") if one.id == first.chunk.id)
    assert first.sources[0].source == f"alice/{first.chunk.id}"
    assert {"dense", "lexical", "time", "final"} == set(first.scores)
    assert all(0 <= score <= 1 for one in found for score in one.scores.values())
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)


def test_a_day_alone_finds_its_turns(store: Store) -> None:
    when = [datetime(2023, 5, day, 12, tzinfo=UTC) for day in range(1, 20)]
    said = [Message("user", "Went running.", id=f"d{at.day}", name="Caroline", created_at=at) for at in when]
    store.sessions.append("alice", said)
    found = ids(HistoryRetriever(store, None), "What did Caroline do on 7 May 2023?")
    assert found[0] == "d7", "no word of the question is in a turn: who and when decide"
    assert len(found) == len(said)
    assert ids(HistoryRetriever(store, None), "What did he do?") == []


def test_a_call_and_its_results_are_one_unit(store: Store) -> None:
    store.sessions.append("alice", past(8))
    (found,) = HistoryRetriever(store, None).retrieve(Query("rain number", session="alice"), 1)
    assert found.chunk.metadata["message_ids"] == ["m5", "m5r"]
    assert "Bergen" in found.text
    assert "rain number 5" in found.text


def test_dates_in_the_question_decide_between_equals(store: Store) -> None:
    store.sessions.append("alice", past(90))
    retriever = HistoryRetriever(store, HashEmbedder())
    now = datetime(2023, 8, 1, tzinfo=UTC)
    for question, month in (("Which tomatoes were planted in May?", 5), ("Which tomatoes were planted last July?", 7)):
        best = retriever.retrieve(Query(question, session="alice", now=now), 1)[0]
        assert "tomatoes" in best.text
        assert datetime.fromisoformat(best.chunk.metadata["created_at"]).month == month
        assert best.scores["time"] == 1
        assert best.via[-1] in question
    undated = HistoryRetriever(store, None, ranking=Ranking(floor=1.0))
    assert {one.scores["time"] for one in undated.retrieve(Query("tomatoes in May", session="alice", now=now), 9)} == {
        1
    }
    # Without `now` the newest message is the day that is asked on: the store's clock is never looked at.
    assert retriever.retrieve(Query("What was said yesterday?", session="alice"), 1)[0].chunk.metadata["sequence"] > 95


def test_the_index_follows_the_session(store: Store) -> None:
    sessions = store.sessions
    sessions.append("alice", past(10))
    retriever = HistoryRetriever(store, Counting())
    assert "new" not in ids(retriever, "violin zebra")
    sessions.append("alice", [Message("user", "A zebra ran by.", id="new")])
    assert ids(retriever, "violin zebra")[0] == "new"
    sessions.edit("alice", "new", Message("user", "A giraffe ran by.", id="edited"), name="other")
    assert "edited" not in ids(retriever, "giraffe zebra")
    assert ids(retriever, "giraffe zebra", "other")[0] == "edited"
    assert "new" not in ids(retriever, "giraffe zebra", "other")
    assert "m2" in ids(retriever, "violin", "other")  # the shared past
    sessions.rewind("other", 1, messages=[Message("user", "An owl.", id="owl")])
    assert "edited" not in ids(retriever, "giraffe owl", "other")
    sessions.branch("alice", at=4, name="early")
    assert set(ids(retriever, "planted lamp violin train", "early")) <= {"m0", "m1", "m2", "m3"}
    sessions.archive("alice", keep=Keep(messages=2))
    assert set(ids(retriever, "violin zebra dentist lamp")) <= {"m8", "m9", "new"}
    sessions.delete("alice", branches=True)
    with pytest.raises(NotFoundError):
        ids(retriever, "violin")
    sessions.append("alice", [Message("user", "Anew.", id="m2")])
    assert ids(retriever, "anew violin") == ["m2"]
    assert retriever.retrieve(Query("anew", session="alice"), 1)[0].text == "Anew."


def test_each_message_is_embedded_once_and_its_vector_goes_with_it(store_url: str) -> None:
    first = Counting()
    with Store.open(store_url) as store:
        store.sessions.append("alice", past(10))
        assert HistoryRetriever(store, first).update("alice") == 10
        assert len(first.texts) == 10
        store.sessions.branch("alice", at=5, name="b")
    second = Counting()
    with Store.open(store_url) as store:  # as another process would
        retriever = HistoryRetriever(store, second)
        expected = ids(retriever, "violin")
        assert second.texts == ["violin"]
        assert expected == ids(HistoryRetriever(store, second), "violin")
        ids(HistoryRetriever(store, second), "violin", "b")  # a branch uses the vectors of the shared past
        assert set(second.texts) == {"violin"}
        assert len(store.sessions.vectors("alice", "hash-32")) == 10
        store.sessions.append("alice", [Message("user", "One more.")])
        ids(retriever, "violin")
        assert second.texts.count("One more.") == 1
        store.sessions.delete("b")
        store.sessions.prune("alice", keep=Keep(messages=3))
        left = {message.sequence for message in store.sessions.messages("alice")}
        assert set(store.sessions.vectors("alice", "hash-32")) <= left
        store.sessions.delete("alice")
        assert store.sessions.vectors("alice", "hash-32") == {}


def test_another_process_is_followed(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store:
        store.sessions.append("alice", past(5))
        retriever = HistoryRetriever(store, HashEmbedder())
        ids(retriever, "violin")
        code = (
            "import sys; from ctxkit.messages import Message; from ctxkit.storage import Store\n"
            "from ctxkit.recall import HistoryRetriever; from ctxkit.testing import HashEmbedder\n"
            "store = Store.open(sys.argv[1])\n"
            "store.sessions.append('alice', [Message('user', 'A zebra ran by.', id='theirs')])\n"
            "HistoryRetriever(store, HashEmbedder()).update('alice')\n"
        )
        subprocess.run([sys.executable, "-c", code, sqlite_url], check=True, timeout=120)
        assert ids(retriever, "zebra")[0] == "theirs"
        assert len(store.sessions.vectors("alice", HashEmbedder().fingerprint)) == 5 + 1


def test_tenants_never_meet(store: Store) -> None:
    other = store.for_tenant("other")
    store.sessions.append("alice", [Message("user", "My code is 4711.", id="m0")])
    other.sessions.append("alice", [Message("user", "Their code is 9999.", id="m0")])
    mine, theirs = HistoryRetriever(store, Counting()), HistoryRetriever(other, Counting())
    for retriever, text in ((mine, "My code is 4711."), (theirs, "Their code is 9999.")):
        query = Query("Which code?", session="alice", tenant=retriever.store.tenant)
        assert [one.text for one in retriever.retrieve(query, 9)] == [text]
    assert len(other.sessions.vectors("alice", "hash-32")) == 1
    third = store.for_tenant("third")
    assert third.sessions.vectors("alice", "hash-32") == {}
    assert third.sessions.put_vectors("alice", "hash-32", dict(store.sessions.vectors("alice", "hash-32"))) == 0
    with pytest.raises(ConfigError):
        mine.retrieve(Query("Which code?", session="alice", tenant="other"), 1)


def test_of_encrypted_messages_no_vector_is_kept_unless_asked(store_url: str) -> None:
    keys = Encryption.of(bytes(32))
    with Store.open(store_url) as plain:
        plain.sessions.append("alice", past(4))
        HistoryRetriever(plain, Counting()).update("alice")
        assert len(plain.sessions.vectors("alice", "hash-32")) == 4
    with Store.open(store_url, encryption=keys) as store:
        store.sessions.encrypt("alice")
        assert store.sessions.vectors("alice", "hash-32") == {}  # those that were there are gone
        assert ids(HistoryRetriever(store, Counting()), "violin")[0] == "m2"
        assert store.sessions.vectors("alice", "hash-32") == {}
        HistoryRetriever(store, Counting(), store_encrypted=True).update("alice")
        assert len(store.sessions.vectors("alice", "hash-32")) == 4
    with Store.open(store_url) as store, pytest.raises(StorageError):
        ids(HistoryRetriever(store, None), "violin")


operations = st.lists(
    st.tuples(st.sampled_from(("append", "rewind", "prune", "archive", "delete", "ask")), st.integers(1, 4)),
    max_size=12,
)


@pytest.fixture(scope="module")
def shared() -> Iterator[Store]:
    with Store.open("sqlite://") as store:
        yield store


@given(operations)
@settings(max_examples=40)
def test_whatever_happened_it_answers_as_a_new_one_does(shared: Store, steps: list[tuple[str, int]]) -> None:
    question = "What did Ilse pay for the lamp in the garden, and was the train late?"
    sessions, name = shared.sessions, f"dialogue {uuid4()}"
    kept = HistoryRetriever(shared, HashEmbedder(16))
    sessions.append(name, [Message("user", "Hello.")])
    for number, (step, count) in enumerate(steps):
        if step == "append":
            sessions.append(name, past(count, prefix=f"s{number}-"))
        elif step == "rewind":
            sessions.rewind(name, count)
        elif step in ("prune", "archive"):
            getattr(sessions, step)(name, keep=Keep(messages=count))
        elif step == "delete":
            sessions.delete(name)
            sessions.append(name, past(count))
        else:
            kept.update(name)
    query = Query(question, session=name)
    seen = {message.id for message in sessions.messages(name)}
    expected = HistoryRetriever(shared, HashEmbedder(16)).retrieve(query, 50)
    assert kept.retrieve(query, 50) == expected
    assert {one.chunk.id for one in expected} <= seen


def test_what_is_wrong_is_said() -> None:
    with Store.open("sqlite://") as store:
        retriever = HistoryRetriever(store, None)
        with pytest.raises(ConfigError):
            retriever.retrieve(Query("x"), 1)
        with pytest.raises(NotFoundError):
            retriever.retrieve(Query("x", session="nobody"), 1)
        store.sessions.append("alice", [Message("user", "Hello.")])
        with pytest.raises(ConfigError):
            retriever.retrieve(Query("x", session="alice"), 0)
        assert retriever.retrieve(Query("  ", session="alice"), 1) == []
        assert retriever.retrieve(Query("zebra", session="alice"), 1) == []
        for wrong in ({"floor": 2}, {"beside": (-1.0,)}, {"sitting": -1}, {"slack": 0}, {"about": -0.1}):
            with pytest.raises(ConfigError):
                Ranking(**wrong)  # type: ignore[arg-type]
        with pytest.raises(ConfigError):
            HistoryRetriever(store, None, pause="soon")  # type: ignore[arg-type]


@pytest.mark.parametrize("made", [lambda: past(60), list], ids=["some", "none"])
def test_messages_that_are_in_no_store_are_ranked_too(made: Callable[[], list[Message]]) -> None:
    with Store.open("sqlite://") as store:
        entries, ranked = HistoryRetriever(store, HashEmbedder()).rank(None, made(), "the violin", None)
        assert len(ranked.final) == len(entries)
        assert not entries or entries[ranked.order()[0]].id in {f"m{at}" for at in range(60)}


def test_long_pauses_part_sittings() -> None:
    from ctxkit.recall.entries import entries

    quick = [
        Message("user", "a", created_at=datetime(2023, 1, 1, 9, tzinfo=UTC) + timedelta(hours=at)) for at in (0, 1, 9)
    ]
    assert [one.sitting for one in entries(quick, timedelta(hours=4))] == [0, 0, 1]


def test_several_sessions_are_searched_in_one_ranking(store: Store) -> None:
    store.sessions.append("alice", past(6))
    store.sessions.branch("alice", at=3, name="branch")
    store.sessions.append("branch", [Message("user", "The violin was sold.", id="sold")])
    store.sessions.append("bob", [Message("user", "My violin has four strings.", id="m2")])
    embedder = Counting()
    found = HistoryRetriever(store, embedder).search("Where is the violin?", 10)
    held = [(one.chunk.metadata["session"], one.chunk.id) for one in found if "violin" in one.text]
    assert sorted(held) == [("alice", "m2"), ("bob", "m2"), ("branch", "sold")]  # what is shared stands once
    assert embedder.texts.count("Where is the violin?") == 1
    only = HistoryRetriever(store, None).search("Where is the violin?", 10, sessions=["bob"])
    assert {one.chunk.metadata["session"] for one in only} == {"bob"}
    assert HistoryRetriever(store, None).search(" ", 10) == []
    with pytest.raises(ConfigError):
        HistoryRetriever(store, None).search("violin", 0)


def test_what_search_cannot_do_is_said() -> None:
    with Store.open("sqlite://") as store:
        store.sessions.append("alice", [Message("user", "The violin.")])
        retriever = HistoryRetriever(store, None)
        with pytest.raises(NotFoundError):
            retriever.search("violin", 1, sessions=["alice", "nobody"])
        for wrong in ({"sessions": "alice"}, {"now": "tomorrow"}, {"now": date(2024, 1, 1)}):
            with pytest.raises(ConfigError):
                retriever.search("violin", 1, **wrong)  # type: ignore[arg-type]
        with pytest.raises(ConfigError):
            retriever.search(5, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "hours"), [(datetime(1, 1, 1, tzinfo=UTC), -8), (datetime(9999, 12, 31, 23, tzinfo=UTC), 8)]
)
def test_a_message_of_the_first_or_the_last_day_of_the_calendar(said: datetime, hours: int) -> None:
    now = datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=hours)))
    with Store.open("sqlite://") as store:
        store.sessions.append("alice", [Message("user", "The violin.", id="v", created_at=said)])
        query = Query("Where was the violin yesterday?", session="alice", now=now)
        assert [one.chunk.id for one in HistoryRetriever(store, None).retrieve(query, 5)] == ["v"]


class Failing(HashEmbedder):
    """Fails for texts that hold a word, while `broken`."""

    broken = True

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if self.broken and any("cello" in text for text in texts):
            raise StorageError("the machine is gone", remedy="Ask again.")
        return super().embed(texts)


def test_after_an_embedder_failed_it_answers_as_a_new_one_does(store: Store) -> None:
    store.sessions.append("alice", [Message("user", f"The violin has {at} strings.") for at in range(6)])
    embedder = Failing(64)
    retriever = HistoryRetriever(store, embedder)
    before = ids(retriever, "violin strings 4")
    store.sessions.rewind("alice", 5, messages=[Message("user", f"The cello has {at} keys.") for at in range(5)])
    with pytest.raises(StorageError):
        ids(retriever, "violin strings 4")
    embedder.broken = False
    query = Query("Which cello has 3 keys?", session="alice")
    assert retriever.retrieve(query, 50) == HistoryRetriever(store, HashEmbedder(64)).retrieve(query, 50)
    assert ids(retriever, "violin strings 4") != before
