"""Of whom a question asks, and what a ranking makes of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from ctxkit.messages import Message
from ctxkit.recall import HistoryRetriever, Ranking
from ctxkit.recall.asking import asks_for_several, speaker_asked
from ctxkit.recall.entries import Entry, entries
from ctxkit.storage import Store

NAMED = entries(
    [
        Message("user", "I swim.", id="a", name="Ada Berg"),
        Message("assistant", "I run.", id="b", name="Odd"),
        Message("user", "Ilse: I sew.", id="c"),
    ],
    timedelta(hours=4),
)
ROLES = entries([Message("user", "I swim.", id="a"), Message("assistant", "I run.", id="b")], timedelta(hours=4))


@pytest.mark.parametrize(
    ("question", "past", "speaker", "own"),
    [
        ("What does Ada do?", NAMED, "Ada Berg", ["a"]),
        ("What does ODD's friend do?", NAMED, "Odd", ["b"]),
        ("What does Ilse do?", NAMED, "Ilse", ["c"]),
        ("What do Ada and Odd do?", NAMED, "", []),
        ("Who is there?", NAMED, "", []),
        ("What did I say?", ROLES, "user", ["a"]),
        ("What did you say about my cat?", ROLES, "assistant", ["b"]),
        ("Can you please tell me what I said?", ROLES, "user", ["a"]),
        ("我说了什么？", ROLES, "user", ["a"]),
        ("你说了什么？", ROLES, "assistant", ["b"]),
        ("What was said?", ROLES, "", []),
    ],
)
def test_of_whom_it_asks(question: str, past: list[Entry], speaker: str, own: list[str]) -> None:
    found, whose = speaker_asked(question, past)
    assert found == speaker
    assert [entry.id for entry, mine in zip(past, whose, strict=True) if mine] == own


@pytest.mark.parametrize("question", ["What books has Ada read?", "Where has she been?", "How many cats are there?"])
def test_what_asks_for_several(question: str) -> None:
    assert asks_for_several(question)


@pytest.mark.parametrize("question", ["When did Ada move?", "Why is it late?", "What is her name?", ""])
def test_what_asks_for_one(question: str) -> None:
    assert not asks_for_several(question)


def rank(messages: list[Message], question: str, **weights: float) -> list[str]:
    with Store.open("sqlite://") as store:
        retriever = HistoryRetriever(store, None, ranking=replace(Ranking(), **weights))
        past, ranked = retriever.rank(None, messages, question, None)
        return [past[at].id for at in ranked.order()]


def test_who_is_asked_about_comes_first_and_an_answer_stands_beside_its_question() -> None:
    dialogue = [
        Message("user", "Which instrument do you play, the violin?", id="q", name="Ada"),
        Message("assistant", "Yes, since I was nine.", id="answer", name="Odd"),
        Message("user", "Rain again.", id="far", name="Ada"),
        Message("assistant", "My violin broke.", id="odd", name="Odd"),
        Message("user", "My violin broke.", id="ada", name="Ada"),
    ]
    assert rank(dialogue, "What of Odd's violin?").index("odd") < rank(dialogue, "What of Odd's violin?").index("ada")
    assert rank(dialogue, "What of Ada's violin?").index("ada") < rank(dialogue, "What of Ada's violin?").index("odd")
    assert "answer" in rank(dialogue, "violin instrument", about=0)
    with Store.open("sqlite://") as store:
        alone = HistoryRetriever(store, None, ranking=Ranking(beside=(), sitting=0))
        past, ranked = alone.rank(None, dialogue, "violin instrument", None)
        assert "answer" not in [past[at].id for at in ranked.order()]


def test_a_message_without_a_time_is_neither_near_nor_far() -> None:
    when = datetime(2023, 5, 3, tzinfo=UTC)
    dialogue = [
        Message("user", "A violin.", id="near", created_at=when),
        Message("user", "A violin.", id="unknown"),
        Message("user", "A violin.", id="far", created_at=when + timedelta(days=300)),
    ]
    order = rank(dialogue, "Which violin in May 2023?", sitting=0)
    assert order.index("near") < order.index("far")
    assert set(order) == {"near", "unknown", "far"}
