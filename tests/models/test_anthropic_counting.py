"""Anthropic's estimate: never under the documented rules."""

from __future__ import annotations

import math

import pytest
from hypothesis import given

from ctxkit.errors import ConfigError
from ctxkit.messages import Message, Part
from ctxkit.models import AnthropicChatCounter, get_chat_counter
from ctxkit.models.anthropic_counting import newer_tokenizer
from ctxkit.testing import ChatCounterConformance
from ctxkit.tokens import get_counter
from tests.models.test_openai_counting import WEATHER
from tests.strategies import texts

OLDER = AnthropicChatCounter("claude-sonnet-4-6")
NEWER = AnthropicChatCounter("claude-opus-4-7")


class TestConformance(ChatCounterConformance):
    def make_counter(self) -> AnthropicChatCounter:
        return AnthropicChatCounter("claude-sonnet-4-6")

    def test_the_plan_is_near_the_count(self) -> None:
        super().test_the_plan_is_near_the_count()
        assert not self.make_counter().exact


@given(text=texts)
def test_text_is_never_under_the_documented_rules(text: str) -> None:
    count = OLDER.count(text)
    assert count >= len(text) / 3.5
    assert count >= 1.2 * get_counter("cl100k_base").count(text)
    assert NEWER.count(text) >= math.floor(1.35 * count) - 2


@pytest.mark.parametrize(
    ("characters", "older", "newer"),
    [(5000, 1399, 2021), (4405, 1122, 1541), (5000, 1209, 1654), (2853, 910, 1223)],
)
def test_published_measurements_are_not_undercounted(characters: int, older: int, newer: int) -> None:
    """Users measured these lengths and counts of English and Markdown with the provider's own counter."""
    text = ("The quick brown fox jumps over the lazy dog and reads on. " * 100)[:characters]
    assert OLDER.count(text) >= older
    assert NEWER.count(text) >= newer


@pytest.mark.parametrize(
    ("model", "newer"),
    [
        ("claude-3-5-sonnet-20241022", False),
        ("claude-opus-4-20250514", False),
        ("claude-haiku-4-5-20251001", False),
        ("claude-opus-4-6", False),
        ("claude-opus-4-7", True),
        ("claude-sonnet-5", True),
        ("something-else", True),
    ],
)
def test_which_models_have_the_newer_tokenizer(model: str, newer: bool) -> None:
    assert newer_tokenizer(model) is newer


@pytest.mark.parametrize(
    ("model", "prompt"), [("claude-3-opus-20240229", 530), ("claude-sonnet-4-6", 346), ("claude-3-haiku-20240307", 340)]
)
def test_tools_cost_their_system_prompt_and_schemas(model: str, prompt: int) -> None:
    counter = AnthropicChatCounter(model)
    assert counter.count_tools([]) == 0
    assert prompt + 80 < counter.count_tools([WEATHER]) < prompt + 300


def test_images_by_area_and_by_patches() -> None:
    def image(**size: int) -> Message:
        return Message("user", (Part(kind="image", data=size),))

    empty = OLDER.count_message(Message("user", ""))
    assert OLDER.count_message(image(width=1000, height=1000)) - empty == math.ceil(1_000_000 / 750)
    assert OLDER.count_message(image(width=8000, height=100)) - empty >= math.ceil(1568 / 28) * 1
    assert OLDER.count_message(image()) - empty >= 1600
    assert NEWER.count_message(image(width=4000, height=4000)) - empty >= 4784


def test_a_margin_under_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="margin"):
        AnthropicChatCounter("claude-sonnet-4-6", margin=0.9)
    with pytest.raises(ConfigError, match="name is missing"):
        get_chat_counter("anthropic")
