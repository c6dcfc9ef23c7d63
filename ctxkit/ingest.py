"""From files to chunks and vectors in the store: atomic per document, idempotent, resumable (law 11)."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxkit.checking import check_kind
from ctxkit.chunking import StreamableChunker, StreamingChunker
from ctxkit.documents import Chunk, Document, content_hash
from ctxkit.errors import CtxkitError, NotFoundError, StorageError
from ctxkit.graph.building import GRAPH_VERSION, document_graph
from ctxkit.graph.tagging import tag
from ctxkit.protocols import Chunker, Embedder, EntityExtractor
from ctxkit.reading import Failed, Skipped

if TYPE_CHECKING:
    from ctxkit.compression import SentenceStore
    from ctxkit.storage import Store

__all__ = ["IngestReport", "Ingestion", "below", "forget_vanished", "recipe", "vanished"]

BATCH = 32
"""Documents that are chunked and embedded together; each is still committed alone."""

LARGE = 1_000_000
"""Characters: so many are a batch of their own, and a longer document is chunked as a stream."""


@dataclass(slots=True)
class IngestReport:
    """What an ingest did. `documents` counts those that were read; `chunks` those written now.

    `skipped` holds (source, reason), `failed` (source, error): a batch goes on with the rest.
    """

    documents: int = 0
    chunks: int = 0
    added: int = 0
    updated: int = 0
    unchanged: int = 0
    deleted: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        values = dataclasses.asdict(self)
        values["skipped"] = [{"source": source, "reason": reason} for source, reason in self.skipped]
        values["failed"] = [{"source": source, "error": error} for source, error in self.failed]
        return values


@dataclass(slots=True, kw_only=True)
class Ingestion:
    """One run over documents, read from files or given.

    Args:
        extractor: finds the entities of documents whose chunker gave none.
        on_document: called with the source and the report after each document, for progress.
        sentences: also keeps the vectors of the chunks' sentences.
    """

    store: Store
    chunker: Chunker
    embedder: Embedder | None = None
    extractor: EntityExtractor | None = None
    on_document: Callable[[str, IngestReport], None] | None = None
    sentences: SentenceStore | None = None

    def run(self, items: Iterable[Document | Skipped | Failed]) -> tuple[IngestReport, set[str]]:
        """Store what is new or changed; returns the report and the ids of all documents that were seen."""
        report, seen = IngestReport(), set[str]()
        started = time.perf_counter()
        made_by = recipe(self.chunker, self.embedder, self.extractor)
        for batch in _batches(items, BATCH):
            documents: dict[str, Document] = {}
            for item in batch:
                check_kind(item, (Document, Skipped, Failed), "an item", remedy="Ingest Documents.")
                if isinstance(item, Skipped):
                    report.skipped.append((item.source, item.reason))
                elif isinstance(item, Failed):
                    report.failed.append((item.source, str(item.error)))
                elif (refused := _refused(item)) is not None:
                    report.failed.append((item.source or item.id, refused))
                else:
                    documents[item.id] = item
            seen.update(documents)
            report.documents += len(documents)
            self._store(documents, made_by, report)
        report.seconds = time.perf_counter() - started
        return report, seen

    def _store(self, documents: dict[str, Document], made_by: str, report: IngestReport) -> None:
        states = self.store.documents.states(list(documents))
        chunked: list[tuple[Document, list[Chunk]]] = []
        for document in documents.values():
            state = states.get(document.id)
            try:
                if state is not None and (state.content_hash, state.recipe) == (document.content_hash, made_by):
                    report.unchanged += 1
                    self._progress(document, report)
                    continue
                chunked.append((document, list(self._chunks(document))))
            except CtxkitError as error:
                report.failed.append((document.source or document.id, str(error)))
        chunked = self._tagged(chunked, report)
        for document, chunks, vectors in self._embedded(chunked, report):
            try:
                outcome = self.store.documents.put(
                    document,
                    chunks,
                    recipe=made_by,
                    fingerprint=self.embedder.fingerprint if self.embedder else None,
                    vectors=vectors,
                    graph=document_graph(document.text, chunks),
                )
            except CtxkitError as error:
                report.failed.append((document.source or document.id, str(error)))
                continue
            if outcome == "updated":
                report.updated += 1
            else:
                report.added += 1
            report.chunks += len(chunks)
            self._keep_sentences(document, chunks, report)
            self._progress(document, report)

    def _chunks(self, document: Document) -> Iterator[Chunk]:
        if len(document.text) >= LARGE and isinstance(self.chunker, StreamableChunker):
            return StreamingChunker(chunker=self.chunker).chunk(document)
        return self.chunker.chunk(document)

    def _tagged(
        self, chunked: list[tuple[Document, list[Chunk]]], report: IngestReport
    ) -> list[tuple[Document, list[Chunk]]]:
        """Every document's chunks with entities: those that the chunker gave, else what the extractor finds."""
        bare = [(document, chunks) for document, chunks in chunked if not any(chunk.entities for chunk in chunks)]
        # What a chunker with an extractor of its own did not name has no names.
        if self.extractor is None or not bare or getattr(self.chunker, "extractor", None) is not None:
            return chunked
        try:
            tagged = {document.id: chunks for document, chunks in tag(bare, self.extractor)}
        except CtxkitError as error:
            if len(chunked) == 1:
                report.failed.append((chunked[0][0].source or chunked[0][0].id, str(error)))
                return []
            # One bad document must not take its batch with it.
            return [pair for one in chunked for pair in self._tagged([one], report)]
        return [(document, tagged.get(document.id, chunks)) for document, chunks in chunked]

    def _embedded(
        self, chunked: Sequence[tuple[Document, list[Chunk]]], report: IngestReport
    ) -> Iterator[tuple[Document, list[Chunk], Any]]:
        if self.embedder is None or not chunked:
            yield from ((document, chunks, None) for document, chunks in chunked)
            return
        from ctxkit.embedding import embed_chunks

        try:
            vectors = embed_chunks(self.embedder, chunked)
        except CtxkitError as error:
            if len(chunked) == 1:
                report.failed.append((chunked[0][0].source or chunked[0][0].id, str(error)))
                return
            for one in chunked:  # one bad document must not take its batch with it
                yield from self._embedded([one], report)
            return
        position = 0
        for document, chunks in chunked:
            yield document, chunks, vectors[position : position + len(chunks)]
            position += len(chunks)

    def _keep_sentences(self, document: Document, chunks: Sequence[Chunk], report: IngestReport) -> None:
        if self.sentences is None:
            return
        from ctxkit.tokens import get_counter

        # Read under the title that the store gives a chunk, as a question's candidates are.
        stored = [replace(chunk, metadata={**chunk.metadata, "title": document.title}) for chunk in chunks]
        try:
            self.sentences.forget([document.id])
            self.sentences.prepare(stored, get_counter(), self.embedder)
        except CtxkitError as error:
            # Derived: the document is stored, and a question finds its sentences out itself. A file that cannot be
            # written is said once, not waited for with every document.
            report.failed.append((_place(self.sentences), str(error)))
            if isinstance(error, StorageError):
                self.sentences = None

    def _progress(self, document: Document, report: IngestReport) -> None:
        if self.on_document is not None:
            self.on_document(document.source, report)


