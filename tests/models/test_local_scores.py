"""Reading a text in one pass: surprise, attention entropy and the question's attention, against the plain way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ctxkit.compression import TokenScores
from ctxkit.models import LocalModel
from ctxkit.models import local_scores as module

QUESTION = "when does the user ask?"
TEXT = "the user asks and the assistant answers: 你好 the user. " * 4


def plain(model: LocalModel, before: str, text: str, after: str) -> tuple[Any, Any, Any]:
    """The same by eager attention over everything at once."""
    torch = pytest.importorskip("torch")
    encode = model.counter.tokenizer.encode_data
    opening, ids, closing = encode(before), encode(text), encode(after)
    weights = model.weights
    weights.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            found = weights(torch.tensor([opening + ids + closing]), output_attentions=True)
    finally:
        weights.set_attn_implementation("sdpa")
    shares = torch.stack(found.attentions)[:, 0].double()  # layers, heads, rows, keys
    entropy = -(shares * shares.clamp(min=1e-300).log()).sum(-1).mean(1)
    begin, end = len(opening), len(opening) + len(ids)
    sizes = torch.arange(1, entropy.shape[1] + 1).clamp(min=2).double().log()
    chances = found.logits[0].double().log_softmax(-1)
    surprise = -chances[torch.arange(begin - 1, end - 1), torch.tensor(ids)]
    paid = shares[:, :, end:, begin:end].mean((0, 1, 2)) if closing else torch.zeros(len(ids))
    return surprise.numpy(), (entropy / sizes)[:, begin:end].numpy(), paid.numpy()


def test_it_agrees_with_eager_attention(tiny_model: LocalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = plain(tiny_model, QUESTION, TEXT, QUESTION)
    for step in (7, 64, 4096):
        monkeypatch.setattr(module, "_STEP", step)
        first, second = tiny_model.score_tokens([TEXT, TEXT], before=QUESTION, after=QUESTION)
        for scores in (first, second):
            np.testing.assert_allclose(scores.surprisal, expected[0], atol=2e-4)
            np.testing.assert_allclose(scores.entropy, expected[1], atol=1e-5)
            np.testing.assert_allclose(scores.attention, expected[2], atol=1e-6)
    assert tiny_model.weights.config._attn_implementation == "sdpa", "the attention is put back"


def test_tokens_stand_where_they_are(tiny_model: LocalModel) -> None:
    text = "the 你好 user \ud800 e\u0301"
    (scores,) = tiny_model.score_tokens([text])
    assert scores.spans.shape == (len(scores.surprisal), 2)
    assert scores.spans[0].tolist() == [0, 3] and scores.spans[-1, 1] == len(text)
    assert all(text[start:end] for start, end in scores.spans.tolist())


def test_without_entropy_surprise_is_the_same(tiny_model: LocalModel) -> None:
    (whole,) = tiny_model.score_tokens([TEXT], before=QUESTION)
    (bare,) = tiny_model.score_tokens([TEXT], before=QUESTION, entropy=False)
    (asked,) = tiny_model.score_tokens([TEXT], before=QUESTION, after=QUESTION, entropy=False)
    np.testing.assert_allclose(bare.surprisal, whole.surprisal, atol=1e-5)
    assert bare.entropy.shape == asked.entropy.shape == (0, len(bare.surprisal))
    assert not bare.attention.any() and (asked.attention > 0).all()


@pytest.mark.parametrize("texts", [[], [""], ["", "the user", ""]])
def test_nothing_to_read(tiny_model: LocalModel, texts: Sequence[str]) -> None:
    found = list(tiny_model.score_tokens(texts))
    assert [len(scores.surprisal) for scores in found] == [len(tiny_model.counter.data_memo(text)) for text in texts]


def test_a_text_longer_than_the_window_is_read_in_windows(
    tiny_model: LocalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    (whole,) = tiny_model.score_tokens([TEXT], before=QUESTION, after=QUESTION)
    monkeypatch.setattr(module, "_WINDOW", 150)
    (cut,) = tiny_model.score_tokens([TEXT], before=QUESTION, after=QUESTION)
    assert cut.spans.tolist() == whole.spans.tolist()
    assert cut.entropy.shape == whole.entropy.shape
    np.testing.assert_allclose(cut.surprisal[:64], whole.surprisal[:64], atol=2e-4)
    assert (cut.surprisal > 0).all() and (cut.attention > 0).all()


def test_what_was_read_is_there_for_an_answer(tiny_model: LocalModel) -> None:
    """The keys and values of the pass are those of a plain pass over the same ids."""
    torch = pytest.importorskip("torch")
    kept: list[tuple[list[int], Any]] = []

    class Keeping:
        def take(self, model: Any, ids: Sequence[int]) -> tuple[Any, int]:
            return module.FreshCache().take(model, ids)

        def give(self, model: Any, ids: Sequence[int], cache: Any) -> None:
            kept.append((list(ids), cache))

    list(tiny_model.score_tokens([TEXT], before=QUESTION, after=QUESTION, cache=Keeping()))
    ((ids, cache),) = kept
    encode = tiny_model.counter.tokenizer.encode_data
    assert ids == encode(QUESTION) + encode(TEXT)
    assert cache.get_seq_length() == len(ids)
    with torch.no_grad():
        after = tiny_model.weights(torch.tensor([[5]]), cache=cache).logits[0, -1]
        fresh = tiny_model.weights(torch.tensor([[*ids, 5]])).logits[0, -1]
    torch.testing.assert_close(after, fresh, atol=2e-3, rtol=1e-3)


def test_a_text_of_a_prefix_that_a_cache_holds_is_not_read_again(tiny_model: LocalModel) -> None:
    fed: list[int] = []

    class Prefix:
        def take(self, model: Any, ids: Sequence[int]) -> tuple[Any, int]:
            cache, _ = module.FreshCache().take(model, ids)
            model(model.dummy_inputs["input_ids"].new_tensor([list(ids[:-1])]), cache=cache)
            return cache, len(ids) - 1

        def give(self, model: Any, ids: Sequence[int], cache: Any) -> None:
            fed.append(cache.get_seq_length())

    (plain_scores,) = tiny_model.score_tokens([TEXT], before=QUESTION)
    (scores,) = tiny_model.score_tokens([TEXT], before=QUESTION, cache=Prefix())
    assert isinstance(scores, TokenScores)
    np.testing.assert_allclose(scores.surprisal, plain_scores.surprisal, atol=2e-4)
    encode = tiny_model.counter.tokenizer.encode_data
    assert fed == [len(encode(QUESTION)) + len(encode(TEXT))]
