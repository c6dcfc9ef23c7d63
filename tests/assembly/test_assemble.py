"""What assembly does, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ctxkit.documents import Candidate, Query, Span
from ctxkit.errors import BudgetError, ConfigError, MissingVariableError
from ctxkit.messages import Message, ToolCall
from ctxkit.models import OpenAIChatCounter
from ctxkit.prompts import Budget, Section
from ctxkit.templates import Template
from ctxkit.trace import Trace
from tests.assembly.building import BOOK, COUNTER, NOTE, build, candidate, contexts, dialogue


class TestThePrompt:
    def test_the_whole_of_a_small_one(self) -> None:
        prompt = build(candidates=[candidate(NOTE, 0, 99, 1.0)], history=dialogue(2, 1))
        assert [message["role"] for message in prompt.messages] == ["system", "user", "assistant", "user"]
        last = prompt.messages[-1]["content"]
        tag = last[last.index("-") + 1 :][:6]
        assert last == (
            f'Documents:\n<document-{tag} id="1" source="note.md">\n{NOTE.text}\n</document-{tag}>\n\n'
            "Question: How often is the key rotated?"
        )
        assert [segment.section for segment in prompt.segments] == [
            "system", "history", "history", "user", "context", "context", "context", "user", "question",
        ]  # fmt: skip
        assert prompt.token_count == COUNTER.count_prompt(prompt.turns)

    def test_documents_are_numbered_in_the_order_of_the_candidates(self) -> None:
        order = [candidate(BOOK, 300, 400, 0.2), candidate(NOTE, 0, 99, 0.9), candidate(BOOK, 900, 1_000, 0.5)]
        prompt = build(candidates=order)
        assert contexts(prompt) == [
            ("book", [Span(300, 400)]),
            ("note", [Span(0, len(NOTE.text))]),
            ("book", [Span(900, 1_000)]),
        ]
        text = prompt.messages[-1]["content"]
        assert text.index('id="1"') < text.index('id="2"') < text.index('id="3"')

    def test_explain_names_sources_and_drops(self) -> None:
        prompt = build(candidates=[candidate(NOTE, 0, 99, 1.0), candidate(BOOK, 0, 9_000, 0.1)], budget=Budget(300))
        shown = prompt.explain()
        assert "note.md:0-47" in shown
        assert "fences around the documents" in shown
        assert "  book.md:0-9000: its " in shown
        assert "template default" in shown

    def test_a_question_without_a_slot_is_the_last_message(self) -> None:
        prompt = build(template=Template.parse([{"role": "system", "content": "Be brief."}], name="t"))
        assert prompt.messages[-1] == {"role": "user", "content": "How often is the key rotated?"}

    def test_a_history_without_a_marker_follows_the_system_messages(self) -> None:
        template = Template.parse(
            [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "{{question}}"}]
        )
        prompt = build(template=template, history=dialogue(2))
        assert [turn.id for turn in prompt.turns] == ["", "m0", "m1", ""]

    def test_the_question_at_the_end_of_the_history_stands_once(self) -> None:
        history = [*dialogue(2), Message("user", "How often is the key rotated?", id="asked")]
        prompt = build(history=history)
        assert sum(turn.text.count("How often") for turn in prompt.turns) == 1
        (question,) = [segment for segment in prompt.segments if segment.section == "question"]
        assert question.message_id == "asked"
        assert not prompt.dropped

    def test_calls_in_the_history_stay_with_their_results(self) -> None:
        history = [
            Message("user", "Weather?", id="a"),
            Message("assistant", tool_calls=(ToolCall("c", "weather", '{"city": "Bern"}'),), id="b"),
            Message("tool", "rain " * 300, tool_call_id="c", id="c"),
            Message("assistant", "It rains.", id="d"),
        ]
        prompt = build(history=history, budget=Budget(250))
        kept = {turn.id for turn in prompt.turns} & {"a", "b", "c", "d"}
        assert ("b" in kept) == ("c" in kept)
        assert {item.item for item in prompt.dropped} == {"a", "b", "c", "d"} - kept


class TestRoomBeforeContent:
    def test_the_candidates_are_asked_for_once_with_the_room(self) -> None:
        asked: list[Query] = []

        def find(query: Query) -> list[Candidate]:
            asked.append(query)
            return [candidate(BOOK, 0, 7_000, 0.5)]

        query = Query("Why?", filters={"title": "x"}, session="s")
        prompt = build(query=query, candidates=find, history=dialogue(4), budget=Budget(1_000, reserve_output=100))
        (told,) = asked
        assert told.room is not None
        assert (told.text, told.filters, told.session) == ("Why?", {"title": "x"}, "s")
        mandatory = next(record for record in prompt.trace.records if record.stage == "mandatory").tokens_out
        history = sum(COUNTER.count_message(turn) for turn in prompt.turns if turn.id)
        assert told.room <= 900 - mandatory - history
        assert told.room >= 0.87 * (900 - mandatory - history)

    def test_text_of_as_many_tokens_as_the_room_fits(self) -> None:
        def find(query: Query) -> list[Candidate]:
            assert query.room is not None
            room, found, at = query.room, [], 0
            while True:  # chunks of about a hundred tokens, as a compressor would leave them
                one = candidate(BOOK, at, at + 600, 0.5)
                room -= COUNTER.count(one.text)
                if room < 0 or at + 600 > len(BOOK.text):
                    return found[::-1]
                found.append(one)
                at += 700

        prompt = build(candidates=find, budget=Budget(1_200))
        assert not prompt.dropped

    def test_nobody_is_asked_where_the_template_has_no_place(self) -> None:
        def find(query: Query) -> list[Candidate]:
            raise AssertionError

        prompt = build(template=Template.parse("{{question}}"), candidates=find)
        assert len(prompt.turns) == 1
        prompt = build(template=Template.parse("{{question}}"), candidates=[candidate(NOTE, 0, 99, 1.0)])
        assert [item.reason for item in prompt.dropped] == ["the template has no place for context"]


class TestSections:
    def test_what_the_context_leaves_goes_to_the_history(self) -> None:
        history = dialogue(40)
        alone = build(history=history, budget=Budget(1_000))
        small = build(history=history, budget=Budget(1_000), candidates=[candidate(NOTE, 0, 99, 1.0)])
        full = build(
            history=history,
            budget=Budget(1_000),
            candidates=[candidate(BOOK, at, at + 300, 0.5) for at in range(0, 6_000, 400)],
        )
        kept = [sum(1 for turn in prompt.turns if turn.id) for prompt in (full, small, alone)]
        assert kept == sorted(kept)
        assert kept[0] < kept[1]
        assert full.token_count > 900

    def test_retrieval_that_finds_nothing_costs_the_history_nothing(self) -> None:
        for size in range(150, 900, 50):
            found = build(history=dialogue(40), budget=Budget(size), candidates=lambda query: ())
            given = build(history=dialogue(40), budget=Budget(size))
            assert (found.fingerprint, found.messages) == (given.fingerprint, given.messages)

    def test_priority_serves_history_first_and_last(self) -> None:
        history = dialogue(40)
        found = [candidate(BOOK, at, at + 300, 0.5) for at in range(0, 6_000, 400)]

        def tokens(section: str, sections: Mapping[str, Section]) -> int:
            prompt = build(history=history, candidates=found, budget=Budget(1_000, sections=sections))
            return sum(segment.token_count for segment in prompt.segments if segment.section == section)

        assert tokens("context", {"history": Section(priority=1)}) == 0
        assert tokens("context", {"history": Section(priority=1), "context": Section(min=200)}) > 90
        assert tokens("history", {"context": Section(priority=1)}) < 150
        assert tokens("context", {"context": Section(max=150)}) <= 150
        assert tokens("history", {"history": Section(share=0.2)}) <= 200

    def test_a_cap_on_a_mandatory_section(self) -> None:
        with pytest.raises(BudgetError) as caught:
            build("why " * 100, budget=Budget(2_000, sections={"question": Section(max=50)}))
        assert caught.value.available == 50
        assert set(caught.value.parts) == {"question"}

    def test_an_unknown_section_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="the template default has no section 'contxt'") as caught:
            build(budget=Budget(2_000, sections={"contxt": Section(max=50)}))
        assert caught.value.remedy == (
            "Did you mean 'context'? Its sections: chat format, context, history, question, system, tools, user."
        )

    def test_a_section_that_this_request_has_nothing_for_is_known(self) -> None:
        """One budget serves templates with and without a place for context, and payloads with an empty value."""
        every = {name: Section(max=200) for name in ("history", "context", "question", "tools", "user", "tone")}
        template = Template.parse("{{tone}}{{question}}", name="bare")
        assert build(template=template, payload={"tone": ""}, budget=Budget(2_000, sections=every)).token_count > 0

    def test_minima_beyond_the_room_are_noted(self) -> None:
        minima = {"history": Section(min=600), "context": Section(min=700)}
        found = [candidate(NOTE, 0, 99, 1.0)]
        for size, noted in ((1_000, True), (2_000, False)):
            prompt = build(budget=Budget(size, sections=minima), candidates=found)
            (notes,) = (record.notes for record in prompt.trace.records if record.stage == "history")
            (mandatory,) = (record.tokens_out for record in prompt.trace.records if record.stage == "mandatory")
            expected = {"history": 600, "context": 700, "room": 1_000 - mandatory} if noted else None
            assert notes.get("minima beyond the room") == expected


class TestHonesty:
    def test_hints_are_not_believed(self) -> None:
        """Every chunk says that it is one token."""
        prompt = build(candidates=[candidate(BOOK, at, at + 700, 0.5) for at in range(0, 7_000, 700)],
                       budget=Budget(500))  # fmt: skip
        assert prompt.token_count <= 500
        assert contexts(prompt)

    def test_a_plan_that_was_too_small_is_corrected(self) -> None:
        """A counter whose whole is larger than its parts: items leave until the whole fits."""

        class Heavy(OpenAIChatCounter):
            def count_prompt(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> int:
                total = super().count_prompt(messages, tools)
                return total + total // 4

        history = dialogue(10)
        for sections in ({}, {"history": Section(priority=-1)}, {"context": Section(priority=-1)}):
            prompt = build(
                counter=Heavy("gpt-4o"),
                history=history,
                candidates=[candidate(BOOK, at, at + 500, 0.5 + at / 20_000) for at in range(0, 7_000, 600)],
                budget=Budget(900, sections=sections),
            )
            assert prompt.token_count == Heavy("gpt-4o").count_prompt(prompt.turns) <= 900
            lost = {item.item for item in prompt.dropped}
            assert len([turn for turn in prompt.turns if turn.id]) + len(lost & {m.id for m in history}) == len(history)

    def test_mandatory_parts_that_do_not_fit_are_named(self) -> None:
        tool = {"type": "function", "function": {"name": "f", "description": "A long description. " * 30}}
        with pytest.raises(BudgetError) as caught:
            build("why " * 200, tools=(tool,), budget=Budget(400, reserve_output=100))
        error = caught.value
        assert set(error.parts) == {"system", "user", "question", "tools", "chat format"}
        assert error.parts["question"] == 201
        assert error.available == 300
        assert error.excess == sum(error.parts.values()) - 300
        assert "question 201" in str(error)

    def test_an_empty_question_is_refused(self) -> None:
        for question in ("", "  \n\u3000"):
            with pytest.raises(ConfigError):
                build(question)

    def test_a_missing_variable_is_the_templates_error(self) -> None:
        with pytest.raises(MissingVariableError):
            build(template=Template.parse("{{tone}} {{question}}"))

    def test_the_trace_of_the_caller_is_used(self) -> None:
        trace = Trace()
        prompt = build(trace=trace, candidates=[candidate(NOTE, 0, 99, 1.0)])
        assert prompt.trace is trace
        assert [record.stage for record in trace.records] == [
            "template", "mandatory", "history", "candidates", "packing", "verification",
        ]  # fmt: skip


class TestStablePrefix:
    def test_the_default_template_and_a_dialogue(self) -> None:
        history = dialogue(4)
        prompt = build(query=Query("Why?", session="s"), history=history)
        system = COUNTER.count_message(prompt.turns[0])
        assert prompt.stable_prefix_tokens == system + sum(map(COUNTER.count_message, history))

    def test_instructions_in_one_message_with_the_documents(self) -> None:
        rules = "Always answer in one sentence. " * 20
        template = Template.parse(rules + "\n{{context}}\n{{question}}", name="one")
        one = build(template=template, candidates=[candidate(NOTE, 0, 99, 1.0)])
        assert COUNTER.count(rules) - 8 <= one.stable_prefix_tokens <= COUNTER.count(rules)
