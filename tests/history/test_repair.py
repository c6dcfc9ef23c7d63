"""Units, the rules, and repair, one case at a time."""

from __future__ import annotations

import pytest

from ctxkit.errors import HistoryError
from ctxkit.history import check_history, repair, units
from ctxkit.history.repair import EMPTY, INTERRUPTED
from ctxkit.messages import Message, Part, ToolCall


def asks(*ids: str, text: str = "", id: str = "") -> Message:  # noqa: A002
    return Message("assistant", text, tool_calls=tuple(ToolCall(call, "find") for call in ids), id=id)


def result(call: str, text: str = "found") -> Message:
    return Message("tool", text, tool_call_id=call)


USER = Message("user", "Find it.")
ANSWER = Message("assistant", "Here it is.")
SYSTEM = Message("system", "Be brief.")


class TestUnits:
    def test_parallel_calls_and_all_their_results_are_one(self) -> None:
        found = units([USER, asks("a", "b", "c"), result("c"), result("a"), result("b"), ANSWER])
        assert [unit.indices for unit in found] == [(0,), (1, 2, 3, 4), (5,)]
        assert all(unit.complete for unit in found)
        assert [unit.role for unit in found] == ["user", "assistant", "assistant"]

    def test_a_result_that_comes_late_belongs_to_its_call(self) -> None:
        found = units([asks("a", "b"), result("a"), USER, result("b")])
        assert [unit.indices for unit in found] == [(0, 1, 3), (2,)]

    def test_an_id_that_is_used_again_belongs_to_the_last_call(self) -> None:
        found = units([asks("a"), result("a"), asks("a"), result("a")])
        assert [unit.indices for unit in found] == [(0, 1), (2, 3)]

    @pytest.mark.parametrize(
        "messages",
        [[asks("a", "b"), result("a")], [result("a")], [asks("a"), result("a"), result("a")], [asks("a", "a")]],
    )
    def test_what_is_not_complete(self, messages: list[Message]) -> None:
        [unit] = units(messages)
        assert not unit.complete


class TestRules:
    @pytest.mark.parametrize(
        "messages",
        [
            [USER],
            [SYSTEM, SYSTEM, USER, ANSWER, USER],
            [USER, asks("a", "b"), result("b"), result("a", ""), ANSWER],
            [USER, USER, ANSWER, ANSWER],
            [Message("user", (Part("image", data={"url": "data:,"}),))],
        ],
    )
    def test_what_every_provider_takes(self, messages: list[Message]) -> None:
        check_history(messages)
        assert repair(messages) == (messages, [])

    @pytest.mark.parametrize(
        ("messages", "problem"),
        [
            ([ANSWER, USER], "begins with an assistant"),
            ([USER, SYSTEM], "system message stands inside"),
            ([USER, asks("a")], "no result"),
            ([USER, asks("a"), USER], "no result"),
            ([USER, asks("a", "b"), result("a"), ANSWER], "no result"),
            ([USER, result("a")], "answers no call"),
            ([USER, asks("a"), result("a"), result("a")], "answers no call"),
            ([USER, asks("a"), result("a"), ANSWER, result("a")], "answers no call"),
            ([USER, asks("a"), result("a"), asks("a"), result("a")], "used twice"),
            ([USER, asks("a", "a"), result("a")], "used twice"),
            ([USER, asks(""), result("")], "is empty"),
            ([USER, Message("assistant")], "is empty"),
            ([Message("user", " \n")], "is empty"),
            ([USER, Message("assistant", (Part("reasoning", "hm"),))], "is empty"),
            ([SYSTEM], "no user message"),
            ([], "no user message"),
        ],
    )
    def test_what_some_provider_refuses(self, messages: list[Message], problem: str) -> None:
        with pytest.raises(HistoryError, match=problem) as caught:
            check_history(messages)
        assert caught.value.remedy

    def test_an_error_names_the_message(self) -> None:
        with pytest.raises(HistoryError, match=r"message 1 \(assistant, m7\)"):
            check_history([USER, Message("assistant", id="m7")])

    def test_a_history_before_a_question_may_have_no_user_message(self) -> None:
        check_history([], require_user=False)
        check_history([SYSTEM], require_user=False)


