"""What leaves a dialogue: whole units, oldest first, and never in silence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.errors import ConfigError, ConflictError, NotFoundError
from ctxkit.history import units
from ctxkit.messages import Message, ToolCall
from ctxkit.storage import Keep, Store
from ctxkit.storage.session_retention import cuts

NOW = datetime(2026, 6, 1, tzinfo=UTC)
call_ids = st.sampled_from(["a", "b", "c"])
dialogues = st.lists(
    st.one_of(
        st.just(Message("user", "q")),
        st.just(Message("system", "s")),
        st.lists(call_ids, max_size=2, unique=True).map(
            lambda ids: Message("assistant", "x", tuple(ToolCall(each, "f") for each in ids))
        ),
        call_ids.map(lambda each: Message("tool", "r", tool_call_id=each)),
    ),
    max_size=12,
)


def user(text: str, id: str = "", **fields: Any) -> Message:  # noqa: A002
    return Message("user", text, id=id, **fields)


def turn(number: int, results: int = 2) -> list[Message]:
    """A question, parallel calls, their results, an answer."""
    calls = tuple(ToolCall(f"{number}.{each}", "f") for each in range(results))
    return [
        user(f"question {number}"),
        Message("assistant", tool_calls=calls),
        *(Message("tool", "result", tool_call_id=call.id) for call in calls),
        Message("assistant", f"answer {number}"),
    ]


@given(dialogues)
def test_a_cut_parts_no_unit(messages: list[Message]) -> None:
    allowed = cuts(messages)
    assert allowed[0] == 0
    groups = units(messages)
    for cut in range(len(messages) + 1):
        split = any(unit.indices[0] < cut <= unit.indices[-1] for unit in groups)
        newest_user = max((at for at, message in enumerate(messages) if message.role == "user"), default=-1)
        waiting = any(
            not unit.complete and unit.messages[0].tool_calls and newest_user < unit.indices[0] < cut
            for unit in groups
            if {call.id for call in unit.messages[0].tool_calls} - {message.tool_call_id for message in unit.messages}
        )
        assert (cut in allowed) == (not split and not waiting)


class TestRetention:
    def test_archived_messages_leave_the_dialogue_and_are_still_there(self, tenant_store: Store) -> None:
        sessions = tenant_store.sessions
        saved = sessions.append("s", [message for number in range(4) for message in turn(number)])
        done = sessions.archive("s", keep=Keep(messages=7))
        assert (done.archived, done.deleted, done.kept, done.shared) == (14, 0, 6, 0), "a call went with its results"
        assert sessions.messages("s") == saved[14:]
        assert sessions.messages("s", archived=True) == saved
        assert sessions.messages("s", archived=True, last=8) == saved[12:]
        assert tenant_store.statistics()["messages"] == 6, "they are out of the table that is read"
        info = sessions.info("s")
        assert (info.message_count, info.last_sequence, info.archived_through, info.deleted_through) == (6, 20, 14, 0)
        assert sessions.append("s", [user("next")])[0].sequence == 21
        assert sessions.archive("s", keep=Keep(messages=7)).archived == 0
        assert tenant_store.check() == []

    def test_an_archived_message_is_not_appended_again(self, tenant_store: Store) -> None:
        sessions = tenant_store.sessions
        first = sessions.append("s", [user("a", "1"), user("b", "2")])
        sessions.archive("s", keep=Keep(messages=0))
        assert sessions.messages("s") == []
        assert sessions.append("s", [user("a", "1")]) == first[:1]
        with pytest.raises(ConflictError):
            sessions.append("s", [user("x", "2")])
        assert sessions.append("s", [user("c")])[0].sequence == 3

    def test_pruned_messages_are_gone_from_both(self, tenant_store: Store) -> None:
        sessions = tenant_store.sessions
        saved = sessions.append("s", [user(str(number)) for number in range(10)])
        sessions.archive("s", keep=Keep(messages=5))
        done = sessions.prune("s", keep=Keep(messages=7))
        assert (done.deleted, done.kept) == (3, 5), "the archive counts with the rest"
        assert sessions.messages("s", archived=True) == saved[3:]
        assert sessions.prune("s", keep=Keep(messages=2)).deleted == 5
        assert sessions.messages("s") == sessions.messages("s", archived=True) == saved[8:]
        assert sessions.append("s", [user("next")])[0].sequence == 11
        assert tenant_store.check() == []

    def test_leading_system_messages_stay(self, tenant_store: Store) -> None:
        sessions = tenant_store.sessions
        sessions.append("s", [Message("system", "rules"), *(user(str(number)) for number in range(6))])
        assert sessions.prune("s", keep=Keep(messages=2)).deleted == 4
        assert [message.text for message in sessions.messages("s")] == ["rules", "4", "5"]
        sessions.append("s", [user("6")])
        assert sessions.archive("s", keep=Keep(messages=1)).archived == 2
        assert [message.text for message in sessions.messages("s")] == ["rules", "6"]
        assert [message.text for message in sessions.messages("s", last=2)] == ["rules", "6"]
        assert tenant_store.check() == []

    def test_by_age_only_what_is_older_up_to_its_end(self, tenant_store: Store) -> None:
        sessions = tenant_store.sessions
        days = [40, 35, 5, 50, 1]
        sessions.append("s", [user(str(day), created_at=NOW - timedelta(days=day)) for day in days])
        assert sessions.prune("s", keep=Keep(age=timedelta(days=30)), now=NOW).deleted == 2
        left = [message.text for message in sessions.messages("s")]
        assert left == ["5", "50", "1"], "a clock that went backwards deletes nothing early"

    def test_a_message_without_a_time_is_as_old_as_the_sessions_last_change(self, tenant_store: Store) -> None:
        sessions = tenant_store.sessions
        sessions.append("s", [user("a"), user("b")])
        keep = Keep(age=timedelta(days=30))
        assert sessions.prune("s", keep=keep).deleted == 0
        assert sessions.prune("s", keep=keep, now=datetime.now(UTC) + timedelta(days=31)).deleted == 2

    def test_by_size(self, tenant_store: Store) -> None:
        sessions = tenant_store.sessions
        sessions.append("s", [user("猫" * 100) for _ in range(5)])
        done = sessions.archive("s", keep=Keep(size=700))
        assert (done.archived, done.kept, done.size) == (3, 2, 2 * (302 + 2)), "bytes of the JSON, not characters"

    def test_the_newest_unit_stays_though_it_is_over_the_limit(self, tenant_store: Store) -> None:
        sessions = tenant_store.sessions
        sessions.append("s", [user("x"), user("y" * 5_000_000)])
        done = sessions.prune("s", keep=Keep(size=1_000))
        assert (done.deleted, done.kept) == (1, 1)
        assert done.size > 5_000_000, "and the report says so"
        assert sessions.prune("s", keep=Keep(size=0)).kept == 0

    def test_a_call_that_waits_for_its_result_stays(self, tenant_store: Store) -> None:
        sessions = tenant_store.sessions
        sessions.append("s", [user("q"), Message("assistant", tool_calls=(ToolCall("c", "f"),), id="call")])
        assert sessions.archive("s", keep=Keep(messages=0)).archived == 1
        assert [message.id for message in sessions.messages("s")] == ["call"]
        sessions.append("s", [Message("tool", "r", tool_call_id="c")])
        assert sessions.archive("s", keep=Keep(messages=0)).kept == 0

    def test_what_branches_read_stays_for_them_alone(self, tenant_store: Store) -> None:
        sessions = tenant_store.sessions
        saved = sessions.append("s", [user(str(number), str(number)) for number in range(6)])
        sessions.branch("s", at=3, name="t")
        done = sessions.prune("s", keep=Keep(messages=1))
        assert (done.deleted, done.shared, done.kept) == (5, 3, 1)
        assert sessions.messages("s") == sessions.messages("s", archived=True) == saved[5:]
        assert sessions.messages("t") == saved[:3]
        assert [match.message.text for match in sessions.search("1")] == ["1"]
        assert sessions.append("s", [user("0", "0")]) == saved[:1], "its id is known as long as the row is there"
        assert sessions.delete("t") == 0
        assert tenant_store.statistics()["messages"] == 1, "and they go with the last branch"
        with pytest.raises(NotFoundError, match="deleted"):
            sessions.branch("s", at=2)

    def test_archived_messages_cannot_be_branched_at(self, tenant_store: Store) -> None:
        sessions = tenant_store.sessions
        sessions.append("s", [user(str(number), str(number)) for number in range(1, 7)])
        sessions.archive("s", keep=Keep(messages=2))
        for at in (2, "2"):
            with pytest.raises(NotFoundError, match="archived"):
                sessions.branch("s", at=at)
        with pytest.raises(NotFoundError, match="archived"):
            sessions.edit("s", "4", user("x"))
        assert sessions.edit("s", "5", user("five"), name="t").message_count == 1
        assert [message.text for message in sessions.messages("t", archived=True)] == ["1", "2", "3", "4", "five"]

    @pytest.mark.parametrize(
        "wrong",
        [{}, {"messages": -1}, {"messages": True}, {"size": 1.5}, {"age": timedelta(days=-1)}, {"age": 30}],
    )
    def test_not_a_limit(self, wrong: Any) -> None:
        with pytest.raises(ConfigError) as caught:
            Keep(**wrong)
        assert caught.value.remedy

    def test_not_a_time(self, tenant_store: Store) -> None:
        with pytest.raises(ConfigError):
            tenant_store.sessions.prune("s", keep=Keep(messages=1), now=datetime(2026, 1, 1))
        with pytest.raises(ConfigError):
            tenant_store.sessions.prune("s", keep=5)  # type: ignore[arg-type]


class TestSearch:
    def test_words_in_whatever_case_newest_first(self, tenant_store: Store) -> None:
        sessions = tenant_store.sessions
        sessions.append("old", [user("The STRASSE is long"), user("nothing here")])
        call = Message("assistant", tool_calls=(ToolCall("c", "look_up", '{"where": "Straße"}'),))
        sessions.append("new", [user("Which straße?"), call, Message("tool", "None.", tool_call_id="c")])
        found = sessions.search("straSSE")
        assert [(match.session, match.message.sequence) for match in found] == [("new", 2), ("new", 1), ("old", 1)]
        assert len(sessions.search("strasse", limit=1)) == 1
        assert [match.message.text for match in sessions.search("long the")] == ["The STRASSE is long"]
        assert sessions.search("long nothing") == sessions.search("%") == sessions.search("l_ok") == []
        assert [match.session for match in sessions.search("look_up")] == ["new"]

    def test_in_one_session_with_its_shared_past(self, tenant_store: Store) -> None:
        sessions = tenant_store.sessions
        sessions.append("s", [user("a cat"), user("a dog"), user("a cat again")])
        sessions.branch("s", at=2, name="t")
        sessions.append("t", [user("my cat")])
        assert [match.message.text for match in sessions.search("cat", session="t")] == ["my cat", "a cat"]
        assert len(sessions.search("cat")) == 3, "a shared message is found once"
        assert sessions.search("cat", session="none") == []

    def test_more_than_a_page(self, tenant_store: Store) -> None:
        sessions = tenant_store.sessions
        sessions.append("s", [user(f"number {number}") for number in range(2_100)])
        for number in range(3):
            sessions.append(f"other {number}", [user("number")])
        newest = sessions.search("number", session="s", limit=3)
        assert [match.message.sequence for match in newest] == [2100, 2099, 2098]
        assert [match.message.text for match in sessions.search("number 7")][:2] == ["number 2097", "number 2087"]
        assert len(sessions.search("number", limit=10_000)) == 2_103

    @pytest.mark.parametrize("text", ["", " \n", None, 7])
    def test_nothing_to_look_for(self, tenant_store: Store, text: Any) -> None:
        with pytest.raises(ConfigError):
            tenant_store.sessions.search(text)


class TestBadInput:
    def test_five_megabytes_come_back(self, tenant_store: Store) -> None:
        text = "猫x" * 1_250_000
        (saved,) = tenant_store.sessions.append("s", [user(text)])
        assert tenant_store.sessions.messages("s") == [saved]
        assert saved.text == text

    def test_the_order_is_that_of_appending_whatever_the_clock_says(self, tenant_store: Store) -> None:
        times = [NOW, NOW - timedelta(days=1), NOW, None, NOW - timedelta(days=9)]
        tenant_store.sessions.append("s", [user(str(at), created_at=time) for at, time in enumerate(times)])
        assert [message.text for message in tenant_store.sessions.messages("s")] == list("01234")
        assert [message.created_at for message in tenant_store.sessions.messages("s")] == times

    def test_empty_content_is_stored_as_it_is(self, tenant_store: Store) -> None:
        saved = tenant_store.sessions.append("s", [user(""), Message("assistant", ()), user(" ")])
        assert tenant_store.sessions.messages("s") == saved
        assert [message.content for message in saved] == ["", (), " "]
