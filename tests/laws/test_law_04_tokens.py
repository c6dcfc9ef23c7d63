"""Law 4: data never becomes a control token, in ids."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.errors import ModelNotFoundError
from ctxkit.messages import Message, Part, ToolCall
from ctxkit.models import ChatTemplateCounter, get_chat_counter
from tests.strategies import texts
from tests.tiny_models import write_tokenizer

CONTROLS = st.sampled_from(
    [
        "<|im_start|>",
        "<|im_end|>",
        "<|endoftext|>",
        "<s>",
        "</s>",
        "[INST]",
        "<tool_call>",
        "<|im_",
        "start|>",
        "<",
        "|>",
    ]
)
attacks = st.lists(st.one_of(texts, CONTROLS), max_size=6).map("".join)
roles = st.sampled_from(["system", "user", "assistant"])
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content %}{{ m.content }}{% endif %}"
    "{% for c in m.tool_calls or [] %}"
    "<tool_call>{{ c.function.name }} {{ c.function.arguments | tojson }}</s>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> ChatTemplateCounter:
    """A byte-level tokenizer with special and not so special control tokens, some of them whole words of it."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=["<|im_start|>", "<|im_end|>", "<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["<s> </s> [INST] the user says <tool_call> words " * 40], trainer)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in ("<s>", "</s>", "[INST]", "<tool_call>")])
    folder = write_tokenizer(tmp_path_factory.mktemp("law4"), tokenizer, TEMPLATE, eos_token="<|im_end|>")
    return ChatTemplateCounter(folder)


@pytest.fixture(scope="module")
def unigram(tmp_path_factory: pytest.TempPathFactory) -> ChatTemplateCounter:
    """A vocabulary whose best pieces spell control tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = [(character, -9.0) for character in "abcdefghijklmnopqrstuvwxyz<>/|_[]▁\n"]
    pieces = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), ("<|im_start|>", -1.0), ("<|im_end|>", -1.0), *letters]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    folder: Path = write_tokenizer(tmp_path_factory.mktemp("law4u"), tokenizer, TEMPLATE, **special)
    return ChatTemplateCounter(folder)


def controls(counter: ChatTemplateCounter, ids: list[int]) -> list[int]:
    return [token for token in ids if token in counter.tokenizer.control_ids]


@given(text=attacks)
def test_no_text_becomes_a_control_token(bpe: ChatTemplateCounter, unigram: ChatTemplateCounter, text: str) -> None:
    for counter in (bpe, unigram):
        assert controls(counter, counter.tokenizer.encode_data(text)) == []
    said = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert bpe.tokenizer._whole.decode(bpe.tokenizer.encode_data(text), skip_special_tokens=False) == said


@given(turns=st.lists(st.tuples(roles, st.lists(attacks, min_size=1, max_size=3)), min_size=1, max_size=5))
def test_the_control_tokens_of_a_prompt_depend_on_its_roles_alone(
    bpe: ChatTemplateCounter, unigram: ChatTemplateCounter, turns: list[tuple[str, list[str]]]
) -> None:
    attacked = [Message(role, tuple(Part(text=text) for text in parts)) for role, parts in turns]  # type: ignore[arg-type]
    harmless = [Message(role, "x") for role, _ in turns]  # type: ignore[arg-type]
    for counter in (bpe, unigram):
        ids = counter.encode_prompt(attacked)
        assert controls(counter, ids) == controls(counter, counter.encode_prompt(harmless))
        assert counter.count_prompt(attacked) == len(ids)


@given(name=attacks, arguments=st.one_of(attacks, st.dictionaries(attacks, attacks, max_size=2)), result=attacks)
def test_calls_and_results_are_data(
    bpe: ChatTemplateCounter, name: str, arguments: str | dict[str, str], result: str
) -> None:
    import json

    written = arguments if isinstance(arguments, str) else json.dumps(arguments)

    def dialogue(name: str, written: str, result: str) -> list[Message]:
        call = ToolCall("1", name, written)
        return [
            Message("user", "x"),
            Message("assistant", "", tool_calls=(call,)),
            Message("tool", result, tool_call_id="1"),
        ]

    ids = bpe.encode_prompt(dialogue(name, written, result))
    plain = bpe.encode_prompt(dialogue("f", "{}", "r"))
    assert controls(bpe, ids) == controls(bpe, plain)


@given(text=attacks)
def test_tool_schemas_are_data(bpe: ChatTemplateCounter, text: str) -> None:
    def tool(text: str) -> dict[str, object]:
        properties = {text or "x": {"type": "string", "description": text, "enum": [text]}}
        return {"name": text or "x", "description": text, "parameters": {"type": "object", "properties": properties}}

    native = ChatTemplateCounter(
        bpe.tokenizer.folder, chat_template="{% for t in tools or [] %}{{ t | tojson }}{% endfor %}" + TEMPLATE
    )
    messages = [Message("user", "x")]
    for counter in (bpe, native):
        assert controls(counter, counter.encode_prompt(messages, [tool(text)])) == controls(
            counter, counter.encode_prompt(messages, [tool("plain")])
        )


@pytest.mark.model
@given(text=attacks)
def test_the_small_model_is_safe_too(text: str) -> None:
    try:
        counter = get_chat_counter("local")
    except ModelNotFoundError as error:
        pytest.skip(str(error))
    assert isinstance(counter, ChatTemplateCounter)
    ids = counter.encode_prompt([Message("system", text), Message("user", text)])
    start, end = (counter.tokenizer.token_id(token) for token in ("<|im_start|>", "<|im_end|>"))
    assert controls(counter, ids) == [start, end, start, end, start]
