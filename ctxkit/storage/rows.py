"""Documents and chunks to rows and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Join

from ctxkit.documents import Chunk, Document, Entity, Span
from ctxkit.errors import StorageError
from ctxkit.storage import tables
from ctxkit.storage.checks import checked_name, checked_text, decoded, encoded
from ctxkit.storage.clock import moment, stamp
from ctxkit.storage.records import DocumentInfo, index_text
from ctxkit.storage.tenancy import Scope

__all__ = ["INFO_COLUMNS", "from_document", "read_chunks", "read_texts", "to_document", "to_info"]

Row = dict[str, Any]

INFO_COLUMNS = ("id", "source", "title", "created_at", "content_hash", "chunk_count", "updated_at")


def from_document(document: Document, chunks: Sequence[Chunk], recipe: str) -> tuple[Row, list[Row], list[Row]]:
    """The rows of document, chunks and entities; an entity's `key` is the index of its chunk. Checks everything."""
    where = f"document {document.id[:60]!r}"
    checked_name(document.id, "the document's id")
    checked_text(document.text, f"the text of {where}")
    head = {
        "id": document.id,
        "source": checked_text(document.source, f"the source of {where}"),
        "title": checked_text(document.title, f"the title of {where}"),
        "created_at": stamp(document.created_at),
        "metadata": encoded(document.metadata, f"the metadata of {where}"),
        "content_hash": document.content_hash,
        "recipe": recipe,
        "chunk_count": len(chunks),
        "text": document.text,
    }
    chunk_rows: list[Row] = []
    entity_rows: list[Row] = []
    for ordinal, chunk in enumerate(chunks):
        _check_chunk(document, chunk)
        what = f"chunk {chunk.id[:60]!r}"
        chunk_rows.append(
            {
                "document_id": document.id,
                "ordinal": ordinal,
                "id": checked_text(chunk.id, "a chunk's id"),
                "start": int(chunk.span.start),
                "end": int(chunk.span.end),
                "token_count": int(chunk.token_count),
                "heading_path": encoded(list(chunk.heading_path), f"the headings of {what}"),
                "metadata": encoded(chunk.metadata, f"the metadata of {what}"),
                "text": chunk.text,
                "context": checked_text(chunk.context, f"the context of {what}"),
            }
        )
        entity_rows += [
            {
                "key": ordinal,
                "ordinal": number,
                "start": int(entity.span.start),
                "end": int(entity.span.end),
                "label": checked_text(entity.label, f"an entity's label in {what}"),
                "text": checked_text(entity.text, f"an entity in {what}"),
            }
            for number, entity in enumerate(chunk.entities)
        ]
    return head, chunk_rows, entity_rows


def _check_chunk(document: Document, chunk: Chunk) -> None:
    if chunk.document_id != document.id:
        raise StorageError(
            f"the chunk belongs to the document {chunk.document_id!r}, not to {document.id!r}",
            subject=chunk.id,
            remedy="Put each document with its own chunks.",
        )
    if not 0 <= chunk.span.start <= chunk.span.end or document.text[chunk.span.start : chunk.span.end] != chunk.text:
        raise StorageError(
            f"the chunk's text is not the document's at {chunk.span.start}-{chunk.span.end}",
            subject=chunk.id,
            remedy="Chunk the document again: a chunk's text is document.text[span.start:span.end].",
        )


def to_document(row: Any) -> Document:
    return Document(
        id=row.id,
        text=row.text,
        source=row.source,
        title=row.title,
        created_at=moment(row.created_at) if row.created_at else None,
        metadata=decoded(row.metadata),
    )


def to_info(row: Any) -> DocumentInfo:
    return DocumentInfo(
        id=row.id,
        source=row.source,
        title=row.title,
        created_at=moment(row.created_at) if row.created_at else None,
        content_hash=row.content_hash,
        chunk_count=row.chunk_count,
        updated_at=moment(row.updated_at),
    )


def _with_document() -> Join:
    chunks, documents = tables.chunks, tables.documents
    return chunks.join(documents, (chunks.c.tenant == documents.c.tenant) & (chunks.c.document_id == documents.c.id))


def read_chunks(scope: Scope, keys: Sequence[int]) -> dict[int, Chunk]:
    """The chunks of these keys, in their order."""
    chunks, documents, entities = tables.chunks, tables.documents, tables.entities
    statement = scope.select(
        chunks,
        documents.c.source,
        documents.c.title,
        documents.c.created_at,
        documents.c.metadata.label("shared"),
        source=_with_document(),
    ).where(scope.among(chunks.c.key, keys))
    named: dict[int, list[Entity]] = {}
    found = scope.select(entities).where(scope.among(entities.c.key, keys)).order_by(entities.c.key, entities.c.ordinal)
    for row in scope.all(found):
        named.setdefault(row.key, []).append(Entity(row.text, row.label, Span(row.start, row.end)))
    shared: dict[str, Any] = {}  # the chunks of one document read its metadata once
    by_key: dict[int, Chunk] = {}
    for row in scope.all(statement):
        if row.document_id not in shared:
            shared[row.document_id] = decoded(row.shared)
        by_key[row.key] = Chunk(
            id=row.id,
            document_id=row.document_id,
            span=Span(row.start, row.end),
            text=row.text,
            token_count=row.token_count,
            heading_path=tuple(decoded(row.heading_path)),
            entities=tuple(named.get(row.key, ())),
            context=row.context,
            metadata={
                **shared[row.document_id],
                **decoded(row.metadata),
                "source": row.source,
                "title": row.title,
                "created_at": row.created_at,
                "key": row.key,
            },
        )
    return {key: by_key[key] for key in keys if key in by_key}


def read_texts(scope: Scope, keys: Sequence[int]) -> Iterator[tuple[int, str]]:
    """What an index sees of these chunks, in their order."""
    chunks, documents = tables.chunks, tables.documents
    statement = scope.select(
        chunks.c.key,
        documents.c.title,
        chunks.c.heading_path,
        chunks.c.text,
        chunks.c.context,
        source=_with_document(),
    )
    by_key = {
        row.key: index_text(row.title, decoded(row.heading_path), row.text, row.context)
        for row in scope.all(statement.where(scope.among(chunks.c.key, keys)))
    }
    return ((key, by_key[key]) for key in keys if key in by_key)
