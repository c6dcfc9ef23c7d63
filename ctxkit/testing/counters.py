"""What every token counter must do."""

from __future__ import annotations

from ctxkit.protocols import TokenCounter

__all__ = ["TokenCounterConformance"]

_TEXTS = (
    "Hello, world!",
    "Dr. Smith paid 5.3 million.\n\n\tAnd left.",
    "这是一个句子。日本語のテキスト。안녕하세요",
    "e\u0301 👨‍👩‍👧‍👦 🇩🇪 \u202eright to left",
    "def f(x):\n    return x\n" * 20,
    "\x00 \ud800 \udfff",
    " " * 3000,
    "x" * 3000,
)


class TokenCounterConformance:
    """What every `TokenCounter` must do. Override `make_counter`."""

    def make_counter(self) -> TokenCounter:
        raise NotImplementedError

    def test_it_is_a_counter_with_a_name(self) -> None:
        counter = self.make_counter()
        assert isinstance(counter, TokenCounter)
        assert isinstance(counter.name, str)
        assert counter.name
        assert self.make_counter().name == counter.name

    def test_counts_are_whole_and_repeat(self) -> None:
        counter = self.make_counter()
        for text in _TEXTS:
            count = counter.count(text)
            assert type(count) is int
            assert count >= 0
            assert counter.count(text) == count
            assert self.make_counter().count(text) == count

    def test_nothing_costs_nothing_and_something_costs_something(self) -> None:
        counter = self.make_counter()
        assert counter.count("") == 0
        assert all(counter.count(text) > 0 for text in ("a", "word", "猫", "👍", "\ud800", "\x00"))

    def test_more_text_costs_more(self) -> None:
        counter = self.make_counter()
        for text in ("word ", "句子。", "👍🏽", "a1 "):
            assert counter.count(text * 10) < counter.count(text * 100) < counter.count(text * 1000)

    def test_a_control_token_in_a_text_is_plain_text(self) -> None:
        counter = self.make_counter()
        for token in ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "[INST]", "</s>", "[SEP]"):
            assert counter.count(token) > 1
