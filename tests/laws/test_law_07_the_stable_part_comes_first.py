"""Law 7: two consecutive turns share a byte-identical prefix, in text and in ids, of the length that is reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from hypothesis import event, given, settings
from hypothesis import strategies as st

from ctxkit.documents import Query
from ctxkit.history import TailWindow
from ctxkit.messages import Message
from ctxkit.prompts import Budget, Prompt
from ctxkit.templates import DEFAULT_TEMPLATE
from tests.assembly.counters import joined_ids, openai_counter, tiny_counter
from tests.assembly.requests import Request, requests
from tests.strategies import texts

fewer = settings(max_examples=max(5, settings().max_examples // 3))  # each is assembled twice
answers = texts.map(lambda text: text if text.strip() else "An answer.")


def _next(request: Request, answer: str, question: str) -> Request:
    """The turn after: the dialogue has grown by the question and its answer, and something else is asked."""
    at = len(request.history)
    grown = (
        *request.history,
        Message("user", request.query.text, id=f"m{at}"),
        Message("assistant", answer, id=f"m{at + 1}"),
    )
    return replace(request, history=grown, query=replace(request.query, text=question))


def _shared(one: Sequence[int], two: Sequence[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False)))


def _stable_text(prompt: Prompt, following: Prompt) -> int:
    """How many segments from the start are byte-identical in both prompts, message by message."""
    pairs = zip(prompt.segments, following.segments, strict=False)
    return sum(
        1
        for _ in takewhile(
            lambda pair: (pair[0].message, pair[0].role, pair[0].text) == (pair[1].message, pair[1].role, pair[1].text),
            pairs,
        )
    )


@fewer
@given(requests(), answers, texts.filter(str.strip))
def test_the_prefix_of_a_turn_is_the_prefix_of_the_next(
    request_: Request,
    answer: str,
    question: str,
) -> None:
    dialogue = replace(
        request_,
        query=replace(request_.query, session="alice"),
        budget=Budget(200_000),
        window=TailWindow(),
        tools=(),
    )
    counter = request_.counter
    prompt = dialogue.assemble(counter)
    following = _next(dialogue, answer, question).assemble(counter, candidates=request_.candidates[::-1])
    ids = tiny_counter().encode_prompt if request_.local else joined_ids
    shared = _shared(ids(prompt.turns), ids(following.turns))
    assert 0 <= prompt.stable_prefix_tokens <= shared
    assert prompt.stable_prefix_tokens <= prompt.token_count
    event("some stable" if prompt.stable_prefix_tokens else "nothing stable")


@fewer
@given(requests(), answers, texts.filter(str.strip))
def test_the_default_template_repeats_its_text_and_the_whole_dialogue(
    request_: Request,
    answer: str,
    question: str,
) -> None:
    counter = request_.counter
    dialogue = replace(
        request_,
        template=DEFAULT_TEMPLATE,
        payload={},
        query=replace(request_.query, session="alice"),
        budget=Budget(200_000),
        window=TailWindow(),
    )
    prompt = dialogue.assemble(counter)
    following = _next(dialogue, answer, question).assemble(counter)
    past = sum(segment.section in ("system", "history") for segment in prompt.segments)
    assert past >= 1
    assert _stable_text(prompt, following) >= past
    assert following.stable_prefix_tokens > prompt.stable_prefix_tokens > 0
    # What is reported is all of it: the documents and the question are the rest.
    rest = [segment for segment in prompt.segments if segment.section not in ("system", "history")]
    framing = 2 * counter.count_prompt([Message("user", "x")])
    assert prompt.token_count - prompt.stable_prefix_tokens <= sum(segment.token_count for segment in rest) + framing


@fewer
@given(st.lists(texts.filter(str.strip), min_size=3, max_size=12), st.integers(150, 600), st.data())
def test_the_cut_of_a_long_dialogue_does_not_move_with_the_question(
    turns: list[str], size: int, data: st.DataObject
) -> None:
    """The same dialogue and another question of a few tokens more: most often the same history, always a prefix."""
    counter = openai_counter()
    history = [Message("user" if at % 2 == 0 else "assistant", text, id=f"m{at}") for at, text in enumerate(turns)]
    request = data.draw(requests())
    request = replace(
        request,
        template=DEFAULT_TEMPLATE,
        payload={},
        tools=(),
        history=tuple(history),
        budget=Budget(size),
        window=TailWindow(),
        candidates=(),
        called=False,
        query=Query("Why?", session="alice"),
    )
    one = request.assemble(counter)
    two = request.assemble(counter, query=Query("But why, then?", session="alice"))
    assert one.turns[0] == two.turns[0]
    assert _shared(joined_ids(one.turns[:1]), joined_ids(two.turns[:1])) >= min(
        one.stable_prefix_tokens, len(joined_ids(one.turns[:1]))
    )
