"""Which chunk gets which entity, what the extractor reads, and how an ingest uses both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.chunking import RecursiveChunker, SentenceChunker
from ctxkit.documents import Chunk, Document, Entity, Span
from ctxkit.engine import ContextEngine
from ctxkit.errors import ConfigError, ReadingError
from ctxkit.graph.light import LightExtractor
from ctxkit.graph.tagging import WINDOW, tag
from ctxkit.storage import Store
from tests.graph.making import arrays, fewer, loaded, rebuilt
from tests.strategies import texts


@dataclass(frozen=True, kw_only=True)
class Words:
    """Every word with a capital is an entity; it keeps what it read, and refuses what holds `refused`."""

    label: str = "NAME"
    refused: str = "\0"
    _read: list[str] = field(default_factory=list, repr=False, compare=False)

    def extract(self, texts: Iterable[str]) -> Iterator[Sequence[Entity]]:
        for text in texts:
            self._read.append(text)
            if self.refused in text:
                raise ReadingError("not this one", remedy="Leave it out.")
            found, at = [], 0
            for word in text.split():
                at = text.index(word, at)
                if word[0].isupper():
                    found.append(Entity(word, self.label, Span(at, at + len(word))))
                at += len(word)
            yield found


@dataclass(frozen=True, kw_only=True)
class Counted:
    """Yields too many or too few answers."""

    change: int

    def extract(self, texts: Iterable[str]) -> Iterator[Sequence[Entity]]:
        yield from [()] * (len(list(texts)) + self.change)


class TestTag:
    @fewer
    @given(texts, st.integers(4, 40), st.integers(0, 3))
    def test_a_chunk_gets_what_it_holds_whole(self, text: str, size: int, overlap: int) -> None:
        document = Document("d", text)
        chunks = list(SentenceChunker(max_tokens=size, overlap=overlap).chunk(document))
        ((_, tagged),) = tag([(document, chunks)], LightExtractor())
        assert [replace(chunk, entities=()) for chunk in tagged] == chunks
        if not chunks:
            return
        start = chunks[0].span.start
        (whole,) = LightExtractor().extract([text[start : max(chunk.span.end for chunk in chunks)]])
        found = [Entity(entity.text, entity.label, entity.span.shift(start)) for entity in whole]
        for chunk in tagged:
            assert list(chunk.entities) == [entity for entity in found if chunk.span.contains(entity.span)]
            assert all(entity.span.slice(text) == entity.text for entity in chunk.entities)

    def test_long_documents_are_read_in_runs_of_whole_chunks(self) -> None:
        extractor = Words()
        document = Document("d", "Then Ada came. " * 5_000)
        chunks = list(RecursiveChunker(max_tokens=50).chunk(document))
        ((_, tagged),) = tag([(document, chunks)], extractor)
        assert len(extractor._read) == pytest.approx(len(document.text) / WINDOW, abs=1)
        assert all(len(text) <= WINDOW for text in extractor._read)
        starts = {chunk.span.start for chunk in chunks}
        position = 0
        for text in extractor._read:
            position = document.text.index(text, position)
            assert position in starts
        assert sum(len(chunk.entities) for chunk in tagged) == 2 * 5_000

    def test_a_chunk_longer_than_a_run_is_read_whole(self) -> None:
        document = Document("d", "Ada " * WINDOW)
        chunks = [Chunk.of(document, Span(0, 4), 1), Chunk.of(document, Span(4, 4 * WINDOW), 1)]
        ((_, tagged),) = tag([(document, chunks)], Words())
        assert [len(chunk.entities) for chunk in tagged] == [1, WINDOW - 1]

    def test_many_documents_pass_through_one_call(self) -> None:
        documents = [Document(str(number), f"Ada{number} met me.") for number in range(5)]
        pairs = [(document, list(RecursiveChunker().chunk(document))) for document in documents]
        found = [[chunk.entities[0].text for chunk in chunks] for _, chunks in tag(pairs, Words())]
        assert found == [[f"Ada{number}"] for number in range(5)]
        assert list(tag([], Words())) == []
        assert list(tag([(documents[0], [])], Words())) == [(documents[0], [])]

    @pytest.mark.parametrize("change", [-1, 1])
    def test_an_extractor_that_cannot_count(self, change: int) -> None:
        document = Document("d", "Ada met me.")
        with pytest.raises(ConfigError, match="fewer" if change < 0 else "more") as caught:
            list(tag([(document, [Chunk.of(document, Span(0, 11), 3)])], Counted(change=change)))
        assert "EntityExtractorConformance" in caught.value.remedy


@dataclass(frozen=True, kw_only=True)
class Named:
    """A chunker that finds entities itself."""

    def chunk(self, document: Document) -> Iterator[Chunk]:
        span = Span(0, len(document.text))
        yield Chunk.of(document, span, 1, entities=(Entity(document.text[:3], "OWN", Span(0, 3)),))


class TestIngest:
    def documents(self, *texts: str) -> list[Document]:
        return [Document.from_text(text, source=f"{number}.txt") for number, text in enumerate(texts)]

    def test_the_graph_of_what_was_ingested(self, store: Store) -> None:
        engine = ContextEngine(store, embedder=None, extractor=Words())
        report = engine.ingest_documents(self.documents("Ada met Bob", "Bob met Cy", "nobody met nobody"))
        assert (report.added, report.failed) == (3, [])
        graph = loaded(store)
        assert [node.name for node in graph.nodes] == ["ada", "bob", "cy"]
        assert arrays(graph) == arrays(rebuilt(store))
        assert store.statistics()["document_graphs"] == 2
        engine.ingest_documents(self.documents("Dan met Bob"))
        assert [node.name for node in loaded(store).nodes] == ["bob", "cy", "dan"]
        store.documents.delete([document.id for document in self.documents("", "")])
        assert len(loaded(store)) == 0
        assert store.check() == []

    def test_what_the_chunker_found_is_used(self) -> None:
        with ContextEngine.open("sqlite://", embedder=None, chunker=Named(), extractor=Words()) as engine:
            engine.ingest_documents(self.documents("Ada met Bob"))
            assert loaded(engine.store).nodes == (("ada", "OWN"),)
            assert engine.extractor._read == []  # type: ignore[union-attr]

    def test_without_entities_nothing_is_written(self) -> None:
        with ContextEngine.open("sqlite://", embedder=None, extractor=None) as engine:
            engine.ingest_documents(self.documents("Ada met Bob"))
            assert engine.store.graph.load() == []
            assert engine.store.statistics()["entities"] == 0

    def test_another_extractor_reads_everything_again(self, sqlite_url: str) -> None:
        def run(extractor: Words | None) -> tuple[int, int]:
            with ContextEngine.open(sqlite_url, embedder=None, extractor=extractor) as engine:
                report = engine.ingest_documents(self.documents("Ada met Bob"))
                return report.updated + report.added, len(loaded(engine.store))

        assert run(None) == (1, 0)
        assert run(Words()) == (1, 2)
        assert run(Words()) == (0, 2)
        assert run(Words(label="PERSON")) == (1, 2)
        assert run(None) == (1, 0)

    def test_a_document_that_the_extractor_refuses_stops_no_other(self) -> None:
        with ContextEngine.open("sqlite://", embedder=None, extractor=Words(refused="Bad")) as engine:
            report = engine.ingest_documents(self.documents("Ada met Bob", "Bad met Bob", "Cy met Bob"))
            assert [source for source, _ in report.failed] == ["1.txt"]
            assert [info.source for info in engine.store.documents.list()] == ["0.txt", "2.txt"]
            assert engine.store.graph.get(self.documents("x")[0].id)

    def test_a_registered_extractor_and_what_is_none(self) -> None:
        with Store.open("sqlite://") as store:
            with pytest.raises(ConfigError, match="no extractor"):
                ContextEngine(store, embedder=None, extractor="no such")
            engine = ContextEngine(store, embedder=None, extractor=Words)  # type: ignore[arg-type]
            with pytest.raises(ConfigError, match="class"):
                engine.ingest_documents(self.documents("Ada met Bob"))
            assert ContextEngine(store, extractor="none").extractor is None
