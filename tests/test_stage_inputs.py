"""Every stage that takes a document, a query, candidates, messages or texts says in words that it was given another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from ctxkit import chunking, compression, graph, history, recall, reranking, retrieval
from ctxkit.documents import Candidate, Chunk, Query, Span
from ctxkit.errors import ConfigError
from ctxkit.stage_inputs import each_text
from ctxkit.storage import Store
from ctxkit.testing import HashEmbedder
from ctxkit.tokens import get_counter

CHUNK = Chunk("d:0-5", "d", Span(0, 5), "Hello", 1)
COUNTER = get_counter("o200k_base")
STAGES = [
    reranking.Diversity(),
    reranking.Position(),
    reranking.Threshold(),
    reranking.TimeDecay(half_life=60),
    reranking.TopK(),
    compression.Cascade(fine=reranking.TopK()),
    compression.Deduplicate(),
    compression.SentenceCompressor(counter=COUNTER),
    compression.WorthIt(stage=reranking.TopK(), compressing=1.0, reading=1.0),
    retrieval.Stretches(),
]
CHUNKERS = [
    chunking.RecursiveChunker(),
    chunking.SemanticGraphChunker(),
    chunking.SentenceChunker(),
    chunking.StreamingChunker(chunker=chunking.RecursiveChunker()),
    chunking.StreamingChunker(chunker=chunking.SemanticGraphChunker()),
]
WINDOWS = [
    history.Hysteresis(),
    history.SemanticWindow(),
    history.Shortened(window=history.TailWindow()),
    history.SlidingWindow(),
    history.Summarised(),
    history.TailWindow(),
    history.TimeDecayWindow(),
]


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with Store.open("sqlite://") as opened:
        yield opened


def name(stage: object) -> str:
    return type(stage).__name__


def refuses(call: Callable[[], Any], *words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        list(call())
    assert refused.value.remedy
    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize("chunker", CHUNKERS, ids=name)
def test_chunkers_want_a_document(chunker: Any) -> None:
    refuses(lambda: chunker.chunk("a string"), "'a string'", "is a str", "Document.from_text(text)")
    if hasattr(chunker, "stream"):
        refuses(lambda: chunker.stream(["a"], "a string"), "Document.from_text(text)")


@pytest.mark.parametrize("stage", STAGES, ids=name)
def test_stages_want_a_query_and_candidates(stage: Any) -> None:
    query, candidate = Query("Hello?"), Candidate(CHUNK, {"final": 1.0})
    refuses(lambda: stage("Hello?", [candidate]), "'Hello?'", "Query(text)")
    refuses(lambda: stage(query, ["Hello"]), "'Hello'", "a candidate is a str")
    refuses(lambda: stage(query, [CHUNK]), "a candidate is a Chunk", "Candidate(chunk)")
    refuses(lambda: stage(query, "Hello"), "candidates is a str")
    refuses(lambda: stage(query, candidate), "candidates is a Candidate")
    assert stage(query, []) == []


def test_retrievers_want_a_query(store: Store) -> None:
    embedder = HashEmbedder()
    asked: Any = "Hello?"
    for retriever in (
        retrieval.Dense(store, embedder),
        retrieval.Hybrid(store, embedder),
        retrieval.Lexical(store),
        recall.HistoryRetriever(store, None),
    ):
        refuses(partial(retriever.retrieve, asked, 3), "'Hello?'", "Query(text)")
    refuses(lambda: retrieval.Neighbourhood(store)(asked, []), "Query(text)")
    refuses(lambda: retrieval.Neighbourhood(store)(Query("x"), asked), "candidates is a str")


@pytest.mark.parametrize("window", WINDOWS, ids=name)
def test_windows_want_messages(window: Any) -> None:
    for wrong in ("Hello", ["Hello"], [{"role": "user", "content": "Hello"}]):
        refuses(partial(window.select, wrong, 100, COUNTER), "a message is a", "from_openai")


def test_repair_wants_messages() -> None:
    wrong: Any = ["Hello"]
    refuses(lambda: history.repair(wrong).messages, "a message is a str")


@pytest.mark.parametrize("extractor", [graph.AutoExtractor(), graph.LightExtractor(), graph.JiebaExtractor()], ids=name)
def test_extractors_want_several_texts(extractor: Any) -> None:
    refuses(lambda: extractor.extract("Bob"), "extract() takes texts", "[text]")
    refuses(lambda: extractor.extract([b"Bob"]), "a text is a bytes")
    refuses(lambda: extractor.extract(5), "the texts is a int")


def test_one_text_is_refused_before_anything_is_read() -> None:
    with pytest.raises(ConfigError):
        each_text("Bob", "embed")
    read: list[str] = []
    texts = each_text((read.append(text) or text for text in ("a", "b")), "embed")
    assert not read and next(texts) == "a" and read == ["a"], "lazily"
