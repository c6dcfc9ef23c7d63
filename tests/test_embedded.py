"""Whatever calls an embedder says what is wrong with what it gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from ctxkit import ContextEngine, Document, Message
from ctxkit.chunking import SemanticGraphChunker
from ctxkit.documents import Query
from ctxkit.errors import EmbeddingError
from ctxkit.history import SemanticWindow
from ctxkit.models import OpenAIChatCounter
from ctxkit.recall import HistoryRetriever
from ctxkit.retrieval import Dense, Hybrid
from ctxkit.storage import Store
from ctxkit.testing import HashEmbedder

TEXT = "Keys rotate monthly. Lunch is at noon. Old keys stay valid for a week. Cake is on Fridays. " * 4
DIALOGUE = [Message("user" if at % 2 == 0 else "assistant", f"Turn {at}: {TEXT}", id=f"m{at}") for at in range(12)]


class Wrong(HashEmbedder):
    """Gives what `of` makes of the right vectors."""

    def __init__(self, of: Callable[[Any], Any]) -> None:
        super().__init__()
        self.of = of

    def embed(self, texts: Sequence[str]) -> Any:
        return self.of(super().embed(texts))


def finding(kind: type[Dense] | type[Hybrid]) -> Callable[[Store, Any], object]:
    def find(store: Store, embedder: Any) -> object:
        ContextEngine(store, embedder=HashEmbedder()).ingest_documents([Document.from_text(TEXT, source="a.md")])
        return kind(store, embedder).retrieve(Query("When do keys rotate?"), 3)

    return find


def recalling(store: Store, embedder: Any) -> object:
    store.sessions.append("alice", DIALOGUE)
    return HistoryRetriever(store, embedder).search("When do keys rotate?", 3)


CALLERS: dict[str, Callable[[Store, Any], object]] = {
    "dense": finding(Dense),
    "hybrid": finding(Hybrid),
    "recall": recalling,
    "graph chunker": lambda _, embedder: list(
        SemanticGraphChunker(max_tokens=40, embedder=embedder).chunk(Document.from_text(TEXT))
    ),
    "semantic window": lambda _, embedder: SemanticWindow(embedder=embedder, question="When do keys rotate?").select(
        DIALOGUE, 300, OpenAIChatCounter("gpt-4o")
    ),
}

WRONG: dict[str, Callable[[Any], Any]] = {
    "NaN": lambda vectors: vectors * np.nan,
    "a row too many": lambda vectors: np.concatenate([vectors, vectors[:1]]),
    "too narrow": lambda vectors: vectors[:, :-1],
    "strings": lambda vectors: [["x"] * 4 for _ in vectors],
    "ragged": lambda vectors: [[0.5] * (at + 1) for at in range(len(vectors) + 1)],
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("caller", CALLERS)
def test_a_wrong_embedder_is_named(caller: str, wrong: str) -> None:
    with Store.open("sqlite://") as store, pytest.raises(EmbeddingError) as caught:
        CALLERS[caller](store, Wrong(WRONG[wrong]))
    assert caught.value.subject == "Wrong" and caught.value.remedy


@pytest.mark.parametrize("wrong", WRONG)
def test_an_ingest_reports_it(wrong: str) -> None:
    with Store.open("sqlite://") as store:
        engine = ContextEngine(store, embedder=Wrong(WRONG[wrong]))
        report = engine.ingest_documents([Document.from_text(TEXT, source="a.md")])
        assert store.documents.list() == []
    ((source, error),) = report.failed
    assert source == "a.md" and error.startswith("Wrong: ")


@pytest.mark.parametrize("caller", CALLERS)
def test_a_right_embedder_is_used(caller: str) -> None:
    with Store.open("sqlite://") as store:
        assert CALLERS[caller](store, Wrong(lambda vectors: vectors.astype(np.float64)))
