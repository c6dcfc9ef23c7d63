"""What an answer is so far, and the seconds that it takes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from ctxkit.errors import ModelTimeoutError
from ctxkit.models.tool_calls import parse_tool_calls
from ctxkit.prompts import Completion, Timings, Usage

__all__ = ["Answer", "Clock"]


@dataclass(slots=True)
class Answer:
    """What an answer is so far."""

    model: str
    prompt_tokens: int
    reused: int = 0
    tokens: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    calls: tuple[Any, ...] = ()
    finish_reason: str = "length"

    def add(self, text: str) -> str:
        if text:
            self.texts.append(text)
        return text

    def close(self, marked: str) -> str:
        """Read the calls; what looked like one and is none belongs to the text after all."""
        self.calls = parse_tool_calls(marked) if marked else ()
        if self.calls:
            self.finish_reason = "tool_calls"
            return ""
        return self.add(marked)

    def completion(self, timings: Timings) -> Completion:
        return Completion(
            text="".join(self.texts),
            model=self.model,
            tool_calls=self.calls,
            usage=Usage(self.prompt_tokens, len(self.tokens), self.reused),
            timings=timings,
            finish_reason=self.finish_reason,
        )


class Clock:
    """The seconds of one request; what a reader of the stream takes between two steps is not the model's time."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._started = time.perf_counter()
        self._ready = self._started
        self.load = 0.0
        self.take = 0.0
        self._prefill: float | None = None
        self._decode = 0.0

    def restart(self) -> None:
        """The model is ready: the timeout is for the answer, not for loading the weights once."""
        self._ready = time.perf_counter()

    def check(self, subject: str) -> None:
        waited = time.perf_counter() - self._ready
        if waited > self._timeout:
            raise ModelTimeoutError(
                f"no complete answer within {self._timeout:g} s",
                subject=subject,
                remedy="Raise the timeout, lower max_tokens, or shorten the prompt.",
            )

    def step(self, seconds: float) -> None:
        if self._prefill is None:
            self._prefill = seconds
        else:
            self._decode += seconds

    def timings(self) -> Timings:
        prefill = self.take + (self._prefill or 0.0)
        first = self._ready - self._started + prefill
        return Timings(
            load=self.load, prefill=prefill, first_token=first, decode=self._decode, total=first + self._decode
        )
