"""The entity graph of a tenant, as its documents' counts: `store.graph`. It is written by `store.documents.put`."""

from __future__ import annotations

from typing import Any

from ctxkit.errors import NotFoundError
from ctxkit.storage import tables
from ctxkit.storage.checks import checked_text
from ctxkit.storage.database import Database
from ctxkit.storage.graph_rows import DocumentGraph, from_row
from ctxkit.storage.tenancy import Scope

__all__ = ["Graph"]

_COLUMNS = tuple(tables.document_graphs.c[name] for name in ("nodes", "keys", "mentions", "links", "aliases"))


class Graph:
    """What each document of one tenant adds to the entity graph.

    Example:
        >>> from ctxkit.graph import EntityGraph
        >>> from ctxkit.storage import Store
        >>> with Store.open("sqlite://") as store:
        ...     EntityGraph.from_counts(store.graph.load())
        EntityGraph(0 chunks, 0 entities, 0 mentions, 0 links, 0 aliases)
    """

    def __init__(self, database: Database, tenant: str) -> None:
        self._database = database
        self._tenant = tenant

    def load(self) -> list[DocumentGraph]:
        """The counts of every document that names an entity, by document id: one read, of one row a document."""

        def work(scope: Scope) -> list[DocumentGraph]:
            statement = scope.select(*_COLUMNS).order_by(tables.document_graphs.c.document_id)
            return [from_row(row) for row in scope.all(statement)]

        return self._database.read(self._tenant, work)

    def exists(self) -> bool:
        """Whether any document names an entity. Reads one row at most."""

        def work(scope: Scope) -> bool:
            return scope.first(scope.select(tables.document_graphs.c.document_id).limit(1)) is not None

        return self._database.read(self._tenant, work)

    def get(self, document_id: str) -> DocumentGraph:
        """The counts of one document; empty for one that names no entity. Raises `NotFoundError` for none."""
        graphs, documents = tables.document_graphs, tables.documents
        wanted = checked_text(document_id, "a document id")

        def work(scope: Scope) -> tuple[Any, Any]:
            known = scope.first(scope.select(documents.c.id).where(documents.c.id == wanted))
            return known, scope.first(scope.select(*_COLUMNS).where(graphs.c.document_id == wanted))

        known, row = self._database.read(self._tenant, work)
        if known is None:
            raise NotFoundError(
                "there is no such document", subject=wanted, remedy="`store.documents.list()` names the ones there are."
            )
        return DocumentGraph.empty() if row is None else from_row(row)
