"""The fake model keeps the rules of real ones."""

from __future__ import annotations

import pytest

from ctxkit.errors import RateLimitError
from ctxkit.messages import Message
from ctxkit.models.memo import Memo
from ctxkit.prompts import CompletionOptions
from ctxkit.testing import ChatCounterConformance, EchoModel, ModelConformance
from ctxkit.testing.models import EchoCounter, prompt_of


class TestEchoModel(ModelConformance):
    def make_model(self) -> EchoModel:
        return EchoModel()


class TestEchoCounter(ChatCounterConformance):
    def make_counter(self) -> EchoCounter:
        return EchoCounter()


def test_answers_are_given_or_made() -> None:
    prompt = prompt_of(Message("user", "one"), Message("assistant", "two"), Message("user", "three"))
    assert EchoModel().complete(prompt).text == "three"
    assert EchoModel("fixed").complete(prompt).text == "fixed"
    model = EchoModel(lambda prompt: prompt.turns[0].text.upper())
    assert model.complete(prompt).text == "ONE"
    assert model.prompts == [prompt]
    cut = EchoModel("a b c d").complete(prompt, CompletionOptions(max_tokens=3))
    assert (cut.text, cut.finish_reason) == ("a b", "length")


def test_it_fails_when_it_is_told_to() -> None:
    with pytest.raises(RateLimitError):
        EchoModel(error=RateLimitError("no", remedy="wait")).complete(prompt_of(Message("user", "x")))


def test_a_memo_is_bounded_by_characters() -> None:
    memo = Memo(len, max_characters=20 * (64 + 10))
    for number in range(100):
        assert memo(f"{number:010}") == 10
    assert memo.computed == 100
    for number in range(91, 100):
        memo(f"{number:010}")
    assert memo.computed == 100, "what was used last is known"
    for number in range(80):
        memo(f"{number:010}")
    assert memo.computed == 180, "what was used long ago is forgotten"
