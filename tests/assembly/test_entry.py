"""What comes in: lone surrogates are replaced one for one and counted so, tools are checked."""

from __future__ import annotations

import pytest

from ctxkit.assembly.entry import sendable, sendable_history
from ctxkit.documents import Document, Query, Span
from ctxkit.errors import ConfigError
from ctxkit.messages import Message, Part, ToolCall
from ctxkit.prompts import Prompt
from ctxkit.templates import Template
from tests.assembly.building import build, candidate, contexts
from tests.assembly.counters import counter_of, joined_ids, tiny_counter

MARK = "\N{REPLACEMENT CHARACTER}"
BROKEN = Document("broken", "One \ud800 two \ud83d\ude00 three \udfff.", source="broken.md")
TEMPLATE = Template.parse(
    [
        {"role": "system", "content": "Speak {{tone}}. Places: {{places}}"},
        {"role": "history"},
        {"role": "user", "content": "{{context}}\n{{question}}"},
    ],
    name="broken",
    slots={"places": "list"},
)


def broken(local: bool) -> Prompt:
    return build(
        query=Query("why \udc00?"),
        template=TEMPLATE,
        payload={"tone": "softly", "places": ["Bern", {"a": 1}]},
        history=[
            Message("user", "Rain\ud800?", id="a"),
            Message(
                "assistant", (Part(text="Let me \udfff see."),), tool_calls=(ToolCall("\ud8001", "f", '"\udfff"'),)
            ),
            Message("tool", "yes \ud83d\ude00", tool_call_id="\ud8001"),
        ],
        candidates=[candidate(BROKEN, 0, 99, 1.0)],
        tools=({"type": "function", "function": {"name": "f", "description": "\ud800 does f"}},),
        counter=counter_of(local),
    )


@pytest.mark.parametrize("local", [False, True], ids=["openai", "local"])
class TestSurrogates:
    def test_nothing_that_is_sent_holds_one(self, local: bool) -> None:
        prompt = broken(local)
        repr([prompt.messages, prompt.tools, [segment.text for segment in prompt.segments]]).encode("utf-8")
        shown = "".join(turn.visible for turn in prompt.turns)
        shown.encode("utf-8")
        for text in (
            f"Rain{MARK}?", f"Let me {MARK} see.", f"why {MARK}?",
            f"yes {MARK}{MARK}",
        ):  # fmt: skip
            assert text in shown
        assert prompt.turns[2].tool_calls == (ToolCall(f"{MARK}1", "f", f'"{MARK}"'),)
        assert prompt.turns[3].tool_call_id == f"{MARK}1"
        assert prompt.tools[0]["function"]["description"] == f"{MARK} does f"

    def test_spans_say_the_same_characters(self, local: bool) -> None:
        prompt = broken(local)
        assert contexts(prompt) == [("broken", [Span(0, len(BROKEN.text))])]
        (text,) = (segment.text for segment in prompt.segments if segment.sources)
        assert text == f"One {MARK} two {MARK}{MARK} three {MARK}."
        assert len(text) == len(BROKEN.text)

    def test_what_is_counted_is_what_is_sent(self, local: bool) -> None:
        prompt = broken(local)
        sent = [Message.from_openai(message) for message in prompt.messages]
        if local:
            assert prompt.token_count == len(tiny_counter().encode_prompt(prompt.turns, prompt.tools))
        else:
            tools = counter_of(False).count_prompt((), prompt.tools)  # with the opening of the answer
            assert prompt.token_count == len(joined_ids(sent)) + tools


def test_a_pair_of_halves_is_not_joined() -> None:
    """Joined, the two would be one character, and every span behind it would be wrong."""
    assert sendable("a\ud83d\ude00b") == f"a{MARK}{MARK}b"
    assert sendable("a😀b") == "a😀b"


def test_messages_that_can_be_sent_stay_themselves() -> None:
    whole = [
        Message("user", "😀", id="a"),
        Message("user", (Part(kind="image", data={"url": "data:,", "width": 4}),)),
        Message("assistant", tool_calls=(ToolCall("1", "f"),)),
    ]
    assert all(one is other for one, other in zip(sendable_history(whole), whole, strict=True))
    (image,) = sendable_history([Message("user", (Part(kind="image", data={"url": "\ud800", "width": 4}),))])
    assert image.parts[0].data == {"url": MARK, "width": 4}


class TestTools:
    def test_a_malformed_tool_is_refused_before_anything_is_counted(self) -> None:
        with pytest.raises(ConfigError) as caught:
            build(tools=({"type": "function", "function": {"name": "f", "parameters": {"required": {"x"}}}},))
        assert caught.value.subject == "tools[0] f"
        assert caught.value.remedy == "Give a list."

    def test_one_tool_is_not_a_list_of_tools(self) -> None:
        with pytest.raises(ConfigError, match="tools are not a list"):
            build(tools={"name": "f"})

    def test_tuples_are_lists_to_a_model(self) -> None:
        listed = build(tools=({"name": "f", "parameters": {"type": "object", "required": ["x"]}},))
        paired = build(tools=({"name": "f", "parameters": {"type": "object", "required": ("x",)}},))
        assert listed.fingerprint == paired.fingerprint
        assert listed.tools == paired.tools
