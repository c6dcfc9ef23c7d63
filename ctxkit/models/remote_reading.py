"""Reads what a provider answers, whole or as a stream, into a completion."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ctxkit.errors import ModelTimeoutError, ProviderError
from ctxkit.messages import ToolCall
from ctxkit.models.remote_errors import empty_answer, nonsense
from ctxkit.models.text_stream import StopFilter
from ctxkit.prompts import Completion, CompletionDelta, CompletionOptions, Timings, Usage

__all__ = ["END", "Answer", "AsyncEvents", "Clock", "Events", "Price", "StreamReader", "read_whole"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """USD for a million tokens; `cached` is for prompt tokens that the provider had in its cache."""

    prompt: float
    completion: float
    cached: float | None = None

    def of(self, usage: Usage) -> float:
        """What a request cost."""
        cached = self.prompt if self.cached is None else self.cached
        fresh = usage.prompt_tokens - usage.cached_tokens
        return (fresh * self.prompt + usage.cached_tokens * cached + usage.completion_tokens * self.completion) / 1e6


@dataclass(slots=True)
class Answer:
    """What a provider has said so far; the protocols' readers fill it."""

    text: list[str] = field(default_factory=list)
    calls: dict[int, dict[str, str]] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    finish_reason: str = ""
    model: str = ""
    seen: bool = False
    """Whether anything arrived that is part of an answer."""

    def call(self, index: int, *, id: str | None = None, name: str | None = None, arguments: str | None = None) -> None:  # noqa: A002
        """Add a piece of the call at `index`."""
        call = self.calls.setdefault(index, {"id": "", "name": "", "arguments": ""})
        call["id"] = id or call["id"]
        call["name"] += name or ""
        call["arguments"] += arguments or ""

    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(
            ToolCall(call["id"] or f"call_{index}", call["name"], call["arguments"] or "{}")
            for index, call in sorted(self.calls.items())
        )


def read_whole(
    response: Any,
    read: Callable[[Any, Answer], None],
    *,
    model: str,
    options: CompletionOptions,
    price: Price | None,
    clock: Clock,
) -> Completion:
    """The completion of a response that came whole. Errors: `ProviderError` when it is none."""
    answer = Answer()
    try:
        read(response, answer)
    except (AttributeError, TypeError, KeyError, IndexError) as error:
        raise nonsense(model, response) from error
    if not answer.seen:
        raise nonsense(model, response)
    cut = StopFilter(options.stop)
    text = cut.push("".join(answer.text))
    text += cut.finish()
    total = clock.passed()
    return _completion(answer, text, cut.stopped, model, options, price, Timings(first_token=total, total=total))


def _completion(
    answer: Answer,
    text: str,
    stopped: bool,
    model: str,
    options: CompletionOptions,
    price: Price | None,
    timings: Timings,
) -> Completion:
    calls = answer.tool_calls()
    finish = "stop" if stopped else answer.finish_reason or "stop"
    if not text and not calls and finish == "stop" and not options.stop:
        raise empty_answer(model)
    return Completion(
        text=text,
        model=answer.model or model,
        tool_calls=calls,
        usage=answer.usage,
        timings=timings,
        finish_reason=finish,
        cost=None if price is None else price.of(answer.usage),
    )


class StreamReader:
    """Reads the events of one stream; `read` puts an event into the answer and returns its text."""

    def __init__(
        self,
        read: Callable[[Any, Answer], str],
        *,
        model: str,
        options: CompletionOptions,
        price: Price | None,
        clock: Clock,
    ) -> None:
        self._read = read
        self._model = model
        self._options = options
        self._price = price
        self._clock = clock
        self._answer = Answer()
        self._filter = StopFilter(options.stop)
        self._texts: list[str] = []
        self._first: float | None = None

    @property
    def done(self) -> bool:
        """The answer was cut at a stop text: what else comes is not part of it."""
        return self._filter.stopped

    def feed(self, event: Any) -> str:
        """The text that is certain after this event. Errors: `ModelTimeoutError`, `ProviderError`."""
        self._clock.check()
        try:
            text = self._read(event, self._answer)
        except (AttributeError, TypeError, KeyError, IndexError) as error:
            raise nonsense(self._model, event) from error
        if self._first is None and (text or self._answer.calls):
            self._first = self._clock.passed()
        return self._out(self._filter.push(text)) if text else ""

    def end(self) -> Iterator[CompletionDelta]:
        """The last deltas. Errors: `ProviderError` when the stream did not end as streams end."""
        if not self._answer.seen:
            raise nonsense(self._model, "a stream without an event")
        if not self._answer.finish_reason and not self._filter.stopped:
            raise ProviderError("the stream broke off before its end", subject=self._model, remedy="Ask again.")
        if text := self._out(self._filter.finish()):
            yield CompletionDelta(text)
        total = self._clock.passed()
        first = total if self._first is None else self._first
        timings = Timings(first_token=first, decode=total - first, total=total)
        text = "".join(self._texts)
        completion = _completion(
            self._answer, text, self._filter.stopped, self._model, self._options, self._price, timings
        )
        yield CompletionDelta(completion=completion)

    def _out(self, text: str) -> str:
        self._texts.append(text)
        return text


class Clock:
    """One deadline for all tries of a request and for reading its answer."""

    def __init__(self, timeout: float, subject: str) -> None:
        self._started = time.perf_counter()
        self._timeout = timeout
        self._subject = subject

    def passed(self) -> float:
        return time.perf_counter() - self._started

    def remaining(self) -> float:
        return self._timeout - self.passed()

    def check(self) -> None:
        if self.remaining() <= 0:
            raise ModelTimeoutError(
                f"no complete answer within {self._timeout:g} s",
                subject=self._subject,
                remedy="Raise the timeout, or lower max_tokens.",
            )

    def left(self) -> float:
        """The seconds that are left, at least a little; raises when there are none."""
        self.check()
        return max(0.05, self.remaining())


class _End:
    """The end of a stream, as a value."""


END = _End()


class Events:
    """Events, and the response that must be closed when a reader leaves early."""

    def __init__(self, events: Iterator[Any], response: Any) -> None:
        self._events = events
        self._response = response

    def __iter__(self) -> Iterator[Any]:
        return self._events

    def __next__(self) -> Any:
        return next(self._events)

    def close(self) -> None:
        self._response.close()


class AsyncEvents:
    def __init__(self, events: AsyncIterator[Any], response: Any) -> None:
        self._events = events
        self._response = response

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._events

    async def __anext__(self) -> Any:
        return await self._events.__anext__()

    async def aclose(self) -> None:
        await self._response.close()
