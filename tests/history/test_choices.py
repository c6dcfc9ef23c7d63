"""What each window chooses, by example, and what it does with bad input."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ctxkit.errors import BudgetError, ConfigError
from ctxkit.history import (
    Cues,
    Hysteresis,
    SemanticWindow,
    Shortened,
    SlidingWindow,
    TailWindow,
    TimeDecayWindow,
    check_history,
)
from ctxkit.history.clustering import clusters
from ctxkit.messages import Message, Part, ToolCall
from ctxkit.models import OpenAIChatCounter
from ctxkit.protocols import Window
from ctxkit.testing.windows import WordChatCounter, dialogue
from tests.strategies import texts
from tests.timing import at_most

COUNTER = WordChatCounter()
PROVIDER = OpenAIChatCounter("gpt-4o")
WINDOWS: tuple[Window, ...] = (
    TailWindow(),
    SlidingWindow(),
    SemanticWindow(),
    TimeDecayWindow(),
    Hysteresis(window=SemanticWindow(), low=0.5),
    Shortened(),
)


def says(role: Any, text: str, id: str = "", **more: Any) -> Message:  # noqa: A002
    return Message(role, text, id=id or text.replace(" ", "-"), **more)


def kept(window: Window, messages: Sequence[Message], max_tokens: int) -> list[str]:
    return [message.id for message in window.select(messages, max_tokens, COUNTER)]


# ------------------------------------------------------------------------------------------------- sliding window

ROWS = [says("user" if at % 2 == 0 else "assistant", "one two", f"m{at}") for at in range(10)]


def test_the_first_and_the_pinned_units_stay() -> None:
    assert kept(SlidingWindow(head=2), ROWS, 30) == ["m0", "m1", "m7", "m8", "m9"]
    assert kept(SlidingWindow(head=0, pinned=["m4"]), ROWS, 30) == ["m4", "m6", "m7", "m8", "m9"]
    assert kept(SlidingWindow(head=0), ROWS, 30) == kept(TailWindow(), ROWS, 30)
    assert kept(SlidingWindow(head=1, max_messages=3), ROWS, 300) == ["m0", "m8", "m9"]


def test_what_is_pinned_never_takes_the_whole_window() -> None:
    pinned = [f"m{at}" for at in range(10)]
    assert kept(SlidingWindow(head=0, pinned=pinned), ROWS, 30)[-3:] == ["m7", "m8", "m9"]


def test_a_pinned_result_brings_its_call() -> None:
    call = Message("assistant", tool_calls=(ToolCall("c", "find"),), id="call")
    result = Message("tool", "seat 12A", tool_call_id="c", id="result")
    messages = [says("user", "which seat"), call, result, *ROWS]
    found = kept(SlidingWindow(head=1, pinned=["result"]), messages, 55)
    assert found[:3] == ["which-seat", "call", "result"]


# ------------------------------------------------------------------------------------------------------ hysteresis


def test_the_beginning_stays_between_two_cuts() -> None:
    messages = [says("user" if at % 2 == 0 else "assistant", "w " * 7, f"m{at}") for at in range(40)]
    window = Hysteresis(high_water=103, low=0.5)
    starts = [kept(window, messages[: end + 1], 10_000)[0] for end in range(0, 40, 2)]
    assert starts[:5] == ["m0"] * 5
    assert starts == sorted(starts, key=lambda start: int(start[1:]))
    assert len(set(starts)) <= 8
    assert starts == [
        kept(Hysteresis(high_water=103, low=0.5), messages[: end + 1], 10_000)[0] for end in range(0, 40, 2)
    ]


@settings(max_examples=100)
@given(st.integers(0, 10_000), st.integers(150, 400), st.sampled_from([0.3, 0.5, 0.8]))
def test_prefix_reuse_of_any_window(seed: int, budget: int, low: float) -> None:
    """Law 7: cuts are rare, whatever window chooses, and a prompt between two cuts begins with the one before it."""
    whole = dialogue(12, seed=seed)
    window = Hysteresis(window=SlidingWindow(), low=low)
    ends = [at + 1 for at, message in enumerate(whole) if message.role == "user"]
    last: list[Message] = []
    changed = 0
    for end in ends:
        selected = window.select(whole[:end], budget, COUNTER)
        assert COUNTER.count_prompt(selected) <= budget
        changed += selected[: len(last)] != last
        last = selected
    spent = sum(COUNTER.count_message(message) for message in whole)
    largest = max(
        COUNTER.count_message(message) * (1 + 4 * len(message.tool_calls)) + 130 * bool(message.tool_calls)
        for message in whole
    )
    # A cut frees at least what is between the marks, less one unit; of larger units nothing is promised.
    if budget * (1 - low) > 2 * largest:
        assert changed <= spent / (budget * (1 - low) - largest) + 1


def test_a_window_in_a_window_in_a_window() -> None:
    window = Hysteresis(window=Shortened(window=SemanticWindow(), max_tokens=30), low=0.6)
    whole = dialogue(20, seed=3)
    selected = window.select(whole, 200, COUNTER)
    check_history(selected)
    assert COUNTER.count_prompt(selected) <= 200
    assert pickle.loads(pickle.dumps(window)).select(whole, 200, COUNTER) == selected


# -------------------------------------------------------------------------------------------------- semantic window


def test_it_keeps_what_was_settled_and_leaves_what_was_turned_down() -> None:
    messages = [
        says("user", "I want a quiet hotel in Rome for 3 nights from May 4", "wish"),
        says("assistant", "How about the Grand Palace at 310 Euro near the Forum", "offer"),
        says("user", "What else do you have?", "no"),
        says("assistant", "There is the Albergo Luna for 95 Euro", "second"),
        says("user", "Sounds good, well, nice weather we are having these days too", "yes"),
        says("assistant", "Please confirm: Albergo Luna in Rome, 3 nights from May 4, 95 Euro", "confirm"),
        says("user", "Yes, that is right", "right"),
        says("assistant", "Anything I can do for you now", "chat"),
        says("user", "Thanks, bye", "bye"),
    ]
    found = kept(SemanticWindow(recent=1), messages, 50)
    assert "confirm" in found
    assert "offer" not in found
    assert "bye" in found
    without = Cues(**dict.fromkeys(Cues.__dataclass_fields__, 1.0))
    offered = [kept(SemanticWindow(recent=1, cues=without), messages, room) for room in range(50, 90)]
    heeded = [kept(SemanticWindow(recent=1), messages, room) for room in range(50, 90)]
    assert sum("offer" in found for found in heeded) < sum("offer" in found for found in offered)


def test_the_question_brings_what_bears_on_it() -> None:
    facts = [says("user", f"My {what} is {number} today", what) for number, what in enumerate(("dog", "cat", "car"))]
    chatter = [says("assistant", f"Flight {at} to Oslo leaves from gate {at}", f"f{at}") for at in range(20)]
    messages = [*facts, *chatter, says("user", "so it is", "last")]
    for what in ("dog", "cat", "car"):
        assert what in kept(SemanticWindow(recent=0).asking(f"what about my {what}?"), messages, 45)
    fixed = SemanticWindow(question="dog")
    assert fixed.asking("cat") is fixed


def test_the_embedder_is_asked_once_for_each_unit() -> None:
    asked: list[str] = []

    class Watching:
        dimension = 8
        fingerprint = "watching"

        def embed(self, said: Sequence[str]) -> NDArray[np.float32]:
            asked.extend(said)
            made = np.ones((len(said), 8), dtype=np.float32)
            for row, text in zip(made, said, strict=True):
                row[len(text) % 8] += 3
            return made / np.linalg.norm(made, axis=1, keepdims=True)

    whole = dialogue(12, seed=2)
    window = SemanticWindow(embedder=Watching(), question="word1")
    first = window.select(whole, 150, COUNTER)
    assert window.select(whole, 150, COUNTER) == first
    texts_asked = [text for text in asked if text != "word1"]
    assert len(texts_asked) == len(set(texts_asked)) > 10


def test_clusters_are_the_same_every_time() -> None:
    chance = np.random.default_rng(0)
    centres = chance.normal(size=(3, 16))
    points = np.concatenate([centre + 0.05 * chance.normal(size=(12, 16)) for centre in centres]).astype(np.float32)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    labels = clusters(points)
    assert (labels == clusters(points)).all()
    assert all(set(labels[:12]).isdisjoint(labels[start : start + 12]) for start in (12, 24))
    assert clusters(np.zeros((0, 4), dtype=np.float32)).shape == (0,)


# ----------------------------------------------------------------------------------------------- time decay window

DAY = datetime(2026, 5, 1, tzinfo=UTC)


def test_the_weight_is_one_half_at_the_half_life() -> None:
    window = TimeDecayWindow(half_life=timedelta(days=2), floor=0.1)
    two_days = 2 * 24 * 3600.0
    assert window.weight(two_days) == 0.5
    assert window.weight(0) == window.weight(-two_days) == 1.0
    assert window.weight(2 * two_days) == 0.25
    assert window.weight(1e12) == 0.1
    assert TimeDecayWindow(half_life=float("inf")).weight(1e300) == 1.0
    assert TimeDecayWindow(floor=0).weight(1e300) == 0.0


def test_the_old_loses_against_the_new_and_wins_by_its_bearing() -> None:
    old = [says("user", f"old number {at}", f"o{at}", created_at=DAY) for at in range(6)]
    key = says("user", "the safe code is 4711", "key", created_at=DAY)
    new = [says("user", f"new number {at}", f"n{at}", created_at=DAY + timedelta(days=90, hours=at)) for at in range(6)]
    messages = [key, *old, *new]
    assert "key" in kept(TimeDecayWindow(floor=0.3).asking("what was the safe code?"), messages, 35)
    assert "key" not in kept(TimeDecayWindow().asking("what is new?"), messages, 35)
    assert kept(TimeDecayWindow(pinned=["key"]), messages, 35)[0] == "key"


def test_the_clock_moves_no_message_and_a_stamp_in_the_future_has_no_age() -> None:
    backwards = [says("user", f"word {at}", f"m{at}", created_at=DAY - timedelta(days=at)) for at in range(6)]
    found = kept(TimeDecayWindow(now=DAY - timedelta(days=30)), backwards, 24)
    assert found == sorted(found)
    assert "m5" in found
    assert kept(TimeDecayWindow(), backwards, 10_000) == [f"m{at}" for at in range(6)]


def test_a_neighbour_of_an_answer_comes_with_it() -> None:
    messages = [says("user", f"chatter number {at}", f"c{at}") for at in range(12)]
    messages[4] = says("user", "the key is under the mat", "answer")
    alone = kept(TimeDecayWindow(neighbours=0, half_life_turns=100).asking("where is the mat?"), messages, 29)
    beside = kept(TimeDecayWindow(neighbours=0.9, half_life_turns=100).asking("where is the mat?"), messages, 29)
    assert "answer" in alone
    assert {"answer", "c5"} <= set(beside)
    assert "c5" not in alone


# ------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("window", WINDOWS, ids=lambda window: type(window).__name__)
def test_bad_input(window: Window) -> None:
    broken = [
        Message("assistant", "first", id="early"),
        Message("user", "", id="empty"),
        Message("tool", "orphan", tool_call_id="nobody", id="orphan"),
        Message("user", "same id", id="twice"),
        Message("user", "same id again", id="twice", created_at=DAY),
        Message("assistant", tool_calls=(ToolCall("c", "find"), ToolCall("c", "find")), id="calls"),
        Message("user", "earlier", id="back", created_at=DAY - timedelta(days=400)),
        Message("user", (Part("image", data={"url": "data:,"}),), id="image"),
        Message("assistant", (Part("reasoning", "hm"),), id="thought"),
        Message("user", "and now?", id="now"),
    ]
    for max_tokens in (9, 20, 60, 500):
        try:
            selected = window.select(broken, max_tokens, COUNTER)
        except BudgetError:
            continue
        check_history(selected)
        assert selected[-1].id == "now"
        assert COUNTER.count_prompt(selected) <= max_tokens
        assert "orphan" not in {message.id for message in selected}


@pytest.mark.parametrize("window", WINDOWS[:-1], ids=lambda window: type(window).__name__)
def test_a_message_of_five_megabytes(window: Window) -> None:
    counter = PROVIDER
    huge = Message("user", "lorem ipsum dolor " * 290_000, id="huge")
    messages = [says("user", "hello"), huge, says("assistant", "I see"), says("user", "what is it about")]
    assert "huge" not in {message.id for message in window.select(messages, 500, counter)}
    with pytest.raises(BudgetError) as caught:
        window.select(messages[:2], 500, counter)
    assert "huge" in str(caught.value)


def test_a_message_over_the_budget_is_shortened_where_that_is_declared() -> None:
    counter = OpenAIChatCounter("gpt-4o")
    huge = Message("user", "alpha " + "lorem ipsum dolor " * 290_000 + " omega", id="huge")
    with at_most(5):
        (only,) = Shortened().select([huge], 500, counter)
    assert only.id == "huge"
    assert only.text.startswith("alpha lorem")
    assert only.text.endswith("omega")
    assert " … " in only.text
    assert 100 < counter.count_prompt([only]) <= 500


@given(texts, st.integers(4, 60))
def test_a_shortened_message_keeps_its_ends_within_the_limit(text: str, limit: int) -> None:
    counter = OpenAIChatCounter("gpt-4o")
    message = Message("user", text, id="m")
    (only,) = Shortened(max_tokens=limit).select(
        [
            message,
        ],
        10_000,
        counter,
    )
    if counter.count(text) <= limit:
        assert only == message or not text.strip()
        return
    start, marker, _ = only.text.partition(" … ")
    assert marker
    assert text.startswith(start) or " … " in text
    assert counter.count(only.text) <= max(limit, counter.count(" … ") + 8)


def test_parts_are_shortened_and_images_stay() -> None:
    image = Part("image", data={"url": "data:,"})
    message = Message("user", (Part(text="word " * 100), image, Part(text="short")), id="m")
    (only,) = Shortened(max_tokens=20).select([message], 1_000, COUNTER)
    assert only.parts[1] == image
    assert only.parts[2].text == "short"
    assert len(only.parts[0].text.split()) <= 20


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        (SlidingWindow, {"head": -1}),
        (SlidingWindow, {"pinned": [1]}),
        (SlidingWindow, {"pinned": 7}),
        (SlidingWindow, {"share": 2}),
        (SlidingWindow, {"max_messages": 0}),
        (Hysteresis, {"low": 0}),
        (Hysteresis, {"low": 1.5}),
        (Hysteresis, {"high_water": 0}),
        (Hysteresis, {"window": "tail"}),
        (SemanticWindow, {"recent": -1}),
        (SemanticWindow, {"question": 3}),
        (SemanticWindow, {"embedder": "minilm"}),
        (SemanticWindow, {"cues": 1}),
        (SemanticWindow, {"cost_exponent": -1}),
        (TimeDecayWindow, {"half_life": 0}),
        (TimeDecayWindow, {"half_life": float("nan")}),
        (TimeDecayWindow, {"half_life_turns": True}),
        (TimeDecayWindow, {"floor": 1.1}),
        (TimeDecayWindow, {"now": datetime(2026, 1, 1)}),
        (Shortened, {"max_tokens": 0}),
        (Shortened, {"window": None}),
    ],
)
def test_wrong_parameters(kind: type, parameters: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        kind(**parameters)
    assert caught.value.remedy


def test_many_calls_of_one_id_take_linear_time() -> None:
    """Each call of a used id gets a new one; looking for it from the beginning would take a square."""
    messages = [says("user", "go")]
    for number in range(4_000):
        messages.append(Message("assistant", tool_calls=(ToolCall("same", "find"),), id=f"a{number}"))
        messages.append(Message("tool", "found", tool_call_id="same", id=f"t{number}"))
    with at_most(1.5):
        selected = TailWindow().select(messages, 10**6, COUNTER)
    assert len(selected) == len(messages)


def test_a_warm_window_reads_only_what_is_new() -> None:
    calls = 0

    class Counting(WordChatCounter):
        def count_message(self, message: Message) -> int:
            nonlocal calls
            calls += 1
            return super().count_message(message)

    whole = [replace(message, id=f"x{at}") for at, message in enumerate(dialogue(200, seed=9))]
    counter = Counting()
    for window in (TailWindow(), SlidingWindow(), SemanticWindow(), TimeDecayWindow(), Hysteresis()):
        window.select(whole[:-3], 400, counter)
        calls = 0
        window.select(whole, 400, counter)
        assert calls < 200, type(window).__name__
