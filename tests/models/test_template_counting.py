"""The counter of local models: its ids are the template's, data never becomes a control token, prefixes are stable."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.errors import ConfigError, ModelError, ModelNotFoundError
from ctxkit.messages import Message, Part, ToolCall
from ctxkit.models import ChatTemplateCounter
from ctxkit.models.chat_template import ChatTemplate, pieces
from ctxkit.testing import ChatCounterConformance
from tests.models.test_openai_counting import WEATHER
from tests.tiny_models import CHATML, write_tokenizer

DIALOGUE = [
    Message("system", "Be brief."),
    Message("user", "What is 12 + 30?"),
    Message("assistant", "42"),
    Message("user", "And 这是?\n\nYes, 👍."),
]
CALL = ToolCall("call_1", "get_weather", '{"city": "Be<|im_end|>rn", "days": 3}')
CALLING = [
    *DIALOGUE,
    Message("assistant", "", tool_calls=(CALL,)),
    Message("tool", 'rain "today"\n', tool_call_id="call_1"),
    Message("assistant", "It rains."),
    Message("user", "Thanks"),
]

NATIVE_TOOLS = (
    "{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content %}{{ message.content }}{% endif %}"
    "{% for call in message.tool_calls or [] %}<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}'
    "\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level tokenizer like GPT-2's, with control tokens, one of them not marked special."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(["the weather of the city is what the user wants to know " * 20], trainer)
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("</tool_call>", normalized=False)])
    tokenizer.add_tokens([AddedToken("\n\n", normalized=False)])
    return write_tokenizer(tmp_path_factory.mktemp("bpe"), tokenizer, CHATML, eos_token="<|im_end|>")


def with_template(folder: Path, template: str, **options: object) -> ChatTemplateCounter:
    return ChatTemplateCounter(folder, chat_template=template, **options)  # type: ignore[arg-type]


class TestConformance(ChatCounterConformance):
    @pytest.fixture(autouse=True)
    def _folder(self, bpe: Path) -> None:
        self.folder = bpe

    def make_counter(self) -> ChatTemplateCounter:
        return ChatTemplateCounter(self.folder)


class TestNativeToolsConformance(TestConformance):
    def make_counter(self) -> ChatTemplateCounter:
        return with_template(self.folder, NATIVE_TOOLS)


def text_of(counter: ChatTemplateCounter, ids: list[int]) -> str:
    return str(counter.tokenizer._whole.decode(ids, skip_special_tokens=False))


def test_the_ids_are_those_of_the_whole_template(smol_counter: ChatTemplateCounter) -> None:
    """For texts without control tokens, part-wise encoding gives what transformers gives for the whole."""
    transformers = pytest.importorskip("transformers")
    reference = transformers.AutoTokenizer.from_pretrained(str(smol_counter.tokenizer.folder))
    for messages in (DIALOGUE, DIALOGUE[1:], DIALOGUE[1:2], DIALOGUE[:3]):
        expected = reference.apply_chat_template([m.to_openai() for m in messages], add_generation_prompt=True)
        expected = expected["input_ids"] if hasattr(expected, "keys") else expected
        assert smol_counter.encode_prompt(messages) == list(expected)
        assert smol_counter.count_prompt(messages) == len(expected)


def test_the_default_system_message_is_counted(smol_counter: ChatTemplateCounter) -> None:
    assert "SmolLM, trained by Hugging Face" in text_of(smol_counter, smol_counter.encode_prompt(DIALOGUE[1:2]))
    assert smol_counter.count_prompt(DIALOGUE[1:2]) > smol_counter.count_prompt(DIALOGUE[:2])


def test_prompts_are_stable_in_ids(smol_counter: ChatTemplateCounter, bpe: Path) -> None:
    plain = (
        "{% for m in messages %}### {{ m.role }}:\n{{ m.content }}\n\n{% endfor %}"
        "{% if add_generation_prompt %}### answer:\n{% endif %}"
    )
    for counter in (
        smol_counter,
        ChatTemplateCounter(bpe),
        with_template(bpe, plain),
        with_template(bpe, NATIVE_TOOLS),
    ):
        last = text_of(counter, counter.encode_prompt(DIALOGUE[:2])).split("What is 12 + 30?")[1]
        opening = last[last.find("<|im_start|>") :] if "<|im_start|>" in last else "### answer:\n"
        whole = counter.encode_prompt(CALLING)
        for end in range(1, len(CALLING)):
            shorter = counter.encode_prompt(CALLING[:end])
            same = next((i for i, (a, b) in enumerate(zip(shorter, whole, strict=False)) if a != b), len(shorter))
            left = text_of(counter, shorter[same:])
            assert opening.endswith(left), f"{end}: {left!r} is more than the opening of an answer"


def test_calls_and_results_by_the_template_that_has_them(bpe: Path) -> None:
    counter = with_template(bpe, NATIVE_TOOLS)
    ids = counter.encode_prompt(CALLING, [WEATHER])
    text = text_of(counter, ids)
    assert '{"name": "get_weather", "arguments": {"city": "Be<|im_end|>rn", "days": 3}}' in text
    assert '"name": "get_current_weather"' in text
    assert '<|im_start|>tool\nrain "today"\n<|im_end|>' in text
    end = counter.tokenizer.token_id("<|im_end|>")
    assert ids.count(end) == len(CALLING) + 1
    opening = counter.tokenizer.token_id("<tool_call>")
    assert ids.count(opening) == 1, text


def test_calls_and_results_as_text_where_the_template_has_none(smol_counter: ChatTemplateCounter) -> None:
    ids = smol_counter.encode_prompt(CALLING, [WEATHER])
    text = text_of(smol_counter, ids)
    assert (
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Be<|im_end|>rn", "days": 3}}\n</tool_call>' in text
    )
    assert '<tool_response>\nrain "today"\n\n</tool_response>' in text
    assert '"name": "get_current_weather"' in text
    assert ids.count(smol_counter.tokenizer.token_id("<|im_end|>") or -1) == len(CALLING)
    assert smol_counter.count_prompt(CALLING, [WEATHER]) == len(ids)


def test_data_inside_json_is_escaped_as_json(bpe: Path) -> None:
    template = CHATML.replace("message.content", "(message.content | tojson)")
    counter = with_template(bpe, template)
    said = 'he said "no"\nand left <|im_end|>'
    ids = counter.encode_prompt([Message("user", (Part(text=said[:9]), Part(text=said[9:])))])
    assert text_of(counter, ids).startswith(f"<|im_start|>user\n{json.dumps(said)}<|im_end|>\n")
    assert ids.count(counter.tokenizer.token_id("<|im_end|>")) == 1


def test_a_schema_cannot_smuggle_a_control_token(bpe: Path) -> None:
    counter = with_template(bpe, NATIVE_TOOLS)
    plain = counter.encode_prompt(DIALOGUE, [{"name": "f", "description": "x"}])
    for text in ("<|im_end|>", "<|im_end", "|im_end|>", "a<", "</tool_call>", ">"):
        ids = counter.encode_prompt(DIALOGUE, [{"name": text, "description": text, text: [text]}])
        for control in counter.tokenizer.control_ids:
            assert ids.count(control) == plain.count(control)
        assert text_of(counter, ids).count(text) >= 3


def test_an_added_token_that_is_not_special_stays_out_of_data(bpe: Path) -> None:
    counter = ChatTemplateCounter(bpe)
    call = counter.tokenizer.token_id("<tool_call>")
    assert call in counter.tokenizer.encode_template("<tool_call>")
    assert call not in counter.tokenizer.encode_data("a <tool_call> b")
    newlines = counter.tokenizer.token_id("\n\n")
    assert newlines in counter.tokenizer.encode_data("a\n\nb"), "white space is no control"


def test_vocabulary_pieces_that_spell_a_control_token_cannot_be_reached(tmp_path: Path) -> None:
    """Unigram vocabularies hold `<s>` with the best score of all."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = [(character, -8.0) for character in "abcdefghijklmnopqrstuvwxyz<>/[]▁\n:. "]
    vocabulary = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), *letters]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=0, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace()
    assert 1 in tokenizer.encode("a<s>b").ids, "the trap is there"
    template = "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}</s>{% endfor %}<s>assistant:"
    folder = write_tokenizer(tmp_path, tokenizer, template, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    counter = ChatTemplateCounter(folder)
    ids = counter.encode_prompt([Message("user", "a<s>b</s>"), Message("user", "<s")])
    assert ids.count(1) == 3
    assert ids.count(2) == 2
    assert text_of(counter, counter.tokenizer.encode_data("a<s>b</s>")) == "a<s>b</s>"
    space = counter.tokenizer.token_id("▁")
    assert counter.tokenizer.encode_data("ab")[0] != space, "data inside a prompt gets no space before it"


def test_whole_words_that_ignore_merges_cannot_be_reached(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    pieces = [*"abcdefghijklmnopqrstuvwxyz<>|_/ \n", "<|end|>"]
    tokenizer = Tokenizer(
        models.BPE({piece: index for index, piece in enumerate(pieces)}, [], ignore_merges=True, unk_token=None)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    control = pieces.index("<|end|>")
    assert tokenizer.encode("<|end|>").ids == [control], "the trap is there"
    counter = ChatTemplateCounter(
        write_tokenizer(tmp_path, tokenizer, "{{ messages[0].content }}", eos_token="<|end|>")
    )
    assert control not in counter.tokenizer.encode_data("<|end|>")
    assert counter.tokenizer.encode_template("<|end|>") == [control]


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


def test_a_model_without_a_template_gets_a_plain_one(bpe: Path, tmp_path: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((bpe / name).read_bytes())
    counter = ChatTemplateCounter(tmp_path)
    assert text_of(counter, counter.encode_prompt(DIALOGUE[:2])) == (
        "System: Be brief.\n\nUser: What is 12 + 30?\n\nAssistant:"
    )


def test_templates_in_the_settings_are_found(bpe: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((bpe / "tokenizer.json").read_bytes())
    settings = {
        "chat_template": [{"name": "default", "template": "D{{ messages[0].content }}"}],
        "eos_token": {"content": "<|im_end|>"},
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    counter = ChatTemplateCounter(tmp_path)
    assert text_of(counter, counter.encode_prompt(DIALOGUE[:1])) == "DBe brief."
    assert counter.tokenizer.special["eos_token"] == "<|im_end|>"


def test_the_end_of_an_answer_is_found_in_the_template(bpe: Path, smol_counter: ChatTemplateCounter) -> None:
    assert ChatTemplateCounter(bpe).stop_ids == {ChatTemplateCounter(bpe).tokenizer.token_id("<|im_end|>")}
    assert smol_counter.stop_ids == {smol_counter.tokenizer.token_id("<|im_end|>")}


def test_adding_a_part_encodes_that_part_only(smol_counter: ChatTemplateCounter) -> None:
    counter = ChatTemplateCounter(smol_counter.tokenizer.folder)
    parts = tuple(Part(text=f"Passage {number} says this.\n") for number in range(1000))
    counter.count_prompt([Message("system", "s"), Message("user", parts)])
    before = counter.data_memo.computed
    counter.count_prompt(
        [
            Message("system", "s"),
            Message("user", (*parts, Part(text="One more."))),
        ]
    )
    assert counter.data_memo.computed == before + 1


def test_count_message_is_what_a_message_adds(smol_counter: ChatTemplateCounter) -> None:
    for end in range(2, len(CALLING)):
        added = smol_counter.count_prompt(CALLING[: end + 1]) - smol_counter.count_prompt(CALLING[:end])
        assert smol_counter.count_message(CALLING[end]) == added


def test_digits_are_cut_as_the_model_was_trained(smol_counter: ChatTemplateCounter) -> None:
    two = smol_counter.tokenizer.encode_data("  ")
    assert smol_counter.tokenizer.encode_data("a  12") == [
        *smol_counter.tokenizer.encode_data("a"),
        *two,
        *(smol_counter.tokenizer.token_id(digit) for digit in "12"),
    ]


def test_lone_surrogates_and_nul(smol_counter: ChatTemplateCounter) -> None:
    ids = smol_counter.encode_prompt([Message("user", "\x00 \ud800 x")])
    assert "\x00 \ufffd x" in text_of(smol_counter, ids)


def test_folders_without_a_tokenizer_or_with_a_broken_one(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"tokenizer\.json"):
        ChatTemplateCounter(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ModelError, match="cannot be read"):
        ChatTemplateCounter(tmp_path)


def rendered(template: ChatTemplate, messages: list[Message], tools: list[dict[str, object]] | None = None) -> str:
    return "".join(text for text, _ in pieces(template.layout(messages, tools or [])))


def calling(*content: Part, arguments: str = "{}", result: str = "rain") -> list[Message]:
    call = ToolCall("call_1", "get_weather", arguments)
    return [
        Message("user", "And Bern?"),
        Message("assistant", content, tool_calls=(call,)),
        Message("tool", result, tool_call_id="call_1"),
    ]


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


def test_tools_that_are_none_are_refused(bpe: Path) -> None:
    counter = with_template(bpe, NATIVE_TOOLS)
    for tool in ({"name": "f", "parameters": {"properties": []}}, {"type": "function", "function": None}, "f"):
        with pytest.raises(ConfigError, match=r"tools\[0\]"):
            counter.count_prompt(DIALOGUE, [tool])  # type: ignore[list-item]


@pytest.mark.parametrize("source", [NATIVE_TOOLS, CHATML])
def test_tools_of_another_type_are_shown_as_they_are(source: str) -> None:
    tool: dict[str, object] = {"type": "custom", "custom": {"name": "run_code", "description": "Runs it."}}
    assert '"name": "run_code"' in rendered(ChatTemplate(source, special={}), DIALOGUE, [tool])
