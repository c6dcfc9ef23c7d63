"""The documents of a tenant and what an ingest derives from them: chunks, entities, embeddings, a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sqlalchemy import LargeBinary, func, literal_column

from ctxkit.documents import Chunk, Document
from ctxkit.errors import ConfigError, NotFoundError, StorageError
from ctxkit.stage_inputs import check_ids
from ctxkit.storage import rows, tables, vectors
from ctxkit.storage.checks import checked_name, checked_text
from ctxkit.storage.clock import now
from ctxkit.storage.database import Database
from ctxkit.storage.filters import matching
from ctxkit.storage.graph_rows import DocumentGraph, checked_graph, to_row
from ctxkit.storage.records import DocumentInfo, DocumentState
from ctxkit.storage.tenancy import Scope

__all__ = ["Documents"]

Keys = NDArray[np.int64]
Vectors = NDArray[np.float32]

BATCH = 2_000
"""Rows that one read holds in memory where a whole answer is not needed at once."""


class Documents:
    """The documents of one tenant: `store.documents`.

    Every chunk has an integer key that is unique in the store and never used again; derived indexes name chunks by it.
    """

    def __init__(self, database: Database, tenant: str) -> None:
        self._database = database
        self._tenant = tenant

    def states(self, ids: Sequence[str]) -> dict[str, DocumentState]:
        """Content hash and recipe of those of the documents that are stored. One query, O(len(ids) log n)."""
        check_ids(ids, "document ids")
        wanted = [checked_text(item, "a document id") for item in ids]
        table = tables.documents

        def work(scope: Scope) -> dict[str, DocumentState]:
            statement = scope.select(table.c.id, table.c.content_hash, table.c.recipe)
            return {
                id_: DocumentState(content_hash, recipe)
                for id_, content_hash, recipe in scope.all(statement.where(scope.among(table.c.id, wanted)))
            }

        return self._database.read(self._tenant, work) if wanted else {}

    def put(
        self,
        document: Document,
        chunks: Sequence[Chunk],
        *,
        recipe: str,
        fingerprint: str | None = None,
        vectors: Vectors | None = None,
        graph: DocumentGraph | None = None,
    ) -> Literal["added", "updated"]:
        """Store a document with its chunks, in place of what was stored under its id; whole or not at all (law 11).

        Args:
            recipe: names how the chunks were made; `states` gives it back.
            fingerprint: names the weights that made the vectors; given together with them.
            vectors: float32 of shape `(len(chunks), dimension)`.
            graph: what the document adds to the entity graph; an empty one is not stored.

        Raises:
            StorageError: a text holds NUL or a lone surrogate, metadata is not JSON, a chunk is not a piece of this
                document, or the vectors or the graph do not fit. Nothing is written then.
        """
        head, chunk_rows, entity_rows = rows.from_document(document, chunks, checked_text(recipe, "the recipe"))
        bound, dimension = self._bound_vectors(fingerprint, vectors, len(chunk_rows))
        counts = checked_graph(graph, len(chunk_rows)) if graph else None

        def work(scope: Scope) -> Literal["added", "updated"]:
            added = self._put_head(scope, head)
            keys = scope.allocate_keys(len(chunk_rows)) if chunk_rows else []
            scope.insert(tables.chunks, [{"key": key, **row} for key, row in zip(keys, chunk_rows, strict=True)])
            scope.insert(tables.entities, [{**row, "key": keys[row["key"]]} for row in entity_rows])
            if counts is not None:
                scope.insert(tables.document_graphs, [{"document_id": document.id, **to_row(counts, keys)}])
            if fingerprint is not None and bound:
                self._check_space(scope, fingerprint, dimension)
                scope.insert(
                    tables.embeddings,
                    [
                        {"key": key, "fingerprint": fingerprint, "vector": vector}
                        for key, vector in zip(keys, bound, strict=True)
                    ],
                )
            _bump(scope)
            return "added" if added else "updated"

        return self._database.write(self._tenant, work)

    def get(self, id: str) -> Document:  # noqa: A002
        """The document. Raises `NotFoundError`."""
        table = tables.documents
        wanted = checked_text(id, "a document id")

        def work(scope: Scope) -> Any:
            columns = (table.c.id, table.c.text, table.c.source, table.c.title, table.c.created_at, table.c.metadata)
            return scope.first(scope.select(*columns).where(table.c.id == wanted))

        row = self._database.read(self._tenant, work)
        if row is None:
            raise NotFoundError(
                "there is no such document", subject=id, remedy="`store.documents.list()` names the ones there are."
            )
        return rows.to_document(row)

    def delete(self, ids: Sequence[str]) -> int:
        """Delete documents with everything derived from them; how many there were."""
        check_ids(ids, "document ids")
        wanted = sorted({checked_text(item, "a document id") for item in ids})
        table = tables.documents

        def work(scope: Scope) -> int:
            gone: int = scope.execute(scope.delete(table).where(scope.among(table.c.id, wanted))).rowcount
            if gone:
                _bump(scope)
            return gone

        return self._database.write(self._tenant, work) if wanted else 0

    def revision(self) -> int:
        """A number that grows whenever a chunk of this tenant comes or goes; 0 for a tenant without any history."""
        table = tables.tenants

        def work(scope: Scope) -> int:
            row = scope.first(scope.select(table.c.revision))
            return int(row[0]) if row else 0

        return self._database.read(self._tenant, work)

    def keys(self) -> Keys:
        """The key of every chunk, ascending."""
        table = tables.chunks

        def work(scope: Scope) -> Keys:
            found = scope.all(scope.select(table.c.key).order_by(table.c.key))
            return np.fromiter((row[0] for row in found), dtype=np.int64, count=len(found))

        return self._database.read(self._tenant, work)

    def matching_keys(self, filters: Mapping[str, Any]) -> Keys | None:
        """The keys, ascending, of the chunks whose document matches every filter; None without filters.

        `source` is matched exactly or as a pattern with `*` and `?`; `title` and `document_id` exactly. Any other name
        is one of the document's metadata, `author.name` also the `name` inside of `author`; it matches a value equal to
        the filter's, or a list that holds it; None matches null and absent. A list of values means any of them.
        Names and values are bound, never part of the SQL.

        Raises:
            ConfigError: a filter's value is not a text, number, bool, None or a list of these.
        """
        if not filters:
            return None
        chunks, documents = tables.chunks, tables.documents
        joined = chunks.join(
            documents, (chunks.c.tenant == documents.c.tenant) & (chunks.c.document_id == documents.c.id)
        )

        def work(scope: Scope) -> Keys:
            statement = scope.select(chunks.c.key, source=joined).order_by(chunks.c.key)
            for condition in matching(scope.kind, filters):
                statement = statement.where(condition)
            found = scope.all(statement)
            return np.fromiter((row[0] for row in found), dtype=np.int64, count=len(found))

        return self._database.read(self._tenant, work)

    def chunks(self, keys: ArrayLike) -> dict[int, Chunk]:
        """The chunks of these keys, in their order; keys that are gone are left out.

        A chunk's metadata is its document's, then its own, then `source`, `title`, `created_at` (ISO 8601 or None) and
        its `key`.
        """
        wanted = vectors.checked_keys(keys)
        return self._database.read(self._tenant, lambda scope: rows.read_chunks(scope, wanted)) if wanted else {}

    def index_texts(self, keys: ArrayLike) -> Iterator[tuple[int, str]]:
        """For each key that is there, what an index sees: context, or title and headings, then text. Streams."""
        wanted = vectors.checked_keys(keys)
        for start in range(0, len(wanted), BATCH):
            batch = wanted[start : start + BATCH]
            yield from self._database.read(self._tenant, lambda scope, batch=batch: rows.read_texts(scope, batch))  # type: ignore[misc]

    def vectors(self, fingerprint: str, keys: ArrayLike | None = None) -> tuple[Keys, Vectors]:
        """Keys, ascending, and vectors, float32 of shape `(len(keys), dimension)`, of one embedder."""
        wanted = None if keys is None else vectors.checked_keys(keys)
        checked_text(fingerprint, "the fingerprint")
        table = tables.embeddings

        def work(scope: Scope) -> tuple[Keys, Vectors]:
            dimension = _dimension(scope, fingerprint) or 0
            raw = func.vector_send(table.c.vector, type_=LargeBinary)
            column = raw if scope.kind == "postgresql" else table.c.vector
            statement = scope.select(table.c.key, column, source=table).where(table.c.fingerprint == fingerprint)
            if wanted is not None:
                statement = statement.where(scope.among(table.c.key, wanted))
            found = scope.all(statement.order_by(table.c.key))
            decode = vectors.from_sent if scope.kind == "postgresql" else vectors.from_blobs
            return np.array([row[0] for row in found], dtype=np.int64), decode([row[1] for row in found], dimension)

        return self._database.read(self._tenant, work)

    def nearest(
        self, fingerprint: str, vector: Vectors, k: int, *, keys: ArrayLike | None = None
    ) -> tuple[Keys, Vectors]:
        """At most `k` keys and their inner products with `vector`, best first: exact, computed by pgvector.

        Raises:
            StorageError: the store is SQLite, where a faiss index does this; or the dimension is not the embedder's.
        """
        if self._database.kind != "postgresql":
            raise StorageError(
                "SQLite cannot search vectors", subject=self._database.shown, remedy="Search an index of `vectors()`."
            )
        if k < 1:
            raise ConfigError(f"k is {k}", remedy="Ask for at least one.")
        wanted = None if keys is None else vectors.checked_keys(keys)
        bound = vectors.to_column("postgresql", vectors.checked_vectors(np.reshape(vector, (1, -1)), 1))[0]
        table = tables.embeddings

        def work(scope: Scope) -> tuple[Keys, Vectors]:
            dimension = _dimension(scope, fingerprint)
            if dimension is not None and dimension != np.size(vector):
                raise _wrong_dimension(fingerprint, dimension, int(np.size(vector)))
            # pgvector's operator gives the negative inner product, so that smaller is nearer.
            distance = table.c.vector.op("<#>")(vectors.as_vector(bound))
            statement = scope.select(table.c.key, distance.label("distance")).where(table.c.fingerprint == fingerprint)
            if wanted is not None:
                statement = statement.where(scope.among(table.c.key, wanted))
            found = scope.all(statement.order_by(literal_column("distance"), table.c.key).limit(k))
            return (
                np.array([row[0] for row in found], dtype=np.int64),
                np.array([-row[1] for row in found], dtype=np.float32),
            )

        return self._database.read(self._tenant, work)

    def _bound_vectors(self, fingerprint: str | None, given: Vectors | None, count: int) -> tuple[Sequence[Any], int]:
        if (fingerprint is None) != (given is None):
            raise StorageError("fingerprint and vectors belong together", remedy="Give both, or neither.")
        if fingerprint is None or given is None:
            return [], 0
        checked_name(fingerprint, "the fingerprint")
        array = vectors.checked_vectors(given, count)
        return vectors.to_column(self._database.kind, array), array.shape[1]

    def _put_head(self, scope: Scope, head: Mapping[str, Any]) -> bool:
        """Write the document's own row, drop what was derived from an older one; whether it is new."""
        table = tables.documents
        stamped = {**head, "updated_at": now()}
        if scope.insert_missing(table, stamped):
            return True
        changes = {name: value for name, value in stamped.items() if name != "id"}
        if not scope.execute(scope.update(table).where(table.c.id == head["id"]).values(**changes)).rowcount:
            # Deleted by somebody else since the line above; now the row's place is free.
            return self._put_head(scope, head)
        for derived in (tables.chunks, tables.document_graphs):
            scope.execute(scope.delete(derived).where(derived.c.document_id == head["id"]))
        return False

    def _check_space(self, scope: Scope, fingerprint: str, dimension: int) -> None:
        known = _dimension(scope, fingerprint)
        if known is None:
            scope.insert_missing(tables.vector_spaces, {"fingerprint": fingerprint, "dimension": dimension})
            known = _dimension(scope, fingerprint)
        if known != dimension:
            raise _wrong_dimension(fingerprint, known, dimension)

    def list(self, prefix: str = "") -> list[DocumentInfo]:
        """The documents whose source begins with `prefix`, by source, then id."""
        table = tables.documents
        checked_text(prefix, "the prefix")

        def work(scope: Scope) -> list[DocumentInfo]:
            statement = scope.select(*(table.c[name] for name in rows.INFO_COLUMNS))
            if prefix:
                statement = statement.where(func.substr(table.c.source, 1, len(prefix)) == prefix)
            return [rows.to_info(row) for row in scope.all(statement.order_by(table.c.source, table.c.id))]

        return self._database.read(self._tenant, work)


def _bump(scope: Scope) -> None:
    # Last in its transaction: on PostgreSQL this row is held until the commit, and every writer of a tenant needs it.
    table = tables.tenants
    scope.upsert(table, {"revision": 1}, revision=table.c.revision + 1)


def _dimension(scope: Scope, fingerprint: str) -> int | None:
    table = tables.vector_spaces
    row = scope.first(scope.select(table.c.dimension).where(table.c.fingerprint == fingerprint))
    return int(row[0]) if row else None


def _wrong_dimension(fingerprint: str, known: int | None, given: int) -> StorageError:
    return StorageError(
        f"vectors of {given:,} dimensions, but those stored have {known}",
        subject=fingerprint,
        remedy="Give other weights another fingerprint.",
    )
