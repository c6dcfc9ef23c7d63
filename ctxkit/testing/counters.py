"""What every token counter and every chat counter must do."""

from __future__ import annotations

from ctxkit.messages import Message, Part, ToolCall
from ctxkit.protocols import ChatCounter, TokenCounter

__all__ = ["ChatCounterConformance", "TokenCounterConformance"]

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
            again = (counter.count(text), self.make_counter().count(text))
            assert again == (count, count), (
                f"{text[:40]!a} counts {count} tokens, then {again[0]}; a new one {again[1]}"
            )

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
            count = counter.count(token)
            assert count > 1, f"law 4, data never becomes a control token: {token!r} in a text counts as {count} token"


_DIALOGUE = (
    Message("system", "Answer briefly."),
    Message("user", "What is the weather in Bern?"),
    Message("assistant", "", tool_calls=(ToolCall("call_1", "weather", '{"city": "Bern"}'),)),
    Message("tool", "12 degrees, rain", tool_call_id="call_1"),
    Message("assistant", "12 degrees, and it rains."),
    Message("user", "这是一个句子。 And tomorrow?"),
)

_TOOLS = (
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": "Its name"}},
                "required": ["city"],
            },
        },
    },
)


class ChatCounterConformance(TokenCounterConformance):
    """What every `ChatCounter` must do, besides counting texts. Override `make_counter`."""

    def make_counter(self) -> ChatCounter:
        raise NotImplementedError

    def test_it_is_a_chat_counter(self) -> None:
        counter = self.make_counter()
        assert isinstance(counter, ChatCounter)
        assert type(counter.exact) is bool

    def test_a_prompt_costs_more_than_its_texts(self) -> None:
        counter = self.make_counter()
        for end in range(1, len(_DIALOGUE) + 1):
            messages = _DIALOGUE[:end]
            count = counter.count_prompt(messages)
            assert type(count) is int
            assert count > sum(counter.count(message.text) for message in messages)

    def test_each_message_adds(self) -> None:
        counter = self.make_counter()
        counts = [counter.count_prompt(_DIALOGUE[:end]) for end in range(1, len(_DIALOGUE) + 1)]
        assert counts == sorted(set(counts))
        assert all(counter.count_message(message) > counter.count(message.text) for message in _DIALOGUE)

    def test_the_plan_is_near_the_count(self) -> None:
        counter = self.make_counter()
        planned = sum(map(counter.count_message, _DIALOGUE))
        assert abs(counter.count_prompt(_DIALOGUE) - planned) <= 64

    def test_calls_and_tools_are_counted(self) -> None:
        counter = self.make_counter()
        long = ToolCall("call_1", "weather", '{"city": "' + "Bern " * 200 + '"}')
        called = [_DIALOGUE[1], Message("assistant", "", tool_calls=(long,))]
        assert counter.count_prompt(called) > counter.count_prompt(_DIALOGUE[1:2]) + 200
        assert counter.count_message(called[1]) > 200
        assert counter.count_prompt(_DIALOGUE, _TOOLS) > counter.count_prompt(_DIALOGUE) + 10

    def test_parts_and_one_text_cost_alike(self) -> None:
        counter = self.make_counter()
        whole = Message("user", "one line\nanother line\n")
        parts = Message("user", (Part(text="one line\n"), Part(text="another line\n")))
        apart, joined = counter.count_prompt([parts]), counter.count_prompt([whole])
        assert joined <= apart <= joined + 1

    def test_counting_changes_nothing(self) -> None:
        counter = self.make_counter()
        first = counter.count_prompt(_DIALOGUE, _TOOLS)
        assert counter.count_prompt(_DIALOGUE, _TOOLS) == first
        assert self.make_counter().count_prompt(_DIALOGUE, _TOOLS) == first

    def test_control_tokens_in_data_cost_as_text(self) -> None:
        counter = self.make_counter()
        plain = counter.count_prompt([Message("user", "x")])
        for token in ("<|im_end|>", "<|endoftext|>", "</s>", "<|eot_id|>"):
            count = counter.count_prompt([Message("user", "x" + token * 5)])
            assert count >= plain + 5 * 2, (
                f"law 4, data never becomes a control token: five {token!r} in a message add {count - plain} tokens"
            )
