"""Law 2: the prompt is what the target model counts, it never exceeds the budget, and nothing is dropped in silence."""

from __future__ import annotations

import pytest
from hypothesis import event, given

from ctxkit.documents import Span, subtract_spans
from ctxkit.errors import BudgetError
from ctxkit.messages import Message
from ctxkit.prompts import Budget, Prompt
from ctxkit.protocols import ChatCounter, counted_exactly
from tests.assembly.counters import counter_of, joined_ids, openai_counter, tiny_counter
from tests.assembly.requests import Request, requests


def _mandatory(request: Request, counter: ChatCounter) -> Prompt:
    """The prompt without history and context, in a window that everything fits into."""
    return request.assemble(counter, budget=Budget(10_000_000), history=(), candidates=())


@pytest.mark.parametrize("local", [False, True], ids=["openai", "local"])
@given(request_=requests())
def test_never_over_and_budget_error_exactly_when_the_mandatory_parts_do_not_fit(
    local: bool, request_: Request
) -> None:
    counter = counter_of(local)
    mandatory = _mandatory(request_, counter)
    needed = counter.count_prompt(mandatory.turns, request_.tools)
    question = sum(segment.token_count for segment in mandatory.segments if segment.section == "question")
    cap = request_.budget.section("question").max
    fits = needed <= request_.budget.available and (cap is None or question <= cap)
    event("fits" if fits else "does not fit")
    if not fits:
        with pytest.raises(BudgetError) as caught:
            request_.assemble(counter)
        assert caught.value.excess > 0
        assert "question" in caught.value.parts
        if needed > request_.budget.available:
            assert sum(caught.value.parts.values()) == needed
            assert caught.value.excess == needed - request_.budget.available
        return
    prompt = request_.assemble(counter)
    assert prompt.token_count == counter.count_prompt(prompt.turns, request_.tools)
    assert prompt.token_count <= request_.budget.available
    assert prompt.exact == counted_exactly(counter, prompt.turns, request_.tools)
    assert prompt.exact or request_.tools or any(turn.tool_calls for turn in prompt.turns)
    _nothing_is_dropped_in_silence(request_, prompt)
    _caps_hold(request_, prompt, request_.budget.available - needed)


def _nothing_is_dropped_in_silence(request: Request, prompt: Prompt) -> None:
    dropped = [(item.section, item.item) for item in prompt.dropped]
    assert all(item.reason and item.token_count >= 0 for item in prompt.dropped)
    shown = {message_id for segment in prompt.segments if (message_id := segment.message_id) is not None}
    for message in request.history:
        assert message.id in shown or ("history", message.id) in dropped
        assert not (message.id in shown and ("history", message.id) in dropped)
    if request.called and "context" not in request.template.variables:
        assert not any(segment.sources for segment in prompt.segments)  # nobody asked for candidates
        return
    sent: dict[str, list[Span]] = {}
    for source in prompt.sources:
        sent.setdefault(source.document_id, []).append(source.span)
    for candidate in request.candidates:
        missing = subtract_spans(candidate.spans, sent.get(candidate.chunk.document_id, []))
        assert not missing or ("context", candidate.chunk.id) in dropped
    in_prompt = len(request.candidates) - sum(section == "context" for section, _ in dropped)
    assert (in_prompt > 0) == any(segment.sources for segment in prompt.segments)


def _caps_hold(request: Request, prompt: Prompt, room: int) -> None:
    tokens = {"history": 0, "context": 0}
    for segment in prompt.segments:
        if segment.section in tokens:
            tokens[segment.section] += segment.token_count
    for name, count in tokens.items():
        assert count <= request.budget.section(name).cap(room), name


@given(requests())
def test_the_openai_count_is_the_encoding_of_the_whole_content(request_: Request) -> None:
    """Counted once more from scratch, each message's content as the one text that the provider sees."""
    prompt = request_.assemble(openai_counter(), tools=(), budget=Budget(4_000))
    if any(turn.tool_calls or turn.tool_call_id for turn in prompt.turns):
        prompt = request_.assemble(openai_counter(), tools=(), budget=Budget(4_000), history=())
    assert prompt.token_count == len(joined_ids([Message(turn.role, turn.visible) for turn in prompt.turns])) + 3


@given(requests())
def test_the_local_count_is_the_ids_that_are_fed(request_: Request) -> None:
    local_counter = tiny_counter()
    prompt = request_.assemble(local_counter, budget=Budget(8_000))
    assert prompt.token_count == len(local_counter.encode_prompt(prompt.turns, request_.tools))


@given(requests())
def test_what_fits_whole_is_kept_whole(request_: Request) -> None:
    """In a window that is large enough, only what has no text or repeats another text stays out."""
    prompt = request_.assemble(request_.counter, budget=Budget(1_000_000), window=type(request_.window)())
    has_place = "context" in request_.template.variables
    allowed = ("repeats", "blank", "empty", "compression left nothing", "in the prompt already", "no place for context")
    for item in prompt.dropped:
        if item.section == "context":
            assert any(reason in item.reason for reason in allowed), item.reason
            assert has_place or "no place" in item.reason
