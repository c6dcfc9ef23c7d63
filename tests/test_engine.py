"""The engine from the outside, on both databases, with a fake model whose counter is exact."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ctxkit import (
    Answer,
    Budget,
    BudgetError,
    Candidate,
    CompletionOptions,
    ContextEngine,
    Document,
    Message,
    Query,
    Section,
    Span,
)
from ctxkit.errors import ConfigError, EmbeddingError, StorageError
from ctxkit.reranking import TimeDecay, TopK
from ctxkit.storage import Store
from ctxkit.testing import EchoModel, HashEmbedder

NOW = datetime(2026, 11, 30, tzinfo=UTC)
NOTES = {
    "keys.md": "# Keys\n\nTo rotate a signing key, run rotate and restart the service.\n",
    "budget.md": "# Budgets\n\nA budget is counted in tokens of the target model.\n",
    "fruit.md": "# Fruit\n\nBananas grow in warm places.\n",
}


@pytest.fixture
def engine(store: Store) -> ContextEngine:
    engine = ContextEngine(store, embedder=HashEmbedder())
    report = engine.ingest_documents(
        Document.from_text(text, source=source, title=source, created_at=NOW - timedelta(days=days))
        for days, (source, text) in enumerate(NOTES.items())
    )
    assert (report.added, report.failed) == (3, [])
    return engine


def test_ask_cites_spans_that_read_as_they_say(engine: ContextEngine) -> None:
    answer = engine.ask("how do I rotate a key?", model=EchoModel(), budget=Budget(2_000, reserve_output=200))
    assert isinstance(answer, Answer)
    assert answer.text
    assert answer.citations[0].source.source == "keys.md"
    for citation in answer.citations:
        text = NOTES[citation.source.source]
        assert text[citation.source.span.start : citation.source.span.end] == citation.text
    assert answer.prompt.token_count == EchoModel().counter.count_prompt(answer.prompt.turns)
    assert answer.completion.usage.prompt_tokens == answer.prompt.token_count <= answer.prompt.budget.available


def test_a_session_remembers_and_reading_changes_nothing(engine: ContextEngine) -> None:
    model = EchoModel()
    before = engine.assemble("hello?", session="s", model=model)
    assert engine.store.sessions.messages("s") == []
    assert engine.assemble("hello?", session="s", model=model) == before
    engine.ask("my name is Ada", model=model, session="s")
    engine.ask("what is my name?", model=model, session="s")
    stored = engine.store.sessions.messages("s")
    assert [message.role for message in stored] == ["user", "assistant"] * 2
    assert stored[0].text == "my name is Ada"
    prompt = engine.assemble("and now?", session="s", model=model)
    assert any(segment.message_id == stored[0].id for segment in prompt.segments)


def test_streaming_gives_the_same_answer(engine: ContextEngine) -> None:
    model = EchoModel()
    whole = engine.ask("how do I rotate a key?", model=model)
    *deltas, last = engine.stream("how do I rotate a key?", model=model)
    assert isinstance(last, Answer)
    assert "".join(delta.text for delta in deltas) == last.text == whole.text
    assert last.citations == whole.citations

    async def gather() -> tuple[list[object], Answer]:
        steps = [step async for step in engine.astream("how do I rotate a key?", model=model)]
        return steps, await engine.aask("how do I rotate a key?", model=model)

    steps, asked = asyncio.run(gather())
    assert steps[-1].text == asked.text == whole.text


def test_async_twins(engine: ContextEngine, tmp_path: Path) -> None:
    (tmp_path / "new.md").write_text("Cherries are red.")

    async def work() -> tuple[list[Candidate], int]:
        report = await engine.aingest(tmp_path)
        prompt = await engine.aassemble("what colour are cherries?", budget=500)
        assert prompt.token_count <= prompt.budget.available
        return await engine.asearch("cherries red", 1), report.added

    found, added = asyncio.run(work())
    assert added == 1
    assert found[0].text == "Cherries are red."


def test_stages_run_in_order_and_what_they_drop_is_traced(engine: ContextEngine) -> None:
    class Drop:
        def __call__(self, query: Query, candidates: Sequence[Candidate]) -> list[Candidate]:
            return [candidate for candidate in candidates if "fruit" not in candidate.chunk.metadata["source"]]

    chosen = ContextEngine(
        engine.store,
        embedder=HashEmbedder(),
        stages=[TimeDecay(half_life=timedelta(days=1)), Drop()],
    )
    prompt = chosen.assemble("bananas, keys and budgets", now=NOW, budget=2_000)
    ran = [record.stage for record in prompt.trace.records]
    start = ran.index("retrieval")
    assert ran[start : start + 3] == ["retrieval", "TimeDecay", "Drop"]
    assert next(item.reason for item in prompt.dropped if item.section == "context") == "dropped by Drop"
    assert all(source.source != "fruit.md" for source in prompt.sources)


def test_the_room_reaches_the_stages(engine: ContextEngine) -> None:
    rooms: list[int | None] = []

    class Look:
        def __call__(self, query: Query, candidates: Sequence[Candidate]) -> list[Candidate]:
            rooms.append(query.room)
            return list(candidates)

    chosen = ContextEngine(engine.store, embedder=HashEmbedder(), stages=[Look()])
    chosen.assemble("keys", budget=Budget(1_000, reserve_output=200))
    (room,) = rooms
    assert room is not None and 0 < room < 800


def test_a_changed_recipe_chunks_again(engine: ContextEngine) -> None:
    documents = [Document.from_text(text, source=source, title=source) for source, text in NOTES.items()]
    other = ContextEngine(engine.store, embedder=HashEmbedder(32))
    assert other.ingest_documents(documents).updated == 3
    assert other.ingest_documents(documents).unchanged == 3


def test_one_document_that_cannot_be_embedded_does_not_take_its_batch_along(store: Store) -> None:
    class Picky(HashEmbedder):
        def embed(self, texts: Sequence[str]):
            if any("poison" in text for text in texts):
                raise EmbeddingError("cannot embed this", subject="poison", remedy="Leave it out.")
            return super().embed(texts)

    engine = ContextEngine(store, embedder=Picky())
    report = engine.ingest_documents(
        [Document.from_text(text, source=text) for text in ("good one", "poison", "good two")]
    )
    assert (report.added, len(report.failed)) == (2, 1)
    assert report.failed[0][0] == "poison"


def test_blank_documents_and_documents_that_no_database_holds(store: Store) -> None:
    engine = ContextEngine(store, embedder=HashEmbedder())
    report = engine.ingest_documents(
        [
            Document.from_text("", source="empty"),
            Document.from_text(" \n", source="blank"),
            Document.from_text("a\x00b", source="nul"),
            Document.from_text("a\ud800b", source="surrogate"),
            Document.from_text("fine", source="fine"),
        ]
    )
    assert {source for source, _ in report.failed} == {"nul", "surrogate"}
    assert report.added == 3
    assert [candidate.text for candidate in engine.search("fine")] == ["fine"]


def test_without_an_embedder_search_is_lexical(store: Store) -> None:
    engine = ContextEngine(store, embedder=None)
    engine.ingest_documents([Document.from_text("rotate the key", source="a")])
    assert engine.search("rotating keys")[0].scores.keys() >= {"lexical", "final"}


def test_a_budget_that_is_too_small_names_the_parts(engine: ContextEngine) -> None:
    with pytest.raises(BudgetError) as caught:
        engine.assemble("why? " * 400, budget=Budget(100))
    assert caught.value.parts["question"] > 100
    assert caught.value.excess > 0


def test_wrong_parameters(store: Store) -> None:
    with pytest.raises(ConfigError):
        ContextEngine(store, candidates=0)
    with pytest.raises(ConfigError, match="recursive"):
        _ = ContextEngine(store, chunker="nonsense").chunker


def test_threads_share_an_engine(engine: ContextEngine) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            engine.ingest_documents([Document.from_text(f"Fact {number} about keys.", source=f"fact-{number}")])
            assert engine.search("keys")
            engine.ask("keys?", model=EchoModel(), session=f"s{number % 2}")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(engine.store.documents.list()) == 11
    assert sum(len(engine.store.sessions.messages(f"s{n}")) for n in (0, 1)) == 16


def test_history_given_to_assemble_is_valid_whatever_was_stored(engine: ContextEngine) -> None:
    engine.store.sessions.append("broken", [Message("tool", "orphan", tool_call_id="gone"), Message("assistant", "hi")])
    prompt = engine.assemble("keys?", session="broken", model=EchoModel())
    assert all(turn.role != "tool" for turn in prompt.turns)


def iterate(values: Sequence[Document]) -> Iterator[Document]:
    yield from values


def test_documents_may_come_from_a_generator(store: Store) -> None:
    engine = ContextEngine(store, embedder=None)
    many = [Document.from_text(f"Document number {n}.", source=f"d{n}") for n in range(70)]
    assert engine.ingest_documents(iterate(many)).added == 70
    assert engine.ingest_documents(iterate(many)).unchanged == 70


def test_pruning_deletes_only_what_was_a_file_and_is_gone(store: Store, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    engine = ContextEngine(store, embedder=None)
    given = ["https://example.com/a", "crm:contact/17", "stdin.txt", ""]
    engine.ingest_documents(Document.from_text(f"given {source}", source=source) for source in given)
    docs = tmp_path / "docs"
    (docs / "sub").mkdir(parents=True)
    (docs / "a.md").write_text("Alpha.")
    (docs / "sub" / "b.md").write_text("Beta.")
    assert engine.ingest(".").added == 2
    (docs / ".gitignore").write_text("sub/\n")
    assert engine.ingest(".", prune=True).deleted == 0, "an ignored file is still a file"

    def arrive(source: str, report: object) -> None:
        (docs / "0new.md").write_text("New.")
        ContextEngine(store, embedder=None).ingest("docs/0new.md")

    (docs / "a.md").write_text("Alpha, changed.")
    assert engine.ingest(".", prune=True, on_document=arrive).deleted == 0, "what arrives meanwhile stays"
    (docs / "a.md").unlink()
    assert engine.ingest(".", prune=True).deleted == 1
    assert {info.source for info in store.documents.list()} == {*given, "docs/sub/b.md", "docs/0new.md"}


def test_an_empty_tenant_is_refused_and_not_the_default(sqlite_url: str) -> None:
    with pytest.raises(StorageError):
        ContextEngine.open(sqlite_url, tenant="", embedder=None)


def test_citations_quote_what_the_model_saw(engine: ContextEngine) -> None:
    class Slow(EchoModel):
        def complete(self, prompt, options=None):
            engine.ingest_documents([Document.from_text("Totally different.", source="keys.md")])
            return super().complete(prompt, options)

    answer = engine.ask("how do I rotate a key?", model=Slow())
    cited = next(citation for citation in answer.citations if citation.source.source == "keys.md")
    assert cited.text in NOTES["keys.md"]
    assert "rotate" in cited.text
    chunk = engine.search("rotate")[0].chunk
    made_up = Candidate(replace(chunk, id="x:0-5", document_id="x", text="never stored"[:5], span=Span(0, 5)))
    assert engine.ask("keys?", model=EchoModel(), candidates=[made_up]).citations[0].text == "never"


@pytest.mark.parametrize(("question", "session"), [("keys\x00?", "s"), ("keys?", "s" * 600)])
def test_what_cannot_be_stored_is_refused_before_the_model_is_asked(
    engine: ContextEngine, question: str, session: str
) -> None:
    class Never(EchoModel):
        def complete(self, prompt, options=None):
            raise AssertionError("the model was asked")

    with pytest.raises(StorageError):
        engine.ask(question, model=Never(), session=session)


def test_a_question_that_is_stored_already_is_not_stored_twice(engine: ContextEngine) -> None:
    engine.store.sessions.append("s", [Message("user", "keys?")])
    engine.ask("keys?", model=EchoModel(), session="s")
    assert [message.role for message in engine.store.sessions.messages("s")] == ["user", "assistant"]


def test_one_document_with_bad_metadata_does_not_stop_the_batch(store: Store) -> None:
    engine = ContextEngine(store, embedder=None)
    circle: dict[str, object] = {}
    circle["self"] = circle
    engine.ingest_documents([Document.from_text("t", source="z"), Document.from_text("t", source="y")])
    report = engine.ingest_documents(
        [
            Document.from_text("t", source="z", metadata={1: "a", "b": 2}),
            Document.from_text("t", source="y", metadata=circle),
            Document.from_text("good", source="x"),
        ]
    )
    assert {source for source, _ in report.failed} == {"z", "y"}
    assert report.added == 1


def test_a_budget_over_the_models_window_is_refused(engine: ContextEngine) -> None:
    with pytest.raises(ConfigError, match="window"):
        engine.assemble("keys?", model=EchoModel(window=1_000), budget=2_000)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda engine: ContextEngine(engine.store, stages=[TimeDecay]),
        lambda engine: ContextEngine(engine.store, stages=[3]),
        lambda engine: ContextEngine(engine.store, stages=["nonsense"]),
        lambda engine: ContextEngine(engine.store, stages="sentence_compressor"),
        lambda engine: ContextEngine(engine.store, stages=TopK(k=3)),
        lambda engine: ContextEngine(engine.store, embedder=None, stages=[lambda *_: None]).search("x"),
        lambda engine: ContextEngine(engine.store, embedder=HashEmbedder).search("x"),
        lambda engine: ContextEngine(engine.store, candidates=1.5),
        lambda engine: engine.search("x", k=None),
        lambda engine: engine.search(None),
        lambda engine: engine.search("x", filters=[1]),
        lambda engine: engine.ingest(None),
        lambda engine: engine.ingest(""),
        lambda engine: engine.ingest_documents([{"text": "x"}]),
        lambda engine: engine.ingest_documents(Document.from_text("x")),
        lambda engine: engine.store.documents.delete("abc"),
        lambda engine: engine.store.documents.states("abc"),
        lambda engine: engine.assemble("x", candidates="abc"),
        lambda engine: engine.assemble("x", candidates=[3]),
        lambda engine: engine.store.sessions.append("s", [{"role": "user", "content": "x"}]),
        lambda engine: engine.assemble("x", budget="many"),
        lambda engine: Budget(1.5),
        lambda engine: Budget(float("inf")),
        lambda engine: Budget(10, sections={"context": 5}),
        lambda engine: Section(min=float("nan")),
        lambda engine: Section(share="half"),
        lambda engine: CompletionOptions(stop="END"),
        lambda engine: CompletionOptions(timeout=float("nan")),
        lambda engine: CompletionOptions(temperature=None),
        lambda engine: Document.from_text(b"x"),
        lambda engine: Document.from_text("x", created_at="2020"),
        lambda engine: Document.from_text("x", source=3),
        lambda engine: Query("x", now="today"),
    ],
)
def test_wrong_types_say_what_is_taken(engine: ContextEngine, wrong) -> None:
    with pytest.raises(ConfigError) as caught:
        wrong(engine)
    assert caught.value.remedy


def test_a_prompt_with_tools_that_the_formula_does_not_cover_is_not_called_exact(engine: ContextEngine) -> None:
    plain = {"type": "object", "properties": {"key": {"type": "string", "description": "Which key."}}}
    covered = {"type": "function", "function": {"name": "f", "description": "Does.", "parameters": plain}}
    assert engine.assemble("keys?", tools=[covered]).exact
    nested = {**plain, "additionalProperties": {"type": "string"}}
    uncovered = {"type": "function", "function": {"name": "f", "description": "Does.", "parameters": nested}}
    assert not engine.assemble("keys?", tools=[uncovered]).exact
