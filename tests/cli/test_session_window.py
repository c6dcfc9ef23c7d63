"""`ctxkit sessions window`, on a real store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ctxkit.messages import Message, ToolCall
from ctxkit.storage import Store
from tests.cli.conftest import Run

WINDOW = ("sessions", "window")


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    messages = [Message("user", f"I saw town {number} and seat {number}A") for number in range(20)]
    messages.insert(3, Message("assistant", tool_calls=(ToolCall("c", "find"),), id="asked"))
    with Store.open(url) as store:
        store.sessions.append("alice", messages)
    return url


@pytest.mark.parametrize("kind", ["tail", "sliding", "semantic", "time-decay", "time_decay", "summarised"])
def test_every_window_fits_and_says_what_it_leaves_out(ctxkit: Run, url: str, kind: str) -> None:
    for more in ((), ("--hysteresis",)):
        shown = ctxkit(*WINDOW, "alice", "--max-tokens", 90, "--window", kind, "--store", url, "--json", *more)
        found = json.loads(shown.out)
        assert 0 < found["tokens"] <= 90 < found["session_tokens"]
        assert found["messages"][-1]["content"] == "I saw town 19 and seat 19A"
        ids = {message["id"] for message in found["messages"]}
        assert ids.isdisjoint(found["left_out"])
        assert len(ids | set(found["left_out"])) >= 21
        assert found["repaired"] == ["message 3: the call 'c' gets a result that says interrupted"]


def test_a_question(ctxkit: Run, url: str) -> None:
    asked = ("--window", "semantic", "--query", "which seat in town 4?")
    shown = ctxkit(*WINDOW, "alice", "--max-tokens", 90, *asked, "--store", url).out
    assert "I saw town 4 and seat 4A" in shown
    assert "of 21 messages" in shown
    assert "repaired: message 3" in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ("alice", "--max-tokens", "90", "--window", "newest"),
        ("alice", "--max-tokens", "0"),
        ("alice", "--max-tokens", "90", "--query", "x"),
    ],
)
def test_wrong_usage(ctxkit: Run, url: str, arguments: tuple[str, ...]) -> None:
    refused = ctxkit(*WINDOW, *arguments, "--store", url)
    assert refused.code == 2
    assert "error:" in refused.err


def test_a_budget_that_holds_nothing(ctxkit: Run, url: str) -> None:
    refused = ctxkit(*WINDOW, "alice", "--max-tokens", 5, "--store", url)
    assert refused.code == 1
    assert "newest user message" in refused.err
