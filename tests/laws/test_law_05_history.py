"""Law 5: a history is always valid, whatever came in, whatever the window and the budget."""

from __future__ import annotations

import gzip
import json
import pickle
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from ctxkit.errors import BudgetError, HistoryError
from ctxkit.history import (
    Hysteresis,
    SemanticWindow,
    SlidingWindow,
    TailWindow,
    TimeDecayWindow,
    check_history,
    repair,
    units,
)
from ctxkit.messages import Message, Part, ToolCall
from ctxkit.protocols import Window
from ctxkit.testing.windows import WordChatCounter, history_problems
from tests.strategies import texts

COUNTER = WordChatCounter()
CALL_IDS = st.sampled_from(["a", "b", "c", "a_2", "", "call"])
contents = st.one_of(
    st.just(""),
    st.sampled_from([" ", "\n\t", "yes", "word " * 30]),
    texts,
    st.just((Part(kind="image", data={"url": "data:,"}),)),
    st.just((Part(kind="reasoning", text="hm"),)),
)
messages = st.one_of(
    st.builds(Message, st.just("user"), contents),
    st.builds(Message, st.just("user"), texts),
    st.builds(Message, st.just("system"), contents),
    st.builds(
        Message,
        st.just("assistant"),
        contents,
        tool_calls=st.lists(st.builds(ToolCall, CALL_IDS, st.just("find")), max_size=3).map(tuple),
    ),
    st.builds(Message, st.just("tool"), contents, tool_call_id=CALL_IDS),
)


def _identified(found: list[Message]) -> list[Message]:
    return [replace(message, id=f"m{at}") for at, message in enumerate(found)]


dialogues = st.lists(messages, max_size=30).map(_identified)
plain_windows = st.one_of(
    st.just(TailWindow()),
    st.integers(1, 20).map(lambda count: TailWindow(max_messages=count)),
    st.builds(SlidingWindow, head=st.integers(0, 3), pinned=st.lists(st.sampled_from(["m1", "m4", "m9"]))),
    st.integers(1, 9).map(lambda count: SlidingWindow(max_messages=count)),
    st.builds(SemanticWindow, recent=st.integers(0, 4), question=st.sampled_from([None, "", "yes word"])),
    st.builds(TimeDecayWindow, half_life_turns=st.sampled_from([0.5, 10.0]), floor=st.sampled_from([0.0, 0.3])),
)
windows = st.one_of(
    plain_windows,
    st.builds(
        Hysteresis,
        window=plain_windows,
        high_water=st.one_of(st.none(), st.integers(5, 60)),
        low=st.sampled_from([0.2, 0.5, 0.8, 1.0]),
    ),
)


def _valid(found: Sequence[Message]) -> None:
    assert history_problems(found) == []
    check_history(found, require_user=False)


@given(dialogues)
def test_repair_makes_any_list_of_messages_valid(dialogue: list[Message]) -> None:
    before = list(dialogue)
    repaired, notes = repair(dialogue)
    _valid(repaired)
    assert dialogue == before
    assert repair(repaired) == (repaired, [])
    assert repair(dialogue) == (repaired, notes)
    assert notes or repaired == dialogue
    assert all(0 <= note.index < len(dialogue) for note in notes)
    for note in notes:
        event(note.kind)


@given(dialogues)
def test_repair_keeps_every_user_message(dialogue: list[Message]) -> None:
    repaired, _ = repair(dialogue)
    users = [message for message in dialogue if message.role == "user"]
    assert [message.id for message in repaired if message.role == "user"] == [message.id for message in users]


@given(dialogues)
def test_a_dialogue_that_grows_keeps_its_repaired_beginning(dialogue: list[Message]) -> None:
    # A system message inside would move to the beginning; and the newest call may still get its result.
    dialogue = [message for message in dialogue if message.role != "system"]
    whole, _ = repair(dialogue)
    for end in range(len(dialogue)):
        part, _ = repair(dialogue[:end])
        pending = {unit.messages[0].id for unit in units(dialogue) if unit.indices[-1] >= end}
        settled = next((at for at, message in enumerate(part) if message.id in pending), len(part))
        assert whole[:settled] == part[:settled]


@given(dialogues)
def test_units_are_a_partition(dialogue: list[Message]) -> None:
    found = units(dialogue)
    assert sorted(at for unit in found for at in unit.indices) == list(range(len(dialogue)))
    assert [unit.indices[0] for unit in found] == sorted(unit.indices[0] for unit in found)
    for unit in found:
        assert list(unit.messages) == [dialogue[at] for at in unit.indices]
    assert all(unit.complete for unit in units(repair(dialogue).messages))


@given(dialogues)
def test_the_check_refuses_exactly_what_repair_changes(dialogue: list[Message]) -> None:
    repaired, notes = repair(dialogue)
    if not notes:
        _valid(dialogue)
        return
    assert repaired != dialogue
    with pytest.raises(HistoryError):
        check_history(dialogue, require_user=False)


def _mandatory(dialogue: list[Message]) -> list[Message]:
    """The leading system messages and the newest user message, as repair leaves them."""
    repaired, notes = repair(dialogue)
    gone = {note.index for note in notes if note.kind in ("empty", "orphaned", "duplicate")}
    stay = [m for at, m in enumerate(dialogue) if at not in gone or m.tool_calls or m.role == "user"]
    system = list(takewhile(lambda message: message.role == "system", stay))
    return [*system, *[message for message in repaired if message.role == "user"][-1:]]


