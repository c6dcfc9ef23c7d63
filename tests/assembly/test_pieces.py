"""Prompts and candidates as JSON and back."""

from __future__ import annotations

import json
from typing import Any

from ctxkit.assembly import assemble
from ctxkit.assembly.pieces import candidate_form, candidate_of, prompt_form, prompt_of
from ctxkit.documents import Query, Span, content_hash
from ctxkit.history import TailWindow
from ctxkit.models import get_chat_counter
from ctxkit.prompts import Budget
from ctxkit.templates import DEFAULT_TEMPLATE
from ctxkit.testing.stages import make_candidates


def test_pruned_words_come_back_as_they_were() -> None:
    (candidate,) = make_candidates(["the key is rotated every month"])
    pruned = candidate.keeping([Span(7, 14), Span(17, 25)], gap="")
    pieces: dict[str, Any] = {}

    def piece(value: Any) -> str:
        pieces[content_hash(value)] = value
        return content_hash(value)

    form = json.loads(json.dumps(candidate_form(pruned, piece)))
    assert candidate_of(form, pieces) == pruned
    prompt = assemble(
        Query("which key?"), template=DEFAULT_TEMPLATE, payload={}, history=[], candidates=[pruned], budget=Budget(500),
        counter=get_chat_counter("o200k_base"), window=TailWindow(),
    )  # fmt: skip
    form = json.loads(json.dumps(prompt_form(prompt, piece)))
    again = prompt_of(prompt.fingerprint, form, pieces)
    assert again.segments == prompt.segments
    assert any(segment.gap == "" and segment.text == "the key rotated" for segment in again.segments)
