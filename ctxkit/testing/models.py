"""A model for tests that answers at once and always the same, and what every model must do."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any

from ctxkit.documents import content_hash
from ctxkit.errors import ContextOverflowError, CtxkitError
from ctxkit.messages import Message
from ctxkit.prompts import Budget, Completion, CompletionDelta, CompletionOptions, Prompt, Segment, Timings, Usage
from ctxkit.protocols import ChatCounter, Model

__all__ = ["EchoCounter", "EchoModel", "ModelConformance", "prompt_of"]

_TOKEN = re.compile(r"\w+|[^\w\s]|\s+")


class EchoCounter:
    """Exact for `EchoModel`: a token is a run of word characters or of white space, or any other character.

    Each part is counted by itself, as local models do; a message costs 3 more, the opening of the answer 2.
    """

    name = "echo"
    exact = True

    def count(self, text: str) -> int:
        return sum(1 for _ in _TOKEN.finditer(text))

    def tokens(self, text: str) -> list[str]:
        """The tokens; they join to the text."""
        return _TOKEN.findall(text)

    def count_message(self, message: Message) -> int:
        total = 3 + sum(self.count(part.text) for part in message.parts if part.kind == "text")
        total += sum(self.count(str(sorted(part.data.items()))) for part in message.parts if part.data)
        total += sum(2 + self.count(call.name) + self.count(call.arguments) for call in message.tool_calls)
        return total + (self.count(message.name) if message.name else 0) + (2 if message.tool_call_id else 0)

    def count_prompt(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> int:
        return 2 + sum(map(self.count_message, messages)) + sum(4 + self.count(str(tool)) for tool in tools)


class EchoModel:
    """Answers with the last user message, or with what it is given: no weights, no network, no chance.

    Args:
        answer: the answer, or a function of the prompt that makes it.
        error: raised instead of answering.
        window: tokens of prompt and answer together.

    Attributes:
        prompts: the prompts it was asked, in order.

    Example:
        >>> from ctxkit.testing.models import prompt_of
        >>> EchoModel().complete(prompt_of(Message("user", "Hello!"))).text
        'Hello!'
    """

    name = "echo"

    def __init__(
        self,
        answer: str | Callable[[Prompt], str] | None = None,
        *,
        error: CtxkitError | None = None,
        window: int = 8192,
    ) -> None:
        self.counter = EchoCounter()
        self.window = window
        self.prompts: list[Prompt] = []
        self._answer = answer
        self._error = error

    def stream(self, prompt: Prompt, options: CompletionOptions | None = None) -> Iterator[CompletionDelta]:
        options = options or CompletionOptions()
        started = time.perf_counter()
        self.prompts.append(prompt)
        if self._error is not None:
            raise self._error
        count = self.counter.count_prompt(prompt.turns, prompt.tools)
        if count + options.max_tokens > self.window:
            raise ContextOverflowError(
                parts={"prompt": count, "answer": options.max_tokens}, available=self.window, subject=self.name
            )
        text = self._text(prompt)
        ends = [position for stop in options.stop if stop and (position := text.find(stop)) >= 0]
        tokens = self.counter.tokens(text[: min(ends)] if ends else text)
        finish = "stop" if len(tokens) <= options.max_tokens else "length"
        tokens = tokens[: options.max_tokens]
        first = time.perf_counter() - started
        for token in tokens:
            yield CompletionDelta(token)
        total = time.perf_counter() - started
        yield CompletionDelta(
            completion=Completion(
                "".join(tokens),
                self.name,
                usage=Usage(count, len(tokens)),
                timings=Timings(prefill=first, first_token=first, decode=total - first, total=total),
                finish_reason=finish,
            )
        )

    def _text(self, prompt: Prompt) -> str:
        if callable(self._answer):
            return self._answer(prompt)
        if self._answer is not None:
            return self._answer
        return next((turn.visible for turn in reversed(prompt.turns) if turn.role == "user"), "")

    def complete(self, prompt: Prompt, options: CompletionOptions | None = None) -> Completion:
        *_, last = self.stream(prompt, options)
        assert last.completion is not None
        return last.completion

    async def astream(self, prompt: Prompt, options: CompletionOptions | None = None) -> AsyncIterator[CompletionDelta]:
        for delta in self.stream(prompt, options):
            await asyncio.sleep(0)
            yield delta

    async def acomplete(self, prompt: Prompt, options: CompletionOptions | None = None) -> Completion:
        await asyncio.sleep(0)
        return self.complete(prompt, options)


def prompt_of(
    *messages: Message,
    counter: ChatCounter | None = None,
    budget: Budget | None = None,
    tools: Sequence[Mapping[str, Any]] = (),
) -> Prompt:
    """A prompt of these messages as they are, for tests of models: nothing is assembled, packed or dropped."""
    counter = counter or EchoCounter()
    segments = tuple(
        Segment(message.role, message.role, part.text, counter.count(part.text), "trusted", index)
        for index, message in enumerate(messages)
        for part in message.parts
    )
    digest = content_hash([message.content_hash for message in messages])
    return Prompt(
        turns=messages,
        segments=segments,
        token_count=counter.count_prompt(messages, tools),
        budget=budget or Budget(8192, reserve_output=512),
        stable_prefix_tokens=0,
        fingerprint=digest,
        hashes={"history": digest},
        counter=counter.name,
        exact=counter.exact,
        tools=tuple(tools),
    )


class ModelConformance:
    """What every `Model` must do. Override `make_model`; the model must answer `question` with some text."""

    question = "Say hello."

    def make_model(self) -> Model:
        raise NotImplementedError

    def options(self, **changes: Any) -> CompletionOptions:
        """Short answers, so that the tests are quick."""
        return CompletionOptions(**{"max_tokens": 16, **changes})

    def prompt(self, model: Model) -> Prompt:
        return prompt_of(Message("user", self.question), counter=model.counter)

    def test_it_is_a_model(self) -> None:
        model = self.make_model()
        assert isinstance(model, Model)
        assert model.name
        assert model.window > 0
        assert isinstance(model.counter, ChatCounter)

    def test_it_answers_with_usage_timings_and_a_reason(self) -> None:
        model = self.make_model()
        prompt = self.prompt(model)
        completion = model.complete(prompt, self.options())
        assert completion.text
        assert completion.model
        assert completion.finish_reason in ("stop", "length", "tool_calls", "content_filter")
        assert completion.usage.completion_tokens > 0
        if model.counter.exact:
            assert completion.usage.prompt_tokens == prompt.token_count
        else:
            assert 0 < completion.usage.prompt_tokens <= prompt.token_count
        timings = completion.timings
        assert 0 <= timings.prefill <= timings.total
        assert 0 < timings.first_token <= timings.total
        assert timings.decode >= 0

    def test_a_stream_joins_to_the_answer(self) -> None:
        model = self.make_model()
        *steps, last = model.stream(self.prompt(model), self.options())
        assert last.completion is not None
        assert all(step.completion is None for step in steps)
        assert "".join(step.text for step in [*steps, last]) == last.completion.text

    def test_greedy_answers_repeat_and_equal_the_stream(self) -> None:
        model = self.make_model()
        prompt = self.prompt(model)
        whole = model.complete(prompt, self.options(seed=1))
        *_, last = model.stream(prompt, self.options(seed=1))
        assert last.completion is not None
        assert last.completion.text == whole.text == model.complete(prompt, self.options(seed=1)).text

    def test_an_answer_does_not_contain_its_stop(self) -> None:
        model = self.make_model()
        prompt = self.prompt(model)
        text = model.complete(prompt, self.options()).text
        stop = text[len(text) // 2 :][:2]
        cut = model.complete(prompt, self.options(stop=(stop,)))
        assert stop not in cut.text
        assert text.startswith(cut.text)
        assert cut.finish_reason == "stop"

    def test_max_tokens_holds(self) -> None:
        model = self.make_model()
        completion = model.complete(self.prompt(model), self.options(max_tokens=1))
        assert completion.usage.completion_tokens <= 1

    def test_async_twins_answer_alike(self) -> None:
        model = self.make_model()
        prompt = self.prompt(model)

        async def both() -> tuple[Completion, list[CompletionDelta]]:
            completion = await model.acomplete(prompt, self.options())
            return completion, [delta async for delta in model.astream(prompt, self.options())]

        completion, steps = asyncio.run(both())
        assert completion.text == model.complete(prompt, self.options()).text
        assert "".join(step.text for step in steps) == completion.text
        assert steps[-1].completion is not None

    def test_a_prompt_that_is_too_long_is_a_budget_error(self) -> None:
        model = self.make_model()
        long = prompt_of(Message("user", "word " * (model.window + 100)), counter=model.counter)
        error: Exception | None = None
        try:
            model.complete(long, self.options())
        except ContextOverflowError as raised:
            error = raised
        assert isinstance(error, ContextOverflowError), "a prompt over the window was answered"
