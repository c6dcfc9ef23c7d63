"""What a chat prints: answers on standard output, what is said about them on standard error; or JSON, a line each."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import typer

from ctxkit.cli.chat_turns import Turn, spent
from ctxkit.cli.output import emit, error_line, say
from ctxkit.errors import CtxkitError
from ctxkit.trace import Dropped

__all__ = ["answer_command", "budget_line", "report", "report_error", "tell", "turn_json"]


def tell(text: str) -> None:
    """A remark for who sits at a terminal, on standard error; dimmed there, plain elsewhere."""
    dim = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    typer.echo(typer.style(text, dim=True) if dim else text, err=True)


def report(turn: Turn, session: str, *, as_json: bool) -> None:
    """After a turn: what it cost; where the answer does not end well, that."""
    if as_json:
        emit(turn_json(turn, session))
        return
    tell(budget_line(turn))
    reason = "interrupted" if turn.completion is None else turn.completion.finish_reason
    if not turn.answer.strip():
        tell(f"(no answer came: {reason}; the question stays: /retry asks it again)")
    elif reason == "interrupted":
        tell("(stopped; what came of the answer is kept)")
    elif reason == "length":
        tell("(the answer was cut at its limit; --max-tokens raises it)")
    elif reason != "stop":
        tell(f"(the answer ended with: {reason})")


def budget_line(turn: Turn) -> str:
    """One line: tokens used and allowed, what for, what the last turn's prompt shares, and what was left out."""
    tokens = spent(turn.prompt)
    used, allowed = tokens.pop("used"), tokens.pop("allowed")
    parts = ", ".join(f"{name} {count:,}" for name, count in tokens.items() if count)
    cached = turn.completion.usage.cached_tokens if turn.completion else 0
    reused = f"reused prefix {turn.reused:,}" + (f" ({cached:,} read from the model's cache)" if cached else "")
    dropped = _left_out(turn.prompt.dropped)
    return f"[{used:,} of {allowed:,} tokens: {parts}; {reused}{dropped}]"


def _left_out(dropped: tuple[Dropped, ...]) -> str:
    counts = Counter(item.section for item in dropped)
    tokens = Counter[str]()
    for item in dropped:
        tokens[item.section] += item.token_count
    each = [f"{count:,} of {section} ({tokens[section]:,} tokens)" for section, count in counts.items()]
    return f"; left out {', '.join(each)}" if each else ""


def turn_json(turn: Turn, session: str) -> dict[str, Any]:
    """The documented keys of a turn."""
    completion = turn.completion
    return {
        "session": session,
        "question": turn.question,
        "answer": turn.answer,
        "finish_reason": "interrupted" if completion is None else completion.finish_reason,
        "model": None if completion is None else completion.model,
        "tokens": spent(turn.prompt),
        "reused_prefix_tokens": turn.reused,
        "dropped": [
            {"section": one.section, "item": one.item, "token_count": one.token_count, "reason": one.reason}
            for one in turn.prompt.dropped
        ],
        "usage": None if completion is None else asdict(completion.usage),
        "fingerprint": turn.prompt.fingerprint,
    }


def report_error(error: CtxkitError, *, as_json: bool, **about: Any) -> None:
    """One line that says what to do; with JSON the same as an object on standard output too."""
    error_line(str(error))
    if as_json:
        emit({**about, "error": str(error), "kind": type(error).__name__, "remedy": error.remedy})


def answer_command(name: str, text: str, values: Mapping[str, Any], *, as_json: bool) -> None:
    """What a slash command answers."""
    emit({"command": name, **values}) if as_json else say(text)
