"""What is laid out is a dialogue that every provider takes, or the template is refused (law 5)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ctxkit.errors import HistoryError, TemplateError
from ctxkit.history import check_history
from ctxkit.messages import Message, Part
from ctxkit.protocols import ChatCounter
from ctxkit.templates import Template
from tests.assembly.building import NOTE, build, candidate, dialogue
from tests.assembly.counters import counter_of

FOUND = [candidate(NOTE, 0, 99, 1.0)]


class TestTemplates:
    @pytest.mark.parametrize(
        ("roles", "problem", "remedy"),
        [
            (["system {{question}}", "user {{context}}"], "the question stands in the message of role system",
             "Put {{question}} in a user message."),
            (["user {{context}}", "assistant {{question}}"], "the question stands in the message of role assistant",
             "Put {{question}} in a user message."),
            (["system Be brief.", "user {{question}}", "system Be kind."], "a system message stands inside",
             "Put system messages first"),
            (["history", "system Be brief.", "user {{question}}"], "a system message stands inside",
             "Put system messages first"),
            (["system Be brief.", "assistant Hello!", "user {{question}}"], "begins with an assistant message",
             "Put the user message that it answers before it."),
            (["history", "assistant Hello!", "user {{question}}"], "begins with an assistant message",
             "Put the user message that it answers before it."),
        ],
    )  # fmt: skip
    def test_an_order_that_providers_refuse_is_refused_whatever_fills_it(
        self, roles: list[str], problem: str, remedy: str
    ) -> None:
        parts = [role.partition(" ") for role in roles]
        template = Template.parse([{"role": role, "content": content} for role, _, content in parts], name="wrong")
        for history in ((), dialogue(2)):
            for candidates in ((), FOUND):
                with pytest.raises(TemplateError) as caught:
                    build(template=template, history=history, candidates=candidates)
                assert problem in caught.value.message
                assert caught.value.subject == "template wrong"
                assert caught.value.remedy.startswith(remedy)

    @pytest.mark.parametrize("candidates", [(), FOUND], ids=["nothing found", "found"])
    @pytest.mark.parametrize("turns", [0, 2])
    def test_an_answer_to_documents_is_left_out_with_them(self, candidates: Sequence[object], turns: int) -> None:
        template = Template.parse(
            [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "{{context}}"},
                {"role": "assistant", "content": "I have read them."},
                {"role": "history"},
                {"role": "user", "content": "{{question}}"},
            ],
            name="shown",
        )
        prompt = build(template=template, candidates=candidates, history=dialogue(turns))
        check_history(prompt.turns)
        shown = ["user", "assistant"] if candidates else []
        past = [turn.role for turn in dialogue(turns)]
        assert [turn.role for turn in prompt.turns] == ["system", *shown, *past, "user"]
        notes = prompt.trace.records[-1].notes.get("messages of the template that are left out", [])
        assert notes == (
            [] if candidates else ["user: it has no text", "assistant: the message that it answers is left out"]
        )

    def test_documents_may_stand_in_a_system_message(self) -> None:
        template = Template.parse(
            [{"role": "system", "content": "{{context}}"}, {"role": "user", "content": "{{question}}"}]
        )
        for candidates, roles in (((), ["user"]), (FOUND, ["system", "user"])):
            prompt = build(template=template, candidates=candidates)
            assert [turn.role for turn in prompt.turns] == roles


class TestHistories:
    def test_system_messages_of_the_history_stand_with_the_templates_own(self) -> None:
        template = Template.parse(
            [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "An example"},
                {"role": "assistant", "content": "Its answer"},
                {"role": "history"},
                {"role": "user", "content": "{{question}}"},
            ]
        )
        history = [Message("system", "You book flights.", id="s"), *dialogue(2)]
        prompt = build(template=template, history=history)
        check_history(prompt.turns)
        assert [turn.id for turn in prompt.turns] == ["", "s", "", "", "m0", "m1", ""]
        assert prompt.stable_prefix_tokens == sum(map(counter_of(False).count_message, prompt.turns[:-1]))

    def test_a_window_that_gives_no_dialogue_is_named(self) -> None:
        class Backwards:
            def select(self, messages: Sequence[Message], max_tokens: int, counter: ChatCounter) -> list[Message]:
                return list(messages)[::-1]

        with pytest.raises(HistoryError, match="no valid dialogue: the dialogue begins with an assistant") as caught:
            build(history=dialogue(2), window=Backwards())
        assert "window" in caught.value.remedy

    def test_reasoning_is_neither_sent_nor_in_a_segment(self) -> None:
        history = [
            Message("user", "Rain?", id="q"),
            Message("assistant", (Part("reasoning", "hm " * 200), Part(text="Yes.")), id="a"),
        ]
        plain = [history[0], Message("assistant", "Yes.", id="a")]
        prompt, same = build(history=history), build(history=plain)
        (answer,) = (segment for segment in prompt.segments if segment.message_id == "a")
        assert answer.text == prompt.messages[2]["content"] == "Yes."
        assert prompt.segments == same.segments
        assert prompt.token_count == same.token_count
        assert prompt.token_count > sum(segment.token_count for segment in prompt.segments)

    def test_a_question_in_parts_at_the_end_of_the_history_stands_once(self) -> None:
        asked = Message("user", (Part(text="How often is "), Part(text="the key rotated?")), id="asked")
        prompt = build(history=[*dialogue(2), asked])
        assert sum(turn.visible.count("How often") for turn in prompt.turns) == 1
        seen = Message("user", (*asked.parts, Part(kind="image", data={"url": "data:,"})), id="seen")
        prompt = build(history=[*dialogue(2), seen])
        assert prompt.turns[-2].id == "seen"  # an image is more than the question
