"""Whether what windows give of real tool-calling traces is valid, beside LangChain's `trim_messages`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ctxkit.errors import BudgetError
from ctxkit.evaluation.report import Bar, Report
from ctxkit.history import Hysteresis, SemanticWindow, SlidingWindow, TailWindow, TimeDecayWindow
from ctxkit.messages import Message
from ctxkit.models import OpenAIChatCounter
from ctxkit.protocols import Window
from ctxkit.settings import require
from ctxkit.testing.windows import history_problems

__all__ = ["measure"]

SIZES = range(4, 21)
BUDGETS = (500, 1_000, 2_000, 4_000, 8_000)
PEER_SIZES = (4, 8, 12, 16, 20)
OTHERS: dict[str, Callable[[], Window]] = {
    "semantic": SemanticWindow,
    "time decay": TimeDecayWindow,
    "hysteresis around tail": Hysteresis,
    "hysteresis around semantic": lambda: Hysteresis(window=SemanticWindow()),
}
KEYS = ("orphans", "empty", "newest_user_lost", "over_budget", "refused")


def measure(report: Report, traces: Sequence[Sequence[Message]]) -> None:
    """Every prefix from the first user message on.

    Budgets from 500 tokens on are for the dialogue: ours get it without the system message of 1,250 tokens, which the
    template keeps; `trim_messages` gets it with `include_system`, as its documentation advises.
    """
    counter = OpenAIChatCounter("gpt-4o")
    tallies: dict[str, dict[str, int]] = {}
    sized: dict[str, list[Window]] = {
        "tail, 4 to 20 messages": [TailWindow(max_messages=size) for size in SIZES],
        "sliding, 4 to 20 messages": [SlidingWindow(max_messages=size) for size in SIZES],
    }
    everything = sized | {name: [make()] for name, make in OTHERS.items()}
    for name, windows in everything.items():
        tally = tallies[name] = dict.fromkeys(("prompts", *KEYS), 0)
        for trace in traces:
            for prefix, newest in _prefixes([message for message in trace if message.role != "system"]):
                for window in windows:
                    for budget in BUDGETS:
                        _judge(tally, window, prefix, newest, budget, counter)
    tallies |= _peers(traces)
    for name, tally in tallies.items():
        prompts = tally["prompts"]
        report.rows.append(
            {"measure": "validity", "system": name, "prompts": prompts}
            | {key: round(100 * tally[key] / prompts, 2) for key in KEYS}
        )
    ours = [tallies[name] for name in everything]
    report.bars += [Bar.at_most(f"validity_{key}", sum(tally[key] for tally in ours), 0) for key in KEYS]


def _prefixes(trace: Sequence[Message]) -> list[tuple[Sequence[Message], Message]]:
    found, newest = [], None
    for end, message in enumerate(trace, 1):
        newest = message if message.role == "user" else newest
        if newest is not None:
            found.append((trace[:end], newest))
    return found


def _judge(
    tally: dict[str, int],
    window: Window,
    prefix: Sequence[Message],
    newest: Message,
    budget: int,
    counter: OpenAIChatCounter,
) -> None:
    tally["prompts"] += 1
    try:
        selected = window.select(prefix, budget, counter)
    except BudgetError:
        tally["refused"] += 1
        return
    tally["orphans"] += bool(history_problems(selected))
    tally["empty"] += not selected
    tally["newest_user_lost"] += not any(message is newest for message in selected)
    tally["over_budget"] += counter.count_prompt(selected) > budget


def _peers(traces: Sequence[Sequence[Message]]) -> dict[str, dict[str, int]]:
    """`trim_messages` at every point where a model is called: after a user message, or all results of a call."""
    core = require("langchain_core.messages", extra="peers")
    options: dict[str, dict[str, Any]] = {
        "langchain trim_messages, last": {},
        "langchain trim_messages, last, start_on human": {"start_on": "human"},
    }
    tallies = {name: dict.fromkeys(("prompts", *KEYS), 0) for name in options}
    for trace in traces:
        theirs = core.convert_to_messages([message.to_openai() for message in trace])
        for end in range(1, len(trace)):
            if trace[end].role != "assistant" or not any(message.role == "user" for message in trace[:end]):
                continue
            newest = max(at for at in range(end) if trace[at].role == "user")
            for name, option in options.items():
                tally = tallies[name]
                for size in PEER_SIZES:
                    kept = core.trim_messages(
                        theirs[:end],
                        max_tokens=size,
                        strategy="last",
                        token_counter=len,
                        include_system=True,
                        **option,
                    )
                    tally["prompts"] += 1
                    tally["empty"] += all(message.type == "system" for message in kept)
                    tally["orphans"] += _orphaned(kept)
                    tally["newest_user_lost"] += theirs[newest] not in kept
    return tallies


def _orphaned(messages: Sequence[Any]) -> bool:
    """Whether a result's call is not among them."""
    asked = {call["id"] for message in messages for call in getattr(message, "tool_calls", ())}
    return any(message.type == "tool" and message.tool_call_id not in asked for message in messages)
