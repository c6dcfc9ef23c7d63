"""With `sentence_vectors` an ingest leaves what compression needs; an update and a deletion leave nothing behind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ctxkit import ContextEngine, Document
from ctxkit.compression import SentenceCompressor
from ctxkit.testing import HashEmbedder


class Counting(HashEmbedder):
    """Keeps the texts that it embeds."""

    seen: list[str] = []  # noqa: RUF012

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.seen.extend(texts)
        return super().embed(texts)


def book(number: int, fact: str = "about shelf") -> Document:
    text = " ".join(f"Fact {n} of book {number} is {fact} {n % 7}." for n in range(40))
    return Document.from_text(text, source=f"book-{number}.md", title=f"Book {number}")


def opened(folder: Path) -> ContextEngine:
    engine = ContextEngine.open(f"sqlite:///{folder}/store.db", embedder=Counting(), sentence_vectors=True)
    engine.stages = (SentenceCompressor(ratio=4, embedder=engine.embedder, sentences=engine.sentences),)
    return engine


@pytest.fixture
def engine(tmp_path: Path) -> ContextEngine:
    made = opened(tmp_path)
    made.ingest_documents([book(number) for number in range(3)])
    return made


def test_a_question_embeds_itself_alone_and_the_trace_says_what_went(engine: ContextEngine, tmp_path: Path) -> None:
    Counting.seen.clear()
    found = engine.search("fact 3 of book 2")
    assert set(Counting.seen) == {"fact 3 of book 2"}
    assert opened(tmp_path).search("fact 3 of book 2") == found
    prompt = engine.assemble("fact 3 of book 2", budget=900)
    (record,) = [record for record in prompt.trace.records if record.stage == "SentenceCompressor"]
    assert record.notes["tokens_out"] <= record.notes["target"] < record.notes["tokens_in"]


def test_what_is_updated_or_deleted_is_forgotten(engine: ContextEngine) -> None:
    assert engine.sentences is not None
    ids = [book(number).id for number in range(3)]
    assert engine.sentences.documents() == set(ids)
    engine.ingest_documents([book(1, "not about room")])
    Counting.seen.clear()
    engine.search("fact 3 of book 1")
    assert set(Counting.seen) == {"fact 3 of book 1"}
    engine.store.documents.delete(ids[:1])
    engine.ingest_documents([])
    assert engine.sentences.documents() == set(ids)
    engine.ingest([])
    assert engine.sentences.documents() == set(ids[1:])


def test_without_it_nothing_is_kept(tmp_path: Path) -> None:
    engine = ContextEngine.open(f"sqlite:///{tmp_path}/store.db", embedder=Counting())
    engine.ingest_documents([book(1)])
    assert engine.sentences is None
    assert not list(tmp_path.rglob("sentences*"))
