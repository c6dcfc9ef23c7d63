"""How documents are cut and named where nobody says otherwise, and the ways back."""

from __future__ import annotations

from typing import Any

import pytest

from ctxkit import ContextEngine, Document
from ctxkit.chunking import RecursiveChunker, SemanticGraphChunker
from ctxkit.composing import chunker_of
from ctxkit.errors import ConfigError
from ctxkit.graph import LightExtractor
from ctxkit.storage import Store

LETTER = Document.from_text("Today Ada Lovelace wrote to Charles Babbage.", source="letter.md")


def test_an_engine_cuts_by_ties_and_builds_the_graph(store: Store) -> None:
    engine = ContextEngine(store, embedder=None)
    assert isinstance(engine.chunker, SemanticGraphChunker)
    assert engine.ingest_documents([LETTER]).added == 1
    assert [entity.text for entity in engine.search("Ada")[0].chunk.entities] == ["Ada Lovelace", "Charles Babbage"]
    assert store.graph.exists()


@pytest.mark.parametrize(
    "chunker", ["graph", "recursive", SemanticGraphChunker(extractor=None)], ids=["graph", "recursive", "own"]
)
@pytest.mark.parametrize("extractor", [None, "none"])
def test_without_an_extractor_there_is_no_graph(store: Store, chunker: Any, extractor: str | None) -> None:
    engine = ContextEngine(store, embedder=None, chunker=chunker, extractor=extractor)
    engine.ingest_documents([LETTER])
    assert engine.search("Ada")[0].chunk.entities == ()
    assert not store.graph.exists()


def test_the_extractor_that_is_asked_for_is_the_one_that_names(store: Store) -> None:
    class Shouting:
        def extract(self, texts: Any) -> Any:
            for _ in texts:
                yield ()

    assert isinstance(chunker_of("graph", LightExtractor()), SemanticGraphChunker)
    ContextEngine(store, embedder=None, extractor=Shouting()).ingest_documents([LETTER])
    assert not store.graph.exists(), "the graph chunker does not fall back on its own"


def test_a_store_of_the_old_recipe_goes_on_working_and_is_brought_up_to_date(store: Store) -> None:
    old = ContextEngine(store, embedder=None, chunker=RecursiveChunker(), extractor=None)
    old.ingest_documents([LETTER])
    engine = ContextEngine(store, embedder=None)
    assert engine.search("Lovelace")[0].chunk.document_id == LETTER.id
    report = engine.ingest_documents([LETTER])
    assert (report.updated, report.unchanged) == (1, 0)
    report = engine.ingest_documents([LETTER])
    assert (report.updated, report.unchanged) == (0, 1)


def test_an_overlap_is_honoured_or_refused(store: Store) -> None:
    assert chunker_of("recursive", "light", overlap=4, max_tokens=16) == RecursiveChunker(overlap=4, max_tokens=16)
    assert chunker_of("graph", "none", max_tokens=16) == SemanticGraphChunker(extractor=None, max_tokens=16)
    with pytest.raises(ConfigError, match="the graph chunker has no overlap") as caught:
        chunker_of("graph", "light", overlap=4)
    assert "--chunker recursive" in str(caught.value.remedy)