class TestRepair:
    def test_unanswered_calls_get_a_result(self) -> None:
        messages, notes = repair([USER, asks("a", "b", id="m1"), result("b"), USER])
        assert [(message.role, message.tool_call_id, message.text) for message in messages[2:4]] == [
            ("tool", "b", "found"),
            ("tool", "a", INTERRUPTED),
        ]
        assert messages[3].id == "m1:a"
        assert messages[3].name == "find"
        assert [(note.kind, note.index) for note in notes] == [("interrupted", 1)]
        assert "'a'" in str(notes[0])

    def test_orphans_and_duplicates_are_dropped(self) -> None:
        messages, notes = repair([result("x"), USER, asks("a"), result("a", "first"), result("a", "second")])
        assert messages == [USER, asks("a"), result("a", "first")]
        assert [(note.kind, note.index) for note in notes] == [("orphaned", 0), ("duplicate", 4)]

    def test_a_late_result_moves_to_its_call(self) -> None:
        messages, notes = repair([USER, asks("a", "b"), result("a"), USER, result("b")])
        assert messages == [USER, asks("a", "b"), result("a"), result("b"), USER]
        assert [(note.kind, note.index) for note in notes] == [("moved", 4)]

    def test_call_ids_become_unique(self) -> None:
        twice = [USER, asks("a"), result("a", "one"), asks("a"), result("a", "two")]
        messages, notes = repair(twice)
        assert messages == [USER, asks("a"), result("a", "one"), asks("a_2"), result("a_2", "two")]
        assert [note.kind for note in notes] == ["renamed"]
        assert repair([USER, asks(""), result("")]).messages == [USER, asks("call"), result("call")]
        taken = [USER, asks("a"), result("a"), asks("a_2"), result("a_2"), asks("a"), result("a")]
        assert repair(taken).messages[-2:] == [asks("a_3"), result("a_3")]

    def test_a_call_that_is_there_twice_is_one(self) -> None:
        messages, notes = repair([USER, asks("a", "a"), result("a")])
        assert messages == [USER, asks("a"), result("a")]
        assert [note.kind for note in notes] == ["duplicate"]

    def test_empty_messages(self) -> None:
        messages, notes = repair([Message("system"), Message("user", " "), Message("assistant", "\n"), USER])
        assert messages == [Message("user", EMPTY), USER]
        assert [(note.kind, note.index) for note in notes] == [("empty", 0), ("empty", 1), ("empty", 2)]

    def test_system_messages_move_to_the_beginning(self) -> None:
        late = Message("system", "Now in French.")
        messages, notes = repair([SYSTEM, USER, late, ANSWER])
        assert messages == [SYSTEM, late, USER, ANSWER]
        assert [(note.kind, note.index) for note in notes] == [("moved", 2)]

    def test_a_greeting_before_the_first_user_message_is_dropped(self) -> None:
        messages, notes = repair([SYSTEM, ANSWER, asks("a"), result("a"), USER])
        assert messages == [SYSTEM, USER]
        assert [(note.kind, note.index) for note in notes] == [("leading", 1), ("leading", 2)]

    def test_a_dialogue_that_nobody_began(self) -> None:
        assert repair([ANSWER]).messages == []
        assert repair([]) == ([], [])

    def test_notes_are_in_the_order_of_the_messages(self) -> None:
        _, notes = repair([ANSWER, USER, asks("a"), result("x"), SYSTEM])
        assert [(note.index, note.kind) for note in notes] == [
            (0, "leading"),
            (2, "interrupted"),
            (3, "orphaned"),
            (4, "moved"),
        ]
