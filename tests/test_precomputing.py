"""Chunks that an engine reads ahead: used in whatever order they come, of one template, one tenant, whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from ctxkit import ContextEngine, Document
from ctxkit.answers import Answer
from ctxkit.errors import ConfigError
from ctxkit.models import LocalModel
from ctxkit.models.chunk_layout import lay_out
from ctxkit.precomputing import learn_chunks
from ctxkit.prompts import CompletionOptions

TEXTS = ["Keys rotate monthly in the vault.", "The harbour opens at six.", "Alice owns the red ledger."]
OPTIONS = CompletionOptions(max_tokens=4)


@pytest.fixture(scope="module")
def model(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> LocalModel:
    return LocalModel(tiny_folder, kv=tmp_path_factory.mktemp("kv"), kv_chunks=True, tenant="default")


@pytest.fixture(scope="module")
def engine(model: LocalModel) -> Iterator[ContextEngine]:
    with ContextEngine.open("sqlite://", tenant="default", embedder=None) as engine:
        engine.ingest_documents([Document.from_text(text, source=f"{text[:4]}.md") for text in TEXTS])
        found = learn_chunks(
            (candidate.chunk for candidate in engine.search("the keys harbour ledger", k=3)),
            model=model,
            cache=model.chunks,  # type: ignore[arg-type]
            assemble=lambda chosen: engine.assemble("?", model=model, candidates=chosen),
            neighbours=("Nobody asks about this.",),
        )
        assert (found.chunks, found.stored) == (3, 3), found.skipped
        yield engine


def ask(engine: ContextEngine, model: LocalModel, order: list[int], **options: Any) -> Answer:
    candidates = engine.search("the keys harbour ledger", k=3)
    chosen = [candidates[number] for number in order]
    return engine.ask("who owns it?", model=model, candidates=chosen, options=OPTIONS, **options)


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [1]])
def test_chunks_are_used_in_any_order_and_said(engine: ContextEngine, model: LocalModel, order: list[int]) -> None:
    answer = ask(engine, model, order)
    assert model.chunks is not None
    use = model.chunks.last
    assert (use.chunks, use.found) == (len(order), len(order))
    assert answer.completion.usage.cached_tokens == use.prefix + use.loaded
    assert answer.completion.usage.prompt_tokens == use.tokens
    shown = answer.prompt.explain()
    assert "chunk reuse" in shown
    assert f"{use.loaded} loaded, {use.recomputed} recomputed" in shown


def test_a_chunk_whose_text_was_pruned_is_read(engine: ContextEngine, model: LocalModel) -> None:
    one, two, _ = engine.search("the keys harbour ledger", k=3)
    span = one.chunk.span
    pruned = replace(one, kept=(type(span)(span.start, span.start + 8),))
    engine.ask("who owns it?", model=model, candidates=[pruned, two], options=OPTIONS)
    assert model.chunks is not None
    assert (model.chunks.last.chunks, model.chunks.last.found) == (2, 1)


def test_a_history_before_the_context_has_its_chunks_read(engine: ContextEngine, model: LocalModel) -> None:
    from ctxkit.messages import Message

    engine.store.sessions.append("s", [Message("user", "hello"), Message("assistant", "good day")])
    ask(engine, model, [0, 1], session="s")
    assert model.chunks is not None
    assert model.chunks.last.found == 0
    assert "no chunk" in model.chunks.last.reason


def test_the_layout_names_the_ids_of_the_texts(engine: ContextEngine, model: LocalModel) -> None:
    prompt = engine.assemble("who owns it?", model=model)
    layout = lay_out(model.counter, prompt)
    assert list(layout.ids) == model.encode(prompt)
    contexts = [segment.text for segment in prompt.segments if segment.section == "context" and segment.sources]
    decoded = [model.counter.tokenizer.decode(list(layout.ids[span.start : span.end])) for span in layout.chunks]
    assert decoded == contexts
    assert contexts
    before = layout.ids[: layout.prefix]
    assert lay_out(model.counter, engine.assemble("?", model=model)).ids[: layout.prefix] == before


def test_a_model_that_keeps_no_chunks_is_refused(engine: ContextEngine, tiny_folder: Path) -> None:
    with pytest.raises(ConfigError, match="keeps no chunks"):
        engine.precompute(LocalModel(tiny_folder))
    with pytest.raises(ConfigError, match="without kv"):
        LocalModel(tiny_folder, kv_chunks=True)


def test_an_engine_precomputes_what_it_then_uses(tiny_folder: Path, tmp_path: Path) -> None:
    parts: dict[str, Any] = {"embedder": None, "kv": tmp_path / "kv", "kv_chunks": True, "tenant": "a"}
    name = f"local:{tiny_folder}"
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with ContextEngine.open(url, **parts) as engine:
        engine.ingest_documents([Document.from_text(text, source=f"{text[:4]}.md") for text in TEXTS])
        report = engine.precompute(name)
        assert report.stored == len(TEXTS), report.skipped
        again = engine.precompute(name)
        assert (again.stored, again.there) == (0, len(TEXTS))
    with ContextEngine.open(url, **parts) as engine:
        engine.ask("who owns the ledger?", model=name, options=OPTIONS)
        model: Any = engine.model(name)
        assert model.chunks.last.found == model.chunks.last.chunks > 0
    with ContextEngine.open(url, **{**parts, "tenant": "b"}) as engine:
        engine.ingest_documents([Document.from_text(text, source=f"{text[:4]}.md") for text in TEXTS])
        engine.ask("who owns the ledger?", model=name, options=OPTIONS)
        other: Any = engine.model(name)
        assert other.chunks.last.found == 0
