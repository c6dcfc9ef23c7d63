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


@pytest.mark.parametrize("damage", ["rubbish", "folder"])
def test_a_file_of_sentences_that_fails_stops_no_ingest(tmp_path: Path, damage: str) -> None:
    opened(tmp_path).ingest_documents([book(0)])
    path = opened(tmp_path).sentences.path  # type: ignore[union-attr]
    assert path is not None
    for one in path.parent.glob(f"{path.name}*"):
        one.unlink()
    path.write_bytes(b"no database at all" * 100) if damage == "rubbish" else path.mkdir()
    for number in range(1, 4):
        (tmp_path / f"{number}.md").write_text(f"Fact {number} is here. It is short.\n")
    engine = opened(tmp_path)
    report = engine.ingest([tmp_path / f"{number}.md" for number in range(1, 4)])
    assert report.added == 3
    assert [source for source, _ in report.failed] == [str(path)], "said once"
    assert "Delete the file" in report.failed[0][1]
    assert len(engine.store.documents.list()) == 4
    assert engine.search("fact 3 of book 0")


def test_a_document_of_an_impossible_id_stops_no_batch(engine: ContextEngine) -> None:
    report = engine.ingest_documents(
        [book(7), Document("a\0b", "Some text."), Document("c\ud800", "Some text."), book(8)]
    )
    assert report.added == 2
    assert [source for source, _ in report.failed] == ["a\0b", "c\ud800"]