@given(dialogues, windows, st.integers(1, 120))
def test_a_window_is_valid_fits_and_keeps_the_newest_user_message(
    dialogue: list[Message], window: Window, max_tokens: int
) -> None:
    users = [message for message in dialogue if message.role == "user"]
    if COUNTER.count_prompt(mandatory := _mandatory(dialogue)) > max_tokens and mandatory:
        event("over budget")
        with pytest.raises(BudgetError) as caught:
            window.select(dialogue, max_tokens, COUNTER)
        assert caught.value.available == max_tokens
        assert caught.value.excess > 0
        return
    selected = window.select(dialogue, max_tokens, COUNTER)
    _valid(selected)
    assert not selected or COUNTER.count_prompt(selected) <= max_tokens
    assert window.select(dialogue, max_tokens, COUNTER) == selected
    if users:
        assert users[-1].id in {message.id for message in selected}
        check_history(selected)
    whole = {message.content_hash for message in repair(dialogue).messages}
    assert all(message.content_hash in whole for message in selected)
    most = getattr(window, "max_messages", None)
    if most is not None:
        assert sum(message.role != "system" for message in selected) <= most


@given(dialogues, windows)
def test_everything_is_kept_where_everything_fits(dialogue: list[Message], window: Window) -> None:
    repaired, _ = repair(dialogue)
    bounded = getattr(window, "max_messages", None) or getattr(window, "high_water", None)
    bounded = bounded or getattr(getattr(window, "window", None), "max_messages", None)
    if not bounded and any(message.role == "user" for message in repaired):
        assert window.select(dialogue, 10**6, COUNTER) == repaired


@given(dialogues, st.integers(1, 200), st.integers(0, 50))
def test_more_room_never_keeps_less(dialogue: list[Message], max_tokens: int, more: int) -> None:
    try:
        narrow = TailWindow().select(dialogue, max_tokens, COUNTER)
    except BudgetError:
        return
    wide = TailWindow().select(dialogue, max_tokens + more, COUNTER)
    assert {message.id for message in narrow} <= {message.id for message in wide}


@given(dialogues, windows, st.integers(20, 120))
def test_a_window_of_a_window_is_itself(dialogue: list[Message], window: Window, max_tokens: int) -> None:
    try:
        selected = window.select(dialogue, max_tokens, COUNTER)
    except BudgetError:
        return
    assert window.select(selected, max_tokens, COUNTER) == selected


@given(dialogues, windows, st.integers(20, 120))
def test_a_dialogue_that_grows_is_read_as_if_it_were_new(
    dialogue: list[Message], window: Window, max_tokens: int
) -> None:
    """Law 6: what a window remembers of the last turn changes nothing."""

    def outcome(messages: list[Message], chosen: Window) -> list[Message] | str:
        try:
            return chosen.select(messages, max_tokens, COUNTER)
        except BudgetError as error:
            return str(error)

    for end in {len(dialogue) // 3, len(dialogue) // 2, len(dialogue) - 1, len(dialogue)}:
        if end >= 0:
            fresh = pickle.loads(pickle.dumps(window))
            assert outcome(dialogue[:end], window) == outcome(dialogue[:end], fresh)


@given(st.integers(0, 10_000), st.integers(60, 200))
def test_between_two_cuts_the_beginning_stays(seed: int, high_water: int) -> None:
    """Law 7 for dialogues: with water marks, most turns only add to the end of the window."""
    from ctxkit.testing.windows import dialogue as made

    whole = made(15, seed=seed)
    window = Hysteresis(high_water=high_water, low=0.5)
    ends = [at + 1 for at, message in enumerate(whole) if message.role == "user"]
    cuts = 0
    last: list[Message] = []
    for end in ends:
        selected = window.select(whole[:end], 10**6, COUNTER)
        cuts += selected[: len(last)] != last
        last = selected
    spent = sum(COUNTER.count_message(message) for message in whole[1:])
    # Each cut frees at least half of the mark, less what one unit may be over it.
    assert cuts <= spent / (high_water / 2) + 1


@pytest.mark.data
def test_real_tool_calling_dialogues(data: Path) -> None:
    """tau-bench: prefixes where a model was called, windows of 4 to 20 messages, budgets of 500 to 8,000 tokens."""
    from ctxkit.models import get_chat_counter

    counter = get_chat_counter("openai:gpt-4o")
    with gzip.open(data / "tau_bench" / "airline_traces.jsonl.gz", "rt", encoding="utf-8") as lines:
        traces = [[Message.from_openai(item) for item in json.loads(line)["messages"]] for line in lines]
    assert len(traces) == 100
    chance = random.Random(7)
    counts = dict.fromkeys(("prompts", "orphans", "empty", "newest user lost", "over budget", "cut"), 0)
    for trace in traces:
        dialogue = [message for message in trace if message.role != "system"]
        for end in range(1, len(dialogue) + 1):
            prefix = dialogue[:end]
            users = [message for message in prefix if message.role == "user"]
            if not users:
                continue
            for _ in range(3):
                window = TailWindow(max_messages=chance.randint(4, 20))
                budget = chance.choice((500, 1000, 2000, 4000, 8000))
                selected = window.select(prefix, budget, counter)
                counts["prompts"] += 1
                counts["orphans"] += bool(history_problems(selected))
                counts["empty"] += not selected
                counts["newest user lost"] += users[-1] not in selected
                counts["over budget"] += counter.count_prompt(selected) > budget
                counts["cut"] += len(selected) < len(prefix)
    print(counts)
    assert counts["prompts"] > 6000
    assert counts["cut"] > 2000
    assert (counts["orphans"], counts["empty"], counts["newest user lost"], counts["over budget"]) == (0, 0, 0, 0)
