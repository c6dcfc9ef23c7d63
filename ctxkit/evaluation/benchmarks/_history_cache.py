"""How much of each prompt a provider's cache has already, over whole conversations."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ctxkit.evaluation.report import Bar, Report
from ctxkit.history import Hysteresis, SemanticWindow, SlidingWindow, TailWindow
from ctxkit.messages import Message
from ctxkit.models import OpenAIChatCounter
from ctxkit.protocols import Window

__all__ = ["measure", "reuse"]

SYSTEM = 800
"""Tokens of the system message, about."""
SLIDING = "tail, cut as late as possible"
OURS = "hysteresis around tail"
WINDOWS: dict[str, Callable[[], Window]] = {
    SLIDING: TailWindow,
    "sliding, pinned head": SlidingWindow,
    OURS: Hysteresis,
    "hysteresis around sliding": lambda: Hysteresis(window=SlidingWindow()),
    "hysteresis around semantic": lambda: Hysteresis(window=SemanticWindow(question="")),
}


@dataclass(frozen=True, slots=True)
class Reuse:
    """Over the prompts of a conversation, one after each message.

    Args:
        share: the tokens that a prompt has in common with the one before, over all tokens.
        cuts: prompts that do not begin with the whole prompt before them.
        mean: tokens of a prompt.
    """

    share: float
    cuts: int
    mean: float


def reuse(window: Window, messages: Sequence[Message], budget: int, counter: OpenAIChatCounter) -> Reuse:
    """The reuse of a system message and a window; the common beginning is that of whole messages."""
    shared = total = cuts = prompts = 0
    before: list[Message] = []
    for end in range(2, len(messages) + 1):
        selected = window.select(messages[:end], budget, counter)
        costs = [counter.count_message(message) for message in selected]
        common = next((at for at, pair in enumerate(zip(before, selected, strict=False)) if pair[0] != pair[1]), None)
        if common is None:
            common = min(len(before), len(selected))
        cuts += common < len(before)
        shared += sum(costs[:common])
        total += sum(costs)
        prompts += 1
        before = selected
    return Reuse(shared / total, cuts, total / prompts)


def measure(report: Report, dialogues: Sequence[Sequence[Message]], *, budget: int = 4_000) -> None:
    counter = OpenAIChatCounter("cl100k_base")
    system = Message("system", " ".join(["rule"] * SYSTEM), id="system")
    found: dict[str, list[Reuse]] = {name: [] for name in WINDOWS}
    for dialogue in dialogues:
        for name, make in WINDOWS.items():
            found[name].append(reuse(make(), [system, *dialogue], budget, counter))
    base = statistics.mean(each.mean for each in found[SLIDING])
    for name, values in found.items():
        mean = statistics.mean(each.mean for each in values)
        report.rows.append(
            {
                "measure": "cache",
                "system": name,
                "budget": budget,
                "prefix_reuse": round(100 * statistics.mean(each.share for each in values), 1),
                "worst_conversation": round(100 * min(each.share for each in values), 1),
                "cuts": round(statistics.mean(each.cuts for each in values), 1),
                "mean_tokens": round(mean),
                "smaller_by": round(100 * (1 - mean / base), 1),
            }
        )
    ours = next(row for row in report.rows if row["measure"] == "cache" and row["system"] == OURS)
    report.bars += [
        Bar.at_least("cache_prefix_reuse", ours["prefix_reuse"], 97.0),
        Bar.at_least("cache_prefix_reuse_of_every_conversation", ours["worst_conversation"], 97.0),
        Bar.at_most("cache_window_smaller_by", ours["smaller_by"], 12.0),
    ]
