"""How the counter of local models renders: what templates ask for, and nothing of what was rendered before."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.errors import ConfigError
from ctxkit.messages import Message, Part
from ctxkit.models import ChatTemplateCounter
from ctxkit.models.chat_template import ChatTemplate, pieces
from tests.models.templating import DIALOGUE, NATIVE_TOOLS, calling, rendered, text_of, with_template
from tests.models.test_openai_counting import WEATHER
from tests.tiny_models import CHATML


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (
            "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + CHATML,
            "<|im_start|>user\nBe brief.\n\nWhat is 12 + 30?<|im_end|>",
        ),
        (
            "{% for m in messages %}{% if m.role != 'system' %}[{{ m.content | trim }}]{% endif %}{% endfor %}",
            "[Be brief.\n\nWhat is 12 + 30?]",
        ),
        (
            "{% for m in messages %}{% if loop.index0 and messages[loop.index0 - 1].role == m.role %}"
            "{{ raise_exception('alternate!') }}{% endif %}[{{ m.content }}]{% endfor %}",
            "[Be brief.][What is 12 + 30?][42]",
        ),
        (
            "{%- generation -%}{{ messages[0].content + messages[1].content }}{%- endgeneration -%}{{ messages[2:] }}",
            "Be brief.",
        ),
    ],
    ids=["refuses a system message", "leaves the system message out", "wants alternation", "generation tag"],
)
def test_templates_that_refuse_or_leave_out(bpe: Path, template: str, expected: str) -> None:
    counter = with_template(bpe, template)
    assert expected in text_of(counter, counter.encode_prompt(DIALOGUE))


def test_neighbours_of_one_role_are_joined_where_the_template_wants_it(bpe: Path) -> None:
    template = (
        "{% for m in messages %}{% if loop.index0 and messages[loop.index0 - 1].role == m.role %}"
        "{{ raise_exception('alternate!') }}{% endif %}[{{ m.content }}]{% endfor %}"
    )
    counter = with_template(bpe, template)
    assert text_of(counter, counter.encode_prompt([Message("user", "a"), Message("user", "b")])) == "[a\n\nb]"


def test_a_template_that_can_never_take_a_message_says_so(bpe: Path) -> None:
    with pytest.raises(ConfigError, match="leaves out"):
        with_template(bpe, "{{ messages[0].role }}").count_prompt(DIALOGUE)
    with pytest.raises(ConfigError, match="malformed"):
        with_template(bpe, "{% for %}")
    with pytest.raises(ConfigError, match="kind 'image'"):
        with_template(bpe, CHATML).count_prompt([Message("user", (Part(kind="image", data={"url": "x"}),))])


def test_a_template_cannot_reach_the_machine(bpe: Path) -> None:
    counter = with_template(bpe, "{{ messages.__class__.__mro__[1].__subclasses__() }}{{ messages[0].content }}")
    with pytest.raises(ConfigError, match=r"Security|unsafe"):
        counter.count_prompt(DIALOGUE[:1])


def test_the_date_of_a_template_is_fixed(bpe: Path) -> None:
    template = "Today is {{ strftime_now('%d %b %Y') }}.\n" + CHATML
    counter = with_template(bpe, template, today=date(2026, 11, 30))
    assert "Today is 30 Nov 2026." in text_of(counter, counter.encode_prompt(DIALOGUE))


def test_options_reach_the_template(bpe: Path) -> None:
    template = CHATML + "{% if enable_thinking %}<think>{% endif %}"
    counter = with_template(bpe, template, options={"enable_thinking": True})
    assert text_of(counter, counter.encode_prompt(DIALOGUE)).endswith("<think>")


def test_reasoning_of_the_past_is_not_sent(bpe: Path) -> None:
    counter = ChatTemplateCounter(bpe)
    thought = Message("assistant", (Part(kind="reasoning", text="hm"), Part(text="42")))
    assert counter.encode_prompt([thought]) == counter.encode_prompt([Message("assistant", "42")])


@pytest.mark.parametrize("first_thinks", [True, False])
def test_a_dialogue_is_never_rendered_by_the_layout_of_another(first_thinks: bool) -> None:
    """A thought is not shown, so a call after a thought and a call after a text are two structures."""
    template = ChatTemplate(NATIVE_TOOLS, special={})
    thinks, says = calling(Part("reasoning", "thinking")), calling(Part("text", "I will look."))
    expected = (
        "<|im_start|>user\nAnd Bern?<|im_end|>\n<|im_start|>assistant\n{}<tool_call>\n"
        '{{"name": "get_weather", "arguments": {{}}}}\n</tool_call><|im_end|>\n'
        "<|im_start|>tool\nrain<|im_end|>\n<|im_start|>assistant\n"
    )
    for messages in (thinks, says) if first_thinks else (says, thinks):
        assert rendered(template, messages) == expected.format("I will look." if messages is says else "")


parts = st.lists(st.builds(Part, st.sampled_from(["text", "reasoning"]), st.sampled_from(["", "x", "\n"])), max_size=2)
arguments = st.sampled_from(
    ["", "{}", "[1]", '{"a": "b"}', '{"b": "a"}', '{"a": ""}', '{"a": 1}', '{"a": true}', '{"a": 1.0}', "{"]
)
dialogues = st.lists(
    st.one_of(
        st.builds(lambda content: [Message("system", tuple(content))], parts),
        st.builds(lambda content: [Message("user", tuple(content))], parts),
        st.builds(
            lambda content, name: [Message("assistant", tuple(content), name=name)], parts, st.sampled_from("ab")
        ),
        st.builds(
            lambda content, arguments, result: calling(*content, arguments=arguments, result=result)[1:],
            parts,
            arguments,
            st.sampled_from(["", "rain"]),
        ),
    ),
    min_size=1,
    max_size=3,
).map(lambda turns: [Message("user", "x"), *(message for turn in turns for message in turn)])


@pytest.mark.parametrize("source", [NATIVE_TOOLS, CHATML])
@given(earlier=st.lists(dialogues, max_size=3), messages=dialogues, tools=st.sampled_from([[], [WEATHER]]))
def test_what_was_rendered_before_changes_nothing(
    source: str, earlier: list[list[Message]], messages: list[Message], tools: list[dict[str, object]]
) -> None:
    used, fresh = ChatTemplate(source, special={}), ChatTemplate(source, special={})
    for dialogue in earlier:
        used.layout(dialogue, tools)
    assert list(pieces(used.layout(messages, tools))) == list(pieces(fresh.layout(messages, tools)))


def test_other_texts_in_a_known_structure_are_not_rendered_again() -> None:
    template = ChatTemplate(NATIVE_TOOLS, special={})
    rendered(template, calling(arguments='{"city": "Bern"}'))
    known = len(template._rendered)
    for city in ("Basel", "Genf"):
        assert city in rendered(template, calling(arguments=f'{{"city": "{city}"}}', result=city))
    assert len(template._rendered) == known


def test_the_overhead_of_a_message_is_not_that_of_another(bpe: Path) -> None:
    counter = with_template(bpe, NATIVE_TOOLS.replace("message.role }}", "message.role }} {{ message.name }}"))
    alike = [
        Message("assistant", (Part("reasoning", "hm"),)),
        Message("assistant", (Part("text", "hm"),)),
        Message("user", "x", name="a"),
        Message("user", "x", name="a name that is longer than the other"),
        Message("user", (Part("image", data={"url": "x"}), Part(text="x"))),
        Message("user", "x"),
    ]
    for message in alike:
        fresh = ChatTemplateCounter(bpe, chat_template=counter.template.source)
        assert counter.count_message(message) == fresh.count_message(message)


def test_arguments_of_any_depth_are_rendered(bpe: Path) -> None:
    counter = with_template(bpe, NATIVE_TOOLS)
    for depth in (10, 63, 64, 500, 100_000):
        arguments = '{"a": ' + "[" * depth + "]" * depth + "}"
        ids = counter.encode_prompt(calling(arguments=arguments))
        assert text_of(counter, ids).count("[") == depth


@pytest.mark.parametrize("source", [NATIVE_TOOLS, CHATML])
def test_tools_of_another_type_are_shown_as_they_are(source: str) -> None:
    tool: dict[str, object] = {"type": "custom", "custom": {"name": "run_code", "description": "Runs it."}}
    assert '"name": "run_code"' in rendered(ChatTemplate(source, special={}), DIALOGUE, [tool])
