"""A small byte-pair tokenizer with ChatML control tokens, made on the spot; and OpenAI's ids of a whole prompt."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from ctxkit.messages import Message
from ctxkit.models import ChatTemplateCounter, OpenAIChatCounter
from ctxkit.protocols import ChatCounter
from ctxkit.tokens import get_counter

_CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_CORPUS = [
    "Answer the question using only the numbered documents in the user's message.",
    "A sentence about the weather in Bern. Another word, another chunk, another document.",
    "这是一个句子。 日本語のテキスト。",
]


@cache
def tiny_counter() -> ChatTemplateCounter:
    """A chat template's counter over a byte-level tokenizer of 400 pieces."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in ("<|im_start|>", "<|im_end|>")])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer.save(str(folder / "tokenizer.json"))
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
        return ChatTemplateCounter(folder, chat_template=_CHATML)


@cache
def openai_counter() -> OpenAIChatCounter:
    return OpenAIChatCounter("gpt-4o")


def counter_of(local: bool) -> ChatCounter:
    """A chat template's counter, which encodes each part by itself; or OpenAI's, which joins a message's parts."""
    return tiny_counter() if local else openai_counter()


def joined_ids(messages: Sequence[Message]) -> list[int]:
    """The ids of messages as OpenAI documents them: three of framing, the role, the joined content.

    Calls and their results have no documented ids: as many stand for them as the chat counter counts.
    """
    counter, chat = get_counter("o200k_base"), openai_counter()
    ids: list[int] = []
    for message in messages:
        own = [-1, -2, -3, *counter.encode(message.role)]
        content = counter.encode(message.visible)
        if message.tool_calls or message.tool_call_id:
            own += [-4] * (chat.count_message(message) - len(own) - len(content))
        ids += own + content
    return ids
