"""What the benchmarks of history measure with: topics that return, and turns that fit."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from ctxkit.evaluation.benchmarks._locomo import within
from ctxkit.evaluation.conversations import named_messages
from ctxkit.evaluation.locomo import conversations
from ctxkit.evaluation.state_union import Speech, speeches, topics


def speech(year: int, *paragraphs: str) -> Speech:
    return Speech(str(year), datetime(year, 1, 20, tzinfo=UTC), paragraphs)


def test_a_topic_returns_over_the_years() -> None:
    said = [
        speech(1950, "We spoke of the Peace Corps.", "And of nothing."),
        speech(1960, "Nothing."),
        speech(1961, "Nothing.", "Now the Peace Corps grows."),
        speech(1970, "Small."),
        speech(1975, "The Peace Corps is old.", "We thank the Peace Corps.", "Tonight I Tonight I"),
        speech(1980, "Small."),
    ]
    (topic,) = topics(said)
    assert topic.name == "Peace Corps"
    assert topic.newest == {(4, 0), (4, 1)}
    assert topic.first == {(0, 0)}


def test_turns_are_taken_in_order_while_they_fit() -> None:
    costs = {"a": 5, "b": 9, "c": 3}
    assert within(["a", "b", "c"], costs, 10) == {"a", "c"}
    assert within(["a", "b", "c"], costs, 0) == set()


@pytest.mark.data
def test_addresses_and_conversations_are_dated(data: Path) -> None:
    said = speeches(data)
    assert len(said) == 65
    assert (said[0].given_at.year, said[-1].given_at.year) == (1945, 2006)
    assert all(one.paragraphs for one in said)
    conversation = conversations(data)[0]
    messages = named_messages(conversation)
    assert str(messages[0].created_at) == "2023-05-08 13:56:00+00:00"
    stamps = [one.created_at for one in messages if one.created_at]
    assert stamps == sorted(stamps)
    assert {one.name for one in messages if one.role == "user"} == {messages[0].name}
