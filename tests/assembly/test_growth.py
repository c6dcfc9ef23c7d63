"""Law 8 for assembly: twice the candidates, at most two and a half times the time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from ctxkit.assembly import assemble
from ctxkit.documents import Candidate, Chunk, Document, Query, Span
from ctxkit.history import TailWindow
from ctxkit.messages import Message
from ctxkit.models import OpenAIChatCounter
from ctxkit.prompts import Budget
from ctxkit.templates import DEFAULT_TEMPLATE
from tests.timing import doubling

SENTENCE = "The committee met on Tuesday and did not agree about the matter at hand. "


def _chunks(count: int, *, documents: int, step: int, length: int) -> list[Candidate]:
    books = [
        Document(
            f"d{at}", f"{at} {SENTENCE}" * (count * step // documents // len(SENTENCE) + length), source=f"{at}.md"
        )
        for at in range(documents)
    ]
    found = []
    for at in range(count):
        start = at // documents * step
        chunk = Chunk.of(books[at % documents], Span(start, start + length), length // 4)
        found.append(Candidate(chunk, {"final": (at * 7919 % count) / count}))
    return found


SHAPES: dict[str, Callable[[int], list[Candidate]]] = {
    "many documents": lambda count: _chunks(count, documents=97, step=500, length=400),
    "one document, neighbours": lambda count: _chunks(count, documents=1, step=400, length=400),
    "one document, overlapping": lambda count: _chunks(count, documents=1, step=300, length=400),
}


def _assemble(candidates: list[Candidate], history: list[Message]) -> None:
    prompt = assemble(
        Query("Why?"),
        template=DEFAULT_TEMPLATE,
        payload={},
        history=history,
        candidates=candidates,
        budget=Budget(50 * len(candidates) + 20 * len(history)),
        counter=OpenAIChatCounter("gpt-4o"),
        window=TailWindow(),
    )
    assert prompt.token_count <= prompt.budget.available
    assert len(prompt.dropped) > len(candidates) // 4


@pytest.mark.parametrize("shape", SHAPES)
def test_time_grows_with_the_candidates(shape: str) -> None:
    doubling(lambda count: partial(_assemble, SHAPES[shape](count), []), 1_500)


def test_time_grows_with_the_history() -> None:
    def dialogue(turns: int) -> list[Message]:
        return [
            Message("user" if at % 2 == 0 else "assistant", f"{at} {SENTENCE}" * 4, id=f"m{at}") for at in range(turns)
        ]

    few = SHAPES["many documents"](50)
    doubling(lambda turns: partial(_assemble, few, dialogue(turns)), 2_000)
