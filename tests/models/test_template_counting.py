"""The counter of local models: its ids are the template's, data never becomes a control token, prefixes are stable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ctxkit.errors import ConfigError, ModelError, ModelNotFoundError
from ctxkit.messages import Message, Part
from ctxkit.models import ChatTemplateCounter
from ctxkit.testing import ChatCounterConformance
from tests.models.templating import CALLING, DIALOGUE, NATIVE_TOOLS, text_of, with_template
from tests.models.test_openai_counting import WEATHER
from tests.tiny_models import CHATML, write_tokenizer


class TestConformance(ChatCounterConformance):
    @pytest.fixture(autouse=True)
    def _folder(self, bpe: Path) -> None:
        self.folder = bpe

    def make_counter(self) -> ChatTemplateCounter:
        return ChatTemplateCounter(self.folder)


class TestNativeToolsConformance(TestConformance):
    def make_counter(self) -> ChatTemplateCounter:
        return with_template(self.folder, NATIVE_TOOLS)


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


def test_tools_that_are_none_are_refused(bpe: Path) -> None:
    counter = with_template(bpe, NATIVE_TOOLS)
    for tool in ({"name": "f", "parameters": {"properties": []}}, {"type": "function", "function": None}, "f"):
        with pytest.raises(ConfigError, match=r"tools\[0\]"):
            counter.count_prompt(DIALOGUE, [tool])  # type: ignore[list-item]
