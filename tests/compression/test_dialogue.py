"""Sentences of a long dialogue are worth what their stretch is."""

from __future__ import annotations

from ctxkit.compression import SentenceCompressor
from ctxkit.documents import Query
from ctxkit.testing.stages import make_candidates
from ctxkit.tokens import get_counter

COUNTER = get_counter()


def talk(separator: str) -> str:
    """Three topics, a hundred turns each, of which few name their topic."""
    turns = []
    for topic in ("garden", "budget", "remote"):
        for n in range(100):
            said = f"about the {topic} I think so" if n % 5 == 0 else f"yes we could do number {n} like that"
            turns.append(f"Speaker {'ABC'[n % 3]}{separator} {said}.")
    return "\n".join(turns) + "\n"


def share_of_the_topic(text: str) -> float:
    (result,) = SentenceCompressor(ratio=5)(Query("What was decided about the budget?"), make_candidates([text]))
    lines = len(text.splitlines()) // 3
    start = 7 + len("\n".join(text.splitlines()[:lines]))
    end = 7 + len("\n".join(text.splitlines()[: 2 * lines]))
    inside = sum(max(0, min(span.end, end) - max(span.start, start)) for span in result.spans)
    return inside / sum(span.length for span in result.spans)


def test_the_turns_around_come_with_the_turns_that_are_asked_for() -> None:
    assert share_of_the_topic(talk(":")) > 0.9
    assert share_of_the_topic(talk(" said")) < 0.7, "no dialogue: only the sentences that say so are worth something"


def test_one_turn_that_answers_alone_stands_out() -> None:
    lines = talk(":").splitlines()
    lines[250] = "Speaker B: the database port is 5433 since Monday."
    (result,) = SentenceCompressor(target=40)(Query("What is the database port?"), make_candidates(["\n".join(lines)]))
    assert "the database port is 5433 since Monday." in result.text
    assert COUNTER.count(result.text) <= 40
