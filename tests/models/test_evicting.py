"""A local model that evicts between reading a prompt and answering it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ctxkit.errors import ConfigError, ModelTimeoutError
from ctxkit.kvcache.eviction import Eviction, KVzip, SnapKV
from ctxkit.messages import Message
from ctxkit.models import LocalModel
from ctxkit.prompts import CompletionOptions, Prompt
from ctxkit.testing.models import prompt_of

TEXT = "The key is rotated on the first Monday of every month, by whoever is on call. " * 6


def ask(model: LocalModel) -> Prompt:
    return prompt_of(Message("user", TEXT + "When is the key rotated?"), counter=model.counter)


def hooks(model: LocalModel) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.weights.modules())


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("method", [SnapKV(window=16), KVzip()], ids=lambda method: method.name)
def test_an_answer_says_what_went(tiny_folder: Path, method: Any, even: bool) -> None:
    model = LocalModel(tiny_folder, eviction=Eviction(method=method, keep=0.5, even=even))
    options = CompletionOptions(max_tokens=8)
    before = hooks(model)  # transformers leaves its own where somebody asked for attentions
    first = model.complete(ask(model), options)
    done = model.evicted
    assert done is not None
    assert done.tokens == first.usage.prompt_tokens
    assert done.kept == round(done.tokens / 2)
    assert done.bytes_after < 0.55 * done.bytes_before
    assert hooks(model) == before
    assert model.complete(ask(model), options).text == first.text


def test_requests_at_once_do_not_see_each_other(tiny_folder: Path) -> None:
    model = LocalModel(tiny_folder, eviction=Eviction(method=SnapKV(window=16), keep=0.5))
    plain = LocalModel(tiny_folder)
    options = CompletionOptions(max_tokens=8)
    alone = [each.complete(ask(each), options).text for each in (model, plain)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda each: each.complete(ask(each), options).text, [model, plain] * 3))
    assert found == alone * 3


def test_hooks_go_with_a_request_that_fails(tiny_folder: Path) -> None:
    model = LocalModel(tiny_folder, eviction=Eviction(method=SnapKV(), keep=0.5))
    before = hooks(model)
    with pytest.raises(ModelTimeoutError):
        model.complete(ask(model), CompletionOptions(max_tokens=8, timeout=1e-9))
    assert hooks(model) == before


def test_something_else_is_refused(tiny_folder: Path) -> None:
    with pytest.raises(ConfigError, match="eviction"):
        LocalModel(tiny_folder, eviction=0.5)  # type: ignore[arg-type]
