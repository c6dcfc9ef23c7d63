"""Messages: validation, and the way to OpenAI's form and back."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.errors import ConfigError, CtxkitError, HistoryError
from ctxkit.messages import ROLES, Message, Part, ToolCall, history_hash
from tests.strategies import texts

calls = st.builds(
    ToolCall,
    id=st.text(min_size=1, max_size=8),
    name=st.text("abc_", min_size=1, max_size=8),
    arguments=st.one_of(st.sampled_from(["{}", '{"x": 1}', "not json", ""]), st.text(max_size=20)),
)
parts = st.one_of(
    st.builds(Part, text=texts),
    st.builds(lambda url: Part(kind="image", data={"url": url, "detail": "low"}), st.text(max_size=20)),
    st.builds(lambda data: Part(kind="input_audio", data={"input_audio": {"data": data}}), st.text(max_size=8)),
)
contents = st.one_of(texts, st.lists(parts, max_size=4).map(tuple))


@st.composite
def messages(draw: st.DrawFn) -> Message:
    role = draw(st.sampled_from(ROLES))
    return Message(
        role=role,
        content=draw(contents),
        tool_calls=tuple(draw(st.lists(calls, max_size=3))) if role == "assistant" else (),
        tool_call_id=draw(st.text(min_size=1, max_size=8)) if role == "tool" else None,
        name=draw(st.one_of(st.none(), st.text("abc", min_size=1, max_size=5))),
    )


class TestRoundTrip:
    @given(messages())
    def test_there_and_back_is_the_same_message_to_a_model(self, message: Message) -> None:
        data = message.to_openai()
        json.dumps(data)
        back = Message.from_openai(data)
        assert back.to_openai() == data
        assert back.content_hash == message.content_hash
        assert (back.role, back.name) == (message.role, message.name)
        assert (back.tool_calls, back.tool_call_id) == (message.tool_calls, message.tool_call_id)

    @given(messages())
    def test_nothing_in_the_content_changes_the_role(self, message: Message) -> None:
        assert message.to_openai()["role"] == message.role
        assert Message.from_openai(message.to_openai()).role == message.role

    def test_tool_calls_and_their_result(self) -> None:
        call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
        asked = {"role": "assistant", "content": None, "tool_calls": [call]}
        message = Message.from_openai(asked)
        assert message.tool_calls == (ToolCall("c1", "add", '{"a": 1}'),)
        assert message.to_openai() == asked
        answer = {"role": "tool", "content": "1", "tool_call_id": "c1"}
        assert Message.from_openai(answer).to_openai() == answer

    def test_arguments_given_as_an_object_become_their_json(self) -> None:
        call = {"id": "c1", "function": {"name": "add", "arguments": {"名": 1}}}
        message = Message.from_openai({"role": "assistant", "tool_calls": [call]})
        assert message.tool_calls[0].arguments == '{"名": 1}'

    def test_a_developer_message_is_a_system_message(self) -> None:
        assert Message.from_openai({"role": "developer", "content": "x"}) == Message("system", "x")

    def test_images(self) -> None:
        content = [
            {"type": "text", "text": "what is this?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "high"}},
        ]
        message = Message.from_openai({"role": "user", "content": content})
        assert message.text == "what is this?"
        assert [part.kind for part in message.parts] == ["text", "image"]
        assert message.to_openai()["content"] == content

    def test_an_image_given_as_a_bare_address(self) -> None:
        message = Message.from_openai({"role": "user", "content": [{"type": "image_url", "image_url": "u"}]})
        assert message.parts == (Part(kind="image", data={"url": "u"}),)

    def test_text_parts_become_one_string_without_separators(self) -> None:
        message = Message("user", (Part(text="a"), Part(text="b\n")))
        assert message.to_openai() == {"role": "user", "content": "ab\n"}
        assert message.text == "ab\n"

    def test_reasoning_is_kept_but_not_sent(self) -> None:
        message = Message("assistant", (Part(kind="reasoning", text="hm"), Part(text="yes")))
        assert message.to_openai()["content"] == "yes"
        assert (message.visible, message.text) == ("yes", "hmyes")

    @given(messages())
    def test_what_is_visible_is_the_text_that_is_sent(self, message: Message) -> None:
        content = message.to_openai()["content"] or ""
        sent = content if isinstance(content, str) else "".join(item.get("text", "") for item in content)
        assert message.visible == sent

    def test_an_id_that_is_null_is_no_id(self) -> None:
        assert Message.from_openai({"role": "user", "content": "x", "id": None}).id == ""
        assert Message.from_openai({"role": "user", "content": "x", "id": "m1"}).id == "m1"

    def test_no_content_is_empty_text(self) -> None:
        assert Message.from_openai({"role": "user"}).parts == ()
        assert Message.from_openai({"role": "user", "content": None}).content == ""


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                [
                    "role", "content", "type", "text", "image_url", "tool_calls",
                    "function", "name", "arguments", "id", "tool_call_id",
                ]
            ),
            inner,
            max_size=5,
        ),
    ),
    max_leaves=12,
)  # fmt: skip


class TestMalformed:
    @given(json_values, st.one_of(st.none(), st.sampled_from([*ROLES, "developer"])))
    def test_any_json_is_a_message_or_an_error_of_ours(self, data: Any, role: str | None) -> None:
        if role is not None and isinstance(data, dict):
            data = {**data, "role": role}
        error: CtxkitError | None = None
        try:
            message = Message.from_openai(data)
        except CtxkitError as caught:
            error = caught
        else:
            json.dumps(message.to_openai())
            assert isinstance(message.text, str)
        assert error is None or error.remedy

    @pytest.mark.parametrize(
        "data",
        [
            {},
            {"content": "no role"},
            {"role": "user", "content": 5},
            {"role": "user", "content": {"type": "text"}},
            {"role": "user", "content": [{"type": "text"}]},
            {"role": "user", "content": ["text"]},
            {"role": "user", "content": [{"type": "image_url", "image_url": 5}]},
            {"role": "user", "content": [{"type": "image_url", "image_url": ["abc"]}]},
            {"role": "user", "content": [{"type": "text", "text": None}]},
            {"role": "user", "content": "x", "name": 5},
            {"role": "user", "content": "x", "id": 5},
            {"role": "assistant", "tool_calls": [{"id": "x"}]},
            {"role": "assistant", "tool_calls": [{"id": None, "function": {"name": "f"}}]},
            {"role": "assistant", "tool_calls": ["x"]},
            {"role": "assistant", "tool_calls": 5},
            {"role": "tool", "content": "a result of no call"},
            None,
            "user: hello",
            [],
        ],
    )
    def test_history_error(self, data: Any) -> None:
        with pytest.raises(HistoryError) as caught:
            Message.from_openai(data)
        assert caught.value.remedy

    def test_an_unknown_role(self) -> None:
        with pytest.raises(CtxkitError, match="unknown role 'robot'"):
            Message.from_openai({"role": "robot", "content": "x"})


class TestValidation:
    def test_only_an_assistant_asks_for_tools(self) -> None:
        for role in ("system", "user"):
            with pytest.raises(HistoryError, match="cannot ask for tool calls"):
                Message(role, "x", tool_calls=(ToolCall("1", "f"),))  # type: ignore[arg-type]

    def test_a_tool_message_answers_a_call_and_no_other_does(self) -> None:
        with pytest.raises(HistoryError, match="belong together"):
            Message("tool", "x")
        with pytest.raises(HistoryError, match="belong together"):
            Message("user", "x", tool_call_id="1")

    def test_times_are_aware(self) -> None:
        with pytest.raises(ConfigError, match="no time zone"):
            Message("user", "x", created_at=datetime(2025, 1, 1))


class TestTypes:
    """What would be stored and then fail on every later turn is refused where it is made."""

    @pytest.mark.parametrize(
        ("kind", "fields", "remedy"),
        [
            (Part, {"text": None}, "Give a text"),
            (Part, {"text": b"x"}, "Give a text"),
            (Part, {"kind": None}, "Give a text"),
            (Part, {"kind": "image", "data": "data:,"}, "Give a dict"),
            (ToolCall, {"id": "1", "name": "f", "arguments": {"x": 1}}, "json.dumps"),
            (ToolCall, {"id": "1", "name": "f", "arguments": None}, "json.dumps"),
            (ToolCall, {"id": 1, "name": "f"}, "Give a text"),
            (ToolCall, {"id": "1", "name": None}, "Give a text"),
            (Message, {"content": None}, "Message.from_openai"),
            (Message, {"content": b"bytes"}, "Message.from_openai"),
            (Message, {"content": [{"type": "text", "text": "x"}]}, "Message.from_openai"),
            (Message, {"content": ("x",)}, "Message.from_openai"),
            (Message, {"role": "assistant", "tool_calls": None}, "Message.from_openai"),
            (Message, {"role": "assistant", "tool_calls": ({"id": "1"},)}, "Message.from_openai"),
            (Message, {"role": "tool", "tool_call_id": 5}, "Give a text"),
            (Message, {"name": 5}, "Give a text"),
            (Message, {"id": None}, "Give a text"),
            (Message, {"sequence": "4"}, "Give a whole number"),
            (Message, {"created_at": "2025-01-01"}, "Give an aware datetime"),
        ],
    )
    def test_a_wrong_type_is_refused_with_the_remedy(self, kind: Any, fields: dict[str, Any], remedy: str) -> None:
        if kind is Message:
            fields = {"role": "user", **fields}
        with pytest.raises(HistoryError) as caught:
            kind(**fields)
        assert remedy in caught.value.remedy
        assert "of type" in caught.value.message

    def test_lists_become_tuples(self) -> None:
        call = ToolCall("1", "f")
        message = Message("assistant", [Part(text="a")], tool_calls=[call])  # type: ignore[arg-type]
        assert message == Message("assistant", (Part(text="a"),), tool_calls=(call,))
        assert message.content == (Part(text="a"),)
        assert message.tool_calls == (call,)


class TestHashes:
    def test_the_hash_is_of_what_a_model_sees(self) -> None:
        message = Message("user", "x")
        stored = Message("user", "x", id="m1", sequence=4, created_at=datetime(2025, 1, 1, tzinfo=UTC))
        assert message.content_hash == stored.content_hash
        assert message.content_hash != Message("assistant", "x").content_hash
        assert message.content_hash != Message("user", "x", name="bo").content_hash

    @given(st.lists(messages(), max_size=4))
    def test_the_history_hash_depends_on_order_and_number(self, some: list[Message]) -> None:
        assert history_hash(some) == history_hash(list(some))
        assert history_hash([*some, Message("user", "more")]) != history_hash(some)
        hashes = [message.content_hash for message in some]
        if hashes != hashes[::-1]:
            assert history_hash(some) != history_hash(some[::-1])
