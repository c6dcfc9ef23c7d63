"""Dialogues: exact round trips, gapless numbers, appending twice changes nothing."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.errors import ConfigError, ConflictError, NotFoundError, StorageError
from ctxkit.messages import Message, Part, ToolCall
from ctxkit.storage import Store
from tests.storage.making import shared
from tests.storage.test_checks import json_values
from tests.strategies import stored_texts

short = stored_texts.map(lambda text: text[:30])
parts = st.builds(
    Part,
    kind=st.sampled_from(["text", "image", "reasoning", "audio"]),
    text=short,
    data=st.dictionaries(short, json_values, max_size=2),
)
contents = stored_texts | st.lists(parts, max_size=3).map(tuple)
times = st.none() | st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-3, minutes=-30))]))
calls = st.lists(st.builds(ToolCall, id=short, name=short, arguments=stored_texts), max_size=3).map(tuple)
messages = st.one_of(
    st.builds(
        Message, role=st.sampled_from(["system", "user"]), content=contents, name=st.none() | short, created_at=times
    ),
    st.builds(Message, role=st.just("assistant"), content=contents, tool_calls=calls, created_at=times),
    st.builds(
        Message, role=st.just("tool"), content=contents, tool_call_id=short, name=st.none() | short, created_at=times
    ),
)


def user(text: str, id: str = "", **fields: Any) -> Message:  # noqa: A002
    return Message("user", text, id=id, **fields)


@shared
@given(st.lists(messages, max_size=6), st.integers(0, 6))
def test_messages_come_back_exactly(store: Store, given_: list[Message], last: int) -> None:
    store.sessions.delete("s")
    saved = store.sessions.append("s", given_[:3]) + store.sessions.append("s", given_[3:])
    assert saved == [
        dataclasses.replace(message, id=f"s:{number}", sequence=number) for number, message in enumerate(given_, 1)
    ]
    back = store.sessions.messages("s")
    assert back == saved
    assert [message.created_at and message.created_at.isoformat() for message in back] == [
        message.created_at and message.created_at.isoformat() for message in given_
    ]
    assert [message.to_openai() for message in back] == [message.to_openai() for message in given_]
    assert store.sessions.messages("s", last=last) == (saved[-last:] if last else [])
    assert store.sessions.append("s", back) == back, "appending again what was read changes nothing"
    assert store.sessions.messages("s") == saved


class TestAppending:
    def test_nothing_makes_no_session(self, store: Store) -> None:
        assert store.sessions.append("s", []) == []
        assert store.sessions.list() == []
        assert store.sessions.messages("s") == []

    def test_the_same_id_twice_is_one_message(self, store: Store) -> None:
        first = store.sessions.append("s", [user("a", "1"), user("b", "2")])
        again = store.sessions.append("s", [user("b", "2"), user("c", "3"), user("c", "3"), user("a", "1")])
        assert [(message.id, message.sequence) for message in again] == [("2", 2), ("3", 3), ("3", 3), ("1", 1)]
        assert store.sessions.messages("s") == [*first, again[1]]

    def test_a_retry_with_a_later_time_is_the_same_message(self, store: Store) -> None:
        at = datetime(2026, 1, 1, tzinfo=UTC)
        (stored,) = store.sessions.append("s", [user("a", "1", created_at=at)])
        assert store.sessions.append("s", [user("a", "1", created_at=at + timedelta(hours=1))]) == [stored]

    def test_the_order_of_keys_in_a_part_is_no_difference(self, store: Store) -> None:
        one = Message("user", (Part("image", data={"url": "u", "width": 1}),), id="1")
        other = Message("user", (Part("image", data={"width": 1, "url": "u"}),), id="1")
        assert store.sessions.append("s", [one]) == store.sessions.append("s", [other])

    @pytest.mark.parametrize(
        "other",
        [
            Message("user", "b", id="1"),
            Message("user", "a", id="1", name="n"),
            Message("assistant", "a", id="1"),
            Message("user", (Part("reasoning", text="a"),), id="1"),
            Message("tool", "a", id="1", tool_call_id="c"),
        ],
        ids=["content", "name", "role", "parts", "tool"],
    )
    def test_the_same_id_with_another_content_is_a_conflict(self, store: Store, other: Message) -> None:
        store.sessions.append("s", [user("a", "1")])
        with pytest.raises(ConflictError) as caught:
            store.sessions.append("s", [user("new", "2"), other])
        assert caught.value.subject == "s/1"
        assert [message.id for message in store.sessions.messages("s")] == ["1"], "all or none"
        assert store.sessions.append("t", [other])[0].sequence == 1, "another session has its own ids"
        with pytest.raises(ConflictError):
            store.sessions.append("u", [user("a", "1"), other])
        assert store.sessions.messages("u") == []

    def test_text_that_looks_like_json_is_compared_as_it_is(self, store: Store) -> None:
        store.sessions.append("s", [user('{"a": 1}', "1")])
        with pytest.raises(ConflictError):
            store.sessions.append("s", [user('{"a":1}', "1")])
        store.sessions.append("s", [Message("assistant", "", (ToolCall("c", "f", '{"a": 1}'),), id="2")])
        with pytest.raises(ConflictError):
            store.sessions.append("s", [Message("assistant", "", (ToolCall("c", "f", '{"a":1}'),), id="2")])
        store.sessions.append("s", [user("x", "3", name='["a", 1]')])
        with pytest.raises(ConflictError):
            store.sessions.append("s", [user("x", "3", name='["a",1]')])

    def test_made_ids_step_aside_for_given_ones(self, store: Store) -> None:
        saved = store.sessions.append("s", [user("a", "s:2"), user("b"), user("c", "s:4"), user("d"), user("e", "s:5")])
        assert [message.sequence for message in saved] == [1, 2, 3, 4, 5]
        assert len({message.id for message in saved}) == 5
        assert store.sessions.messages("s") == saved

    def test_made_ids_step_aside_for_ids_given_later_in_the_same_append(self, store: Store) -> None:
        store.sessions.append("s", [user("z", "s:3.1")])
        saved = store.sessions.append("s", [user("a"), user("b"), user("c", "s:2"), user("d", "s:3")])
        assert [message.id for message in saved] == ["s:2.1", "s:3.2", "s:2", "s:3"]
        assert store.sessions.messages("s")[1:] == saved

    def test_a_sequence_of_the_callers_is_not_taken_over(self, store: Store) -> None:
        assert store.sessions.append("s", [user("a", sequence=17)])[0].sequence == 1

    def test_a_negative_last(self, store: Store) -> None:
        with pytest.raises(ConfigError):
            store.sessions.messages("s", last=-1)

    def test_a_name_too_long(self, store: Store) -> None:
        with pytest.raises(StorageError, match="bytes long"):
            store.sessions.append("x" * 600, [user("a")])
        with pytest.raises(StorageError, match="bytes long"):
            store.sessions.append("s", [user("a", "x" * 600)])
        longest = "猫" * 170
        tenant = store.for_tenant("猫" * 42)
        assert tenant.sessions.append(longest, [user("a", longest)])[0].id == longest


class TestSessions:
    def test_the_list(self, store: Store) -> None:
        store.sessions.append("b", [user("1"), user("2")])
        store.sessions.append("a", [user("1")])
        one, two = store.sessions.list()
        assert (one.id, one.message_count, two.id, two.message_count) == ("a", 1, "b", 2)
        assert two.created_at <= two.updated_at <= one.created_at
        store.sessions.append("b", [user("3")])
        assert store.sessions.list()[1].updated_at > two.updated_at
        assert store.sessions.list()[1].created_at == two.created_at

    def test_deleting_one_leaves_the_others(self, store: Store) -> None:
        store.sessions.append("a", [user("1"), user("2")])
        store.sessions.append("b", [user("1")])
        assert store.sessions.delete("a") == 2
        assert store.sessions.delete("a") == 0
        assert store.sessions.messages("a") == []
        assert [info.id for info in store.sessions.list()] == ["b"]
        assert store.statistics()["messages"] == 1
        assert store.sessions.append("a", [user("new")])[0].sequence == 1

    def test_an_unknown_one_names_the_nearest_of_this_tenant_alone(self, store: Store) -> None:
        store.sessions.append("alice", [user("1")])
        store.for_tenant("another").sessions.append("alcie~1", [user("secret")])
        with pytest.raises(NotFoundError) as refused:
            store.sessions.info("alcie")
        assert refused.value.remedy == "Did you mean 'alice'? List them: ctxkit sessions list."
        with pytest.raises(NotFoundError) as refused:
            store.sessions.branch("zzz", at=0)
        assert refused.value.remedy == "List them: ctxkit sessions list."

    def test_long_sessions(self, store: Store) -> None:
        store.sessions.append("s", [user(str(number)) for number in range(3_000)])
        assert [message.text for message in store.sessions.messages("s", last=3)] == ["2997", "2998", "2999"]
        assert len(store.sessions.messages("s")) == 3_000
