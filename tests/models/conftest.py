"""The small local model's counter, a tiny tokenizer and model, and remote models with a server of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ctxkit.errors import ModelNotFoundError
from ctxkit.models import get_chat_counter
from ctxkit.models.remote import RemoteModel
from ctxkit.models.template_counting import ChatTemplateCounter
from tests.models import provider_server as provider
from tests.models.provider_server import Server, answer
from tests.models.remote_asking import Ask, make, streamed, streamed_async, whole, whole_async
from tests.tiny_models import CHATML, write_tokenizer

if TYPE_CHECKING:
    from ctxkit.models import LocalModel


@pytest.fixture(scope="session")
def smol_counter() -> ChatTemplateCounter:
    """The counter of SmolLM2; skips where the model is not installed."""
    try:
        counter = get_chat_counter("local")
    except ModelNotFoundError as error:
        pytest.skip(str(error))
    assert isinstance(counter, ChatTemplateCounter)
    return counter


@pytest.fixture(scope="session")
def tiny_model(tiny_folder: Path) -> LocalModel:
    from ctxkit.models import LocalModel

    return LocalModel(tiny_folder)


@pytest.fixture(scope="session")
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


@pytest.fixture
def server() -> Iterator[Server]:
    with provider.running() as server:
        server.script = [answer()]
        yield server


@pytest.fixture(params=["openai", "anthropic"])
def model(request: pytest.FixtureRequest, server: Server) -> RemoteModel:
    return make(request.param, server)


@pytest.fixture(params=[whole, streamed, whole_async, streamed_async], ids=lambda ask: ask.__name__)
def ask(request: pytest.FixtureRequest) -> Ask:
    return request.param  # type: ignore[no-any-return]
