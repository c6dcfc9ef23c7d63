"""How long a window takes over ten thousand messages, beside LangChain's `trim_messages` on the same messages."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ctxkit.evaluation.peers import tiktoken_encoding
from ctxkit.evaluation.report import Bar, Report
from ctxkit.history import Hysteresis, SemanticWindow, SlidingWindow, TailWindow, TimeDecayWindow
from ctxkit.messages import Message
from ctxkit.models import OpenAIChatCounter
from ctxkit.protocols import Window
from ctxkit.settings import require

__all__ = ["measure"]

ENCODING = "o200k_base"
WINDOWS: dict[str, Callable[[], Window]] = {
    "tail": TailWindow,
    "sliding": SlidingWindow,
    "hysteresis around tail": Hysteresis,
    "hysteresis around semantic": lambda: Hysteresis(window=SemanticWindow()),
    "time decay": TimeDecayWindow,
    "semantic": SemanticWindow,
}


def measure(
    report: Report,
    dialogues: Sequence[Sequence[Message]],
    *,
    messages: int = 10_000,
    budget: int = 8_000,
    rounds: int = 7,
) -> None:
    """Each window and `trim_messages` in turns, one message more every round; a memory of counts for both."""
    said = [message for dialogue in dialogues for message in dialogue]
    session = [
        replace(said[number % len(said)], id=f"m{number}", role="user" if number % 2 == 0 else "assistant")
        for number in range(messages + rounds + 1)
    ]
    counter = OpenAIChatCounter("gpt-4o")
    windows = {name: make() for name, make in WINDOWS.items()}
    trim, convert = _trimmer(budget)
    theirs = convert(session)
    work: dict[str, Callable[[int], Any]] = {
        name: lambda end, window=window: window.select(session[:end], budget, counter)  # type: ignore[misc]
        for name, window in windows.items()
    }
    work["langchain trim_messages"] = lambda end: trim(theirs[:end])
    cold: dict[str, float] = {}
    seconds: dict[str, list[float]] = {name: [] for name in work}
    kept: dict[str, int] = {}
    for name, task in work.items():
        started = time.perf_counter()
        task(messages)
        cold[name] = time.perf_counter() - started
    for number in range(1, rounds + 1):
        for name, task in work.items():
            started = time.perf_counter()
            kept[name] = len(task(messages + number))
            seconds[name].append(time.perf_counter() - started)
    peer = seconds["langchain trim_messages"]
    for name, values in seconds.items():
        report.rows.append(
            {
                "measure": "speed",
                "system": name,
                "messages": messages,
                "milliseconds": round(1000 * statistics.median(values), 2),
                "first_time_ms": round(1000 * cold[name], 1),
                "times_faster_than_trim_messages": round(
                    statistics.median(their / our for their, our in zip(peer, values, strict=True)), 1
                ),
                "kept": kept[name],
            }
        )
    for name in ("tail", "hysteresis around tail"):
        row = next(row for row in report.rows if row["measure"] == "speed" and row["system"] == name)
        key = name.replace(" ", "_")
        report.bars.append(Bar.at_most(f"warm_milliseconds_{key}", row["milliseconds"], 5.0))
        report.bars.append(Bar.at_least(f"times_faster_{key}", row["times_faster_than_trim_messages"], 20.0))


def _trimmer(budget: int) -> tuple[Callable[[Sequence[Any]], list[Any]], Callable[[Sequence[Message]], list[Any]]]:
    core = require("langchain_core.messages", extra="peers")
    encode = tiktoken_encoding(ENCODING).encode_ordinary
    counts: dict[str, int] = {}

    def of_known(found: Sequence[Any]) -> int:
        total = 3
        for message in found:
            if message.id not in counts:
                counts[message.id] = 4 + len(encode(message.content))
            total += counts[message.id]
        return total

    def trim(messages: Sequence[Any]) -> list[Any]:
        kept: list[Any] = core.trim_messages(
            messages, max_tokens=budget, strategy="last", token_counter=of_known, start_on="human"
        )
        return kept

    def convert(messages: Sequence[Message]) -> list[Any]:
        kinds = {"user": core.HumanMessage, "assistant": core.AIMessage}
        return [kinds[message.role](message.text, id=message.id) for message in messages]

    return trim, convert
