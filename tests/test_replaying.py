"""Recorded prompts: replayed byte for byte, whatever has become of what they were made of (law 6)."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import assume, given, settings

from ctxkit import Budget, ContextEngine, Document
from ctxkit.assembly import assemble
from ctxkit.assembly.pieces import candidate_form
from ctxkit.documents import GAP, OLD_GAP, Candidate, Chunk, Span
from ctxkit.errors import BudgetError, ConfigError, NotFoundError, ProviderError, StorageError
from ctxkit.history import TailWindow
from ctxkit.messages import Message
from ctxkit.prompts import Completion, CompletionOptions, Prompt
from ctxkit.replaying import Request, changes_since, read_prompt, record_prompt
from ctxkit.storage import Store
from ctxkit.templates import Template
from ctxkit.testing import EchoModel
from tests.assembly.requests import Request as Asked
from tests.assembly.requests import requests

NOW = datetime(2026, 11, 30, tzinfo=UTC)
SOURCE = "--- system ---\nSpeak {{tone}}.\n--- history ---\n--- user ---\n{{context}}\n\n{{question}}"
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture
def store(tenant_store: Store) -> Store:
    return tenant_store


def fill(engine: ContextEngine) -> ContextEngine:
    engine.ingest_documents(
        [
            Document.from_text("Keys rotate monthly. " * 20, source="keys.md"),
            Document.from_text("Old keys stay valid 😀 for a day. " * 20, source="old.md"),
            Document.from_text("Keys are made by the vault. " * 60, source="vault.md"),
        ]
    )
    engine.templates.push("answer", SOURCE)
    engine.templates.label("answer", "production", 1)
    engine.store.payloads.put("brand", {"tone": "brief"})
    engine.store.sessions.append("alice", [Message("user", "Hi"), Message("assistant", "Hello.", name="bot")])
    return engine


@pytest.fixture
def engine(store: Store) -> ContextEngine:
    return fill(ContextEngine(store, embedder=None))


def record(engine: ContextEngine, **options: Any) -> Prompt:
    given = {"session": "alice", "template": "answer@production", "payload": "brand", "budget": Budget(600), "now": NOW}
    return engine.assemble("When do keys rotate?", **{**given, "record": True, **options})


def same(prompt: Prompt, other: Prompt) -> bool:
    return (
        json.dumps(prompt.messages) == json.dumps(other.messages)
        and prompt == other
        and prompt.dropped == other.dropped
        and prompt.turns == other.turns
    )


def test_a_prompt_is_replayed_whatever_changes(engine: ContextEngine) -> None:
    prompt = record(engine, tools=[TOOL], budget=Budget(430))
    assert prompt.dropped, "one that left something out"
    assert same(engine.replay(prompt.fingerprint), prompt)
    assert changes_since(engine.store, read_prompt(engine.store, prompt.fingerprint)) == []

    engine.ingest_documents([Document.from_text("Keys never rotate.", source="keys.md")])
    engine.store.documents.delete([info.id for info in engine.store.documents.list() if info.source == "old.md"])
    engine.templates.push("answer", SOURCE.replace("Speak", "Talk"))
    engine.templates.label("answer", "production", 2)
    engine.store.payloads.put("brand", {"tone": "long"})
    engine.store.sessions.append("alice", [Message("user", "More")])
    recorded = read_prompt(engine.store, prompt.fingerprint[:8])
    assert same(recorded.prompt, prompt)
    assert sorted(changes_since(engine.store, recorded)) == [
        "document keys.md has another text at 0-419",
        "document old.md is gone",
        "payload brand is version 2 now, with another content",
        "session alice went on: messages 3 to 3",
        "template answer@production is version 2 now, with another content",
    ]
    engine.store.sessions.delete("alice")
    assert "session alice is not the dialogue that it was" in changes_since(engine.store, recorded)
    assert same(asyncio.run(engine.areplay(prompt.fingerprint)), prompt)


def test_what_is_recorded_assembles_to_the_same_prompt(engine: ContextEngine) -> None:
    prompt = record(engine)
    recorded = read_prompt(engine.store, prompt.fingerprint)
    assert (recorded.request.session, recorded.request.history, recorded.request.now) == ("alice", 2, NOW)
    assert (recorded.template, recorded.payload) == (engine.templates.get("answer").content, {"tone": "brief"})
    assert engine.assemble(**recorded.arguments) == prompt
    again = engine.assemble(
        **{**recorded.arguments, "candidates": recorded.candidates, "template": Template.parse(SOURCE)}
    )
    assert again.fingerprint == prompt.fingerprint and again.messages == prompt.messages


def test_nothing_is_recorded_unless_asked_for(engine: ContextEngine) -> None:
    prompt = record(engine, record=False)
    assert engine.store.runs.list() == []
    with pytest.raises(NotFoundError) as caught:
        engine.replay(prompt.fingerprint)
    assert "record=True" in caught.value.remedy


def test_what_is_no_recorded_prompt(engine: ContextEngine) -> None:
    record(engine)
    for digits in ("", "abc", "x" * 64, "0" * 64, "%", "a' OR '1'='1", "0" * 65, "\x00"):
        with pytest.raises(NotFoundError) as caught:
            engine.replay(digits)
        assert caught.value.remedy


def test_pieces_are_shared_and_leave_with_the_last_prompt_that_needs_them(engine: ContextEngine) -> None:
    runs = engine.store.runs
    first = record(engine)
    alone = runs.statistics()
    assert record(engine).fingerprint == first.fingerprint
    assert runs.statistics() == alone, "the same prompt is recorded once"
    second = engine.assemble("When do old keys go?", session="alice", budget=Budget(600), record=True)
    both = runs.statistics()
    assert both["runs"] == 2 and both["pieces"] < 2 * alone["pieces"]
    third = engine.assemble("Who makes keys?", budget=Budget(600), record=True)
    assert [info.fingerprint for info in runs.list()] == [p.fingerprint for p in (third, second, first)]
    assert [info.fingerprint for info in runs.list(session="alice", limit=1)] == [second.fingerprint]
    assert runs.prune(session="alice") == 2
    assert engine.replay(third.fingerprint) == third
    assert runs.prune(before=datetime(2026, 1, 1, tzinfo=UTC)) == 0
    assert runs.prune(before=datetime.now(UTC)) == 1
    assert runs.statistics() == {"runs": 0, "pieces": 0, "characters": 0}
    for wrong in ({}, {"before": datetime(2026, 1, 1)}):
        with pytest.raises(ConfigError):
            runs.prune(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("UPDATE blobs SET content = replace(content, 'Keys rotate monthly', 'Keys rotate weekly!')", "the piece"),
        ("UPDATE runs SET content = replace(content, '\"token_count\":', '\"tokens\":')", "cannot be read"),
        ("UPDATE runs SET content = replace(content, 'When do keys', 'When do cats')", "question"),
        ("UPDATE runs SET content = replace(content, '\"max_tokens\":600', '\"max_tokens\":601')", "budget"),
        ("DELETE FROM run_blobs", "cannot be read"),
    ],
)
def test_what_was_tampered_with_is_never_replayed(change: str, problem: str) -> None:
    with Store.open("sqlite://") as store:
        engine = fill(ContextEngine(store, embedder=None))
        prompt = record(engine)
        with store._database._transaction(write=True) as connection:
            assert connection.exec_driver_sql(change).rowcount
        with pytest.raises(StorageError, match=problem) as caught:
            engine.replay(prompt.fingerprint)
        assert caught.value.remedy


def test_an_answer_is_recorded_before_the_model_is_asked(engine: ContextEngine) -> None:
    class Broken(EchoModel):
        def complete(self, prompt: Prompt, options: CompletionOptions) -> Completion:
            raise ProviderError("the wire was cut", remedy="Ask again.")

    with pytest.raises(ProviderError):
        engine.ask("When do keys rotate?", model=Broken(), record=True)
    (info,) = engine.store.runs.list()
    assert (info.question, info.template) == ("When do keys rotate?", "default")
    answer = engine.ask("When do keys rotate?", model=EchoModel(), record=True)
    assert engine.replay(info.fingerprint).messages == answer.prompt.messages
    assert len(engine.store.runs.list()) == 1


def test_a_payload_by_reference_is_the_payload_itself(engine: ContextEngine) -> None:
    by_value = record(engine, payload={"tone": "brief"})
    digest = engine.store.payloads.resolve("brand").hash
    for reference in ("brand", "brand@1", f"sha256:{digest}"):
        prompt = record(engine, payload=reference)
        assert (prompt.fingerprint, prompt.hashes["payload"]) == (by_value.fingerprint, digest)
    with pytest.raises(NotFoundError):
        record(engine, payload="nothing")


def texts_of(prompt: Prompt, candidates: Sequence[Candidate]) -> str:
    """All the texts that a record holds."""
    sources = (*(each.chunk.text for each in candidates), *(str(each.chunk.metadata) for each in candidates))
    calls = "".join(call.arguments for turn in prompt.turns for call in turn.tool_calls)
    return "".join((*(turn.text for turn in prompt.turns), *sources, calls))


MEMORY = Store.open("sqlite://")
NUMBERS = itertools.count()


@settings(max_examples=max(5, settings().max_examples // 10))
@given(requests())
def test_any_prompt_is_replayed_or_refused_as_a_whole(asked: Asked) -> None:
    store = MEMORY.for_tenant(str(next(NUMBERS)))
    try:
        prompt = asked.assemble(asked.counter)
    except BudgetError:
        assume(asked.budget.section("question").max is None)
        prompt = asked.assemble(asked.counter, budget=Budget(4_000))
    used = asked.candidates if asked.template.variables.get("context") or not asked.called else ()
    request = Request.of(asked.query, len(asked.history), asked.template, asked.payload, None, ())
    parts = {"template": asked.template, "payload": asked.payload, "candidates": used}
    if "\x00" in texts_of(prompt, used):
        with pytest.raises(StorageError, match="NUL"):
            record_prompt(store, prompt, request, **parts)
        assert store.runs.statistics()["runs"] == 0
        return
    record_prompt(store, prompt, request, **parts)
    recorded = read_prompt(store, prompt.fingerprint)
    assert same(recorded.prompt, prompt)
    assert repr(recorded.prompt.segments) == repr(prompt.segments)
    again = assemble(
        replace(asked.query, text=recorded.request.question),
        template=asked.template,
        payload=recorded.payload,
        history=asked.history,
        candidates=recorded.candidates,
        budget=prompt.budget,
        counter=asked.counter,
        window=asked.window,
        tools=prompt.tools,
    )
    assert again.fingerprint == prompt.fingerprint and again.messages == prompt.messages


def test_windows_and_stages_are_described_by_what_they_are(engine: ContextEngine) -> None:
    prompt = record(engine)
    stages = read_prompt(engine.store, prompt.fingerprint).request.stages
    assert [stage[0].rpartition(".")[2] for stage in stages] == ["Hybrid", type(TailWindow()).__name__]


@pytest.mark.parametrize("gap", [GAP, OLD_GAP, ""])
def test_prompts_are_replayed_with_the_mark_they_were_recorded_with(store: Store, gap: str) -> None:
    document = Document.from_text("Keys rotate monthly. Lunch is at noon. Old keys stay valid.", source="keys.md")
    chunk = Chunk.of(document, Span(0, len(document.text)), 16)
    whole = Candidate(Chunk.of(document, Span(0, 20), 5), {"final": 0.4})
    pruned = Candidate(chunk, {"final": 0.9}).keeping([Span(0, 20), Span(39, 59)], gap=gap)
    engine = ContextEngine(store, embedder=None)
    for found in ([pruned], [pruned, whole], [whole]):
        prompt = engine.assemble("When do keys rotate?", candidates=found, budget=Budget(600), record=True)
        recorded = read_prompt(store, prompt.fingerprint)
        assert same(recorded.prompt, prompt)
        again = engine.assemble(**{**recorded.arguments, "candidates": recorded.candidates})
        assert (again.fingerprint, again.messages) == (prompt.fingerprint, prompt.messages)
    assert candidate_form(pruned, str).get("gap", OLD_GAP) == gap, "a record without a mark has the old one"