def forget_vanished(sentences: SentenceStore, store: Store, report: IngestReport) -> None:
    """Drop the sentences of documents that are gone, whoever deleted them; where that fails, the report says so."""
    try:
        sentences.forget(sentences.documents() - {info.id for info in store.documents.list()})
    except StorageError as error:
        if all(source != _place(sentences) for source, _ in report.failed):
            report.failed.append((_place(sentences), str(error)))


def _place(sentences: SentenceStore) -> str:
    return "sentences" if sentences.path is None else str(sentences.path)


def _refused(document: Document) -> str | None:
    """Why no store can be asked for a document of this id; None where one can."""
    from ctxkit.storage.checks import checked_text

    try:
        checked_text(document.id, "a document id")
    except StorageError as error:
        return str(error)
    return None


def below(store: Store, roots: Sequence[Path]) -> dict[str, str]:
    """The ids of the stored documents whose source is at or below one of `roots`, with their sources."""
    return {info.id: info.source for info in store.documents.list() if _is_under(info.source, roots)}


def vanished(store: Store, stored: Mapping[str, str], seen: Collection[str], report: IngestReport) -> list[str]:
    """The ids among `stored` (see `below`, asked before the run) whose files are gone.

    Only documents that were read from a file count, and only where there is no file any more: what a run skipped, or
    another process has put there meanwhile, stays. A path that could not be read keeps everything below it.
    """
    failed = [Path(source) for source, _ in report.failed]
    return [
        id_
        for id_, source in stored.items()
        if id_ not in seen
        and not os.path.lexists(source)
        and not _is_under(source, failed)
        and _was_a_file(store, id_, source)
    ]


def _is_under(source: str, roots: Sequence[Path]) -> bool:
    path = Path(source)
    if not source:
        return False
    return any(path == root or root in path.parents or (root == Path(".") and not path.is_absolute()) for root in roots)


def _was_a_file(store: Store, id_: str, source: str) -> bool:
    try:
        return store.documents.get(id_).metadata.get("path") == source
    except NotFoundError:
        return False


def recipe(chunker: Chunker, embedder: Embedder | None, extractor: EntityExtractor | None = None) -> str:
    """A hash of how chunks are made: a document is chunked again when this changes, and not otherwise."""
    return content_hash(
        {
            "chunker": _description(chunker),
            "embedder": embedder.fingerprint if embedder else None,
            "extractor": _description(extractor) if extractor else None,
            "graph": GRAPH_VERSION,
        }
    )


def _description(stage: Any) -> dict[str, Any]:
    """The class of a stage, its parameters where it is a dataclass, and its `fingerprint` where it has one."""
    parameters = {
        item.name: _parameter(getattr(stage, item.name))
        for item in (dataclasses.fields(stage) if dataclasses.is_dataclass(stage) else ())
        if not item.name.startswith("_")
    }
    found = {"class": f"{type(stage).__module__}.{type(stage).__qualname__}", "parameters": parameters}
    fingerprint = getattr(stage, "fingerprint", None)
    return found if fingerprint is None else {**found, "fingerprint": str(fingerprint)}


def _parameter(value: Any) -> Any:
    named = getattr(value, "name", None) or getattr(value, "fingerprint", None)
    if named:
        return str(named)
    # The repr of a plain object is its address, another one in each process: every document would be ingested again.
    plain: Any = object.__repr__
    stage = dataclasses.is_dataclass(value) or type(value).__repr__ is plain
    return _description(value) if stage else repr(value)


def _batches(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """At most `size` items together, and not many large ones."""
    batch: list[Any] = []
    characters = 0
    for item in items:
        batch.append(item)
        characters += len(item.text) if isinstance(item, Document) else 0
        if len(batch) >= size or characters >= LARGE:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch
