"""Law 6 for assembly: the same arguments give the same prompt, byte for byte; and reading changes nothing."""

from __future__ import annotations

import copy
from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from ctxkit.errors import BudgetError
from ctxkit.messages import Message
from ctxkit.models import OpenAIChatCounter
from ctxkit.prompts import Budget, Prompt
from ctxkit.protocols import ChatCounter
from ctxkit.templates import Template
from tests.assembly.requests import Request, requests
from tests.strategies import stored_texts


def _prompt(request: Request, counter: ChatCounter) -> Prompt:
    try:
        return request.assemble(counter)
    except BudgetError:
        return request.assemble(counter, budget=Budget(3_000, sections=request.budget.sections))


def _bytes(prompt: Prompt) -> bytes:
    return repr((prompt.messages, prompt.turns, prompt.segments, prompt.tools)).encode("utf-8", "surrogatepass")


@given(requests())
def test_twice_the_same_is_the_same(request_: Request) -> None:
    counter = request_.counter
    budget_holds = request_.budget.section("question").max is None
    assume(budget_holds)
    before = copy.deepcopy((request_.payload, request_.history, request_.candidates, request_.tools))
    first, second = _prompt(request_, counter), _prompt(request_, counter)
    assert _bytes(first) == _bytes(second)
    assert first == second
    assert first.fingerprint == second.fingerprint
    assert first.explain().split("\nstages:")[0] == second.explain().split("\nstages:")[0]
    assert repr(before) == repr((request_.payload, request_.history, request_.candidates, request_.tools))


@given(requests())
def test_a_fresh_counter_changes_nothing(request_: Request) -> None:
    """What a counter remembers of earlier prompts has no part in the next one."""
    assume(request_.budget.section("question").max is None)
    used = OpenAIChatCounter("gpt-4o")
    first = _prompt(request_, used)
    assert first == _prompt(request_, used) == _prompt(request_, OpenAIChatCounter("gpt-4o"))


@given(requests(), stored_texts, st.permutations(["tone", "place", "name"]))
def test_the_order_of_the_payload_does_not_matter(
    request_: Request,
    name: str,
    order: list[str],
) -> None:
    counter = request_.counter
    template = Template.parse("{{tone}} {{place}} {{name}} {{context}} {{question}}")
    payload = {"tone": "mild {{name}}", "place": "{{tone}}", "name": name}
    turned = {slot: payload[slot] for slot in order}
    large = Budget(50_000)
    one = request_.assemble(counter, template=template, payload=payload, budget=large)
    two = request_.assemble(counter, template=template, payload=turned, budget=large)
    assert one == two
    assert _bytes(one) == _bytes(two)


@given(requests())
def test_whatever_goes_in_is_in_the_fingerprint(request_: Request) -> None:
    counter = request_.counter
    large = replace(request_, budget=Budget(50_000))
    prompt = large.assemble(counter)
    assert prompt.hashes["template"] == request_.template.hash
    others = [
        large.assemble(counter, query=replace(request_.query, text=request_.query.text + "?")),
        large.assemble(counter, history=(*request_.history, Message("assistant", "More."))),
        large.assemble(counter, budget=Budget(50_001)),
        large.assemble(counter, tools=({"name": "other"},)),
        large.assemble(counter, template=Template.parse("Say: {{question}}"), payload={}),
    ]
    if request_.candidates:
        others.append(large.assemble(counter, candidates=request_.candidates[:-1], called=False))
    fingerprints = {prompt.fingerprint, *(other.fingerprint for other in others)}
    has_place = "context" in request_.template.variables
    assert len(fingerprints) >= len(others) + (1 if has_place or not request_.called else 0)
