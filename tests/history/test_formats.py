"""Export and import: ours loses nothing; a provider's format says what it loses, and without that loses nothing."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxkit.errors import ConfigError, HistoryError
from ctxkit.history.formats import FORMATS, export_history, import_history
from ctxkit.messages import Message, Part, ToolCall
from tests.strategies import NASTY

short = st.sampled_from(NASTY) | st.text(max_size=8)
json_values = st.sampled_from([None, True, 1.5, "x", [], {"a": [1, {"b": "猫"}]}])
words = st.sampled_from(["a", "b", " ", "", "猫", "\ud800", '{"a": 1}', '{"a":1}', "\n"])
said = words | short
urls = st.sampled_from(["https://x/y.png", "data:image/png;base64,AAAA", "data:image/png;base64,A A", ""])
parts = st.one_of(
    st.builds(Part, text=said),
    st.builds(Part, text=said, data=st.sampled_from([{"refusal": "field"}, {"refusal": "part"}, {"is_error": True}])),
    st.builds(Part, st.just("image"), data=st.fixed_dictionaries({"url": urls}, optional={"detail": words})),
    st.builds(
        Part, st.just("reasoning"), said, st.fixed_dictionaries({}, optional={"signature": said, "more": json_values})
    ),
    st.builds(
        Part,
        st.sampled_from(["input_audio", "file", "redacted_thinking", "tool_use", "thinking", "refusal"]),
        st.just("") | said,
        st.dictionaries(st.sampled_from(["data", "type", "text"]), json_values, max_size=2),
    ),
)
contents = said | st.lists(parts, max_size=3).map(tuple)
calls = st.lists(st.builds(ToolCall, id=words, name=words, arguments=said | json_values.map(json.dumps)), max_size=2)
name = st.none() | words
plain = st.one_of(
    st.builds(Message, st.sampled_from(["system", "user"]), contents, name=name),
    st.builds(Message, st.just("assistant"), contents, calls.map(tuple)),
    st.builds(Message, st.just("tool"), contents, tool_call_id=words, name=name),
)
times = st.none() | st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-3, minutes=-30))]))
stored = st.builds(replace, plain, id=st.text("ab猫", min_size=1), sequence=st.integers(0, 2**40), created_at=times)


half = settings(max_examples=settings().max_examples // 2)


@half
@given(st.lists(stored, max_size=3))
def test_ours_holds_everything(messages: list[Message]) -> None:
    exported = export_history(messages)
    assert not exported.notes
    exported.value.encode()
    assert exported.value.count("\n") == len(messages), "a message a line"
    assert import_history(exported.value).value == messages
    assert export_history(import_history(exported.value).value).value == exported.value, "to the byte"


@given(st.lists(plain, max_size=3), st.sampled_from(["openai", "anthropic"]))
def test_a_providers_format_without_notes_holds_everything(messages: list[Message], form: str) -> None:
    exported = export_history(messages, form)
    exported.value.encode()
    imported = import_history(exported.value, form)
    back = [replace(message, id="") for message in imported.value]
    if not exported.notes:
        assert back == messages
        assert export_history(messages, form, strict=True) == exported
    else:
        with pytest.raises(HistoryError) as caught:
            export_history(messages, form, strict=True)
        assert caught.value.remedy
    again = export_history(back, form)
    assert not again.notes, "a second trip loses nothing more"
    assert [replace(message, id="") for message in import_history(again.value, form).value] == back


@settings(max_examples=settings().max_examples // 10)
@given(st.lists(stored, min_size=1, max_size=2), st.sampled_from(["openai", "anthropic"]))
def test_ids_and_times_are_said_to_be_lost(messages: list[Message], form: str) -> None:
    assert any("ids and times" in note for note in export_history(messages, form).notes)


@half
@given(st.lists(plain, max_size=3), st.integers(0, 4))
def test_what_is_imported_has_ids_that_a_longer_text_keeps(messages: list[Message], count: int) -> None:
    whole = import_history(export_history(messages, "openai").value, "openai").value
    part = import_history(export_history(messages[:count], "openai").value, "openai").value
    assert part == whole[:count]
    assert len({message.id for message in whole}) == len(whole)


@pytest.mark.data
def test_real_traces_come_back_as_they_were(data: Path) -> None:
    count = 0
    with gzip.open(data / "tau_bench" / "airline_traces.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            messages = json.loads(line)["messages"]
            imported = import_history(json.dumps(messages), "openai", strict=True)
            assert not imported.notes
            history = [replace(message, id="") for message in imported.value]
            exported = export_history(history, "openai", strict=True).value
            assert json.loads(exported) == [
                {**message, "content": message["content"] or None} if message.get("tool_calls") else message
                for message in messages
            ]
            assert import_history(export_history(imported.value).value).value == imported.value
            there = export_history(history, "anthropic")
            assert {note.split(": ", 1)[1].split("call")[0] for note in there.notes} <= {
                "its name is left out",
                "the arguments of the ",
            }
            unnamed = [replace(message, name=None) for message in history]
            back = [replace(message, id="") for message in import_history(there.value, "anthropic").value]
            assert [normal(message) for message in back] == [normal(message) for message in unnamed]
            count += len(messages)
    assert count > 2_000


def normal(message: Message) -> Message:
    return replace(
        message,
        tool_calls=tuple(
            replace(call, arguments=json.dumps(json.loads(call.arguments))) for call in message.tool_calls
        ),
    )


class TestOpenAI:
    def test_what_its_messages_may_hold(self) -> None:
        given_ = [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "name": "ann",
                "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}},
                    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
                    {"type": "file", "file": {"file_id": "f1"}},
                ],
            },
            {"role": "assistant", "content": None, "refusal": "I can't help with that."},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
                    {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "not json"}},
                ],
            },
            {"role": "tool", "content": "1", "tool_call_id": "c1"},
            {"role": "tool", "content": [{"type": "text", "text": "2"}], "tool_call_id": "c2"},
        ]
        imported = import_history(json.dumps(given_), "openai", strict=True)
        messages = [replace(message, id="") for message in imported.value]
        assert json.loads(export_history(messages, "openai", strict=True).value) == given_
        assert messages[2].visible == "I can't help with that.", "a refusal is said, counted and sent as what it is"

    def test_what_is_changed_is_noted(self) -> None:
        imported = import_history(
            json.dumps(
                {
                    "model": "m",
                    "messages": [
                        {"role": "developer", "content": "x"},
                        {"role": "assistant", "content": "", "function_call": {"name": "f", "arguments": "{}"}},
                        {"role": "function", "name": "f", "content": "1"},
                        {"role": "assistant", "content": "y", "annotations": [1], "audio": None, "refusal": None},
                        {"role": "assistant", "content": "z", "reasoning_content": "hm"},
                    ],
                }
            ),
            "openai",
        )
        assert [message.role for message in imported.value] == ["system", "assistant", "tool", "assistant", "assistant"]
        assert imported.value[1].tool_calls[0].id == imported.value[2].tool_call_id
        assert imported.value[4].content == (Part("reasoning", "hm"), Part(text="z"))
        assert imported.notes == (
            "message 1: the role developer becomes system",
            "message 2: a function call of the old form becomes a tool call",
            "message 3: a function's result of the old form becomes a tool's",
            "message 4: left out: annotations",
        )

    def test_one_message_a_line(self) -> None:
        lines = '{"role": "user", "content": "a"}\n\n{"role": "user", "content": "b"}\n'
        assert [message.text for message in import_history(lines, "openai").value] == ["a", "b"]
        assert len(import_history('{"role": "user", "content": "a"}', "openai").value) == 1


class TestAnthropic:
    def test_what_its_messages_may_hold(self) -> None:
        given_ = {
            "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What is this?"},
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                        {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
                        {"type": "image", "source": {"type": "file", "file_id": "f1"}},
                        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}},
                    ],
                },
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm", "signature": "s"},
                        {"type": "redacted_thinking", "data": "zzz"},
                        {"type": "text", "text": "Let me look."},
                        {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
                        {"type": "tool_use", "id": "t2", "name": "g", "input": {}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "t1", "content": "1"},
                        {"type": "tool_result", "tool_use_id": "t2", "is_error": True, "content": "failed"},
                        {"type": "text", "text": "And?"},
                    ],
                },
            ],
        }
        imported = import_history(json.dumps(given_), "anthropic", strict=True)
        messages = [replace(message, id="") for message in imported.value]
        assert [message.role for message in messages] == ["system", "user", "assistant", "tool", "tool", "user"]
        assert json.loads(export_history(messages, "anthropic", strict=True).value) == given_
        assert messages[2].visible == "Let me look." and messages[2].tool_calls[0].arguments == '{"a": 1}'

    def test_neighbours_are_joined_and_that_is_noted(self) -> None:
        dialogue = [Message("user", "a"), Message("user", "b"), Message("assistant", "c"), Message("system", "d")]
        exported = export_history(dialogue, "anthropic")
        assert [message["role"] for message in json.loads(exported.value)["messages"]] == ["user", "assistant"]
        assert exported.notes == (
            "message 2: it is joined with the user message before it",
            "message 4: a system message moves to the front",
        )

    def test_what_the_api_refuses_is_left_out_and_noted(self) -> None:
        dialogue = [Message("user", "a"), Message("assistant", ""), Message("assistant", (Part("reasoning", "x"),))]
        exported = export_history(dialogue, "anthropic")
        assert len(json.loads(exported.value)["messages"]) == 1
        assert len(exported.notes) == 3
        assert export_history([Message("system", ""), *dialogue[:1]], "anthropic").notes, "an empty system message too"


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "[1]",
        "7",
        '"x"',
        '{"role": "user"',
        '[{"content": "x"}]',
        '[{"role": "wizard", "content": "x"}]',
        '[{"role": "user", "content": 5}]',
        '[{"role": "user", "content": [{"text": "x"}]}]',
        '[{"role": "user", "content": [5]}]',
        '[{"role": "assistant", "content": null, "tool_calls": [{"id": "c"}]}]',
        '[{"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "custom"}]}]',
        '[{"role": "tool", "content": "x"}]',
        '[{"role": "assistant", "content": [{"type": "tool_use", "id": 7, "name": "f", "input": {}}]}]',
        '[{"role": "user", "content": [{"type": "tool_result"}]}]',
        '{"v": 2, "role": "user", "content": ""}',
        '{"v": 1, "role": "wizard", "content": ""}',
        '{"v": 1, "role": "user", "content": 5}',
        '{"v": 1, "role": "user", "content": "", "x": 1}',
        '{"v": 1, "role": "user", "content": "", "created_at": "never"}',
        '{"v": 1, "role": "user", "content": [{"kind": 3}]}',
        "[" * 100_000,
    ],
)
def test_what_is_not_of_the_format_is_an_error_of_ours(form: str, text: str) -> None:
    if form == "openai" and text.startswith('{"v"') and "wizard" not in text and "5}" not in text and "3}" not in text:
        assert import_history(text, form).notes, "it is a message with keys of another format, and that is said"
        return
    with pytest.raises((HistoryError, ConfigError)) as caught:
        import_history(text, form)
    assert caught.value.remedy


@pytest.mark.parametrize("form", ["xml", "", None])
def test_not_a_format(form: Any) -> None:
    with pytest.raises(ConfigError, match="unknown format"):
        export_history([], form)
    with pytest.raises(ConfigError, match="unknown format"):
        import_history("", form)


def test_a_time_without_a_zone_is_utc() -> None:
    line = '{"v": 1, "id": "a", "sequence": 1, "role": "user", "created_at": "2026-01-01T00:00:00", "content": ""}'
    assert import_history(line).value[0].created_at == datetime(2026, 1, 1, tzinfo=UTC)
