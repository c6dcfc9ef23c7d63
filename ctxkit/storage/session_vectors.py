"""Embeddings of what a session shows, each beside the message that it belongs to: they go when it goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import LargeBinary, func

from ctxkit.storage import tables
from ctxkit.storage.session_views import View, find, within
from ctxkit.storage.tenancy import Scope
from ctxkit.storage.vectors import checked_vectors, to_column

__all__ = ["Vectors", "read_vectors", "write_vectors"]

Vectors = Mapping[int, tuple[str, NDArray[np.float32]]]
"""By the number of a message: the digest of the text that was embedded, and its vector."""

_SEGMENTS = 100


def read_vectors(scope: Scope, session: str, fingerprint: str) -> dict[int, tuple[str, NDArray[np.float32]]]:
    """The vectors of the messages that a session shows, its shared past included."""
    view = find(scope, session)
    if view is None:
        return {}
    table = tables.message_vectors
    postgresql = scope.kind == "postgresql"
    column: Any = func.vector_send(table.c.vector, type_=LargeBinary) if postgresql else table.c.vector
    found: dict[int, tuple[str, NDArray[np.float32]]] = {}
    segments = list(view.segments(view.active))
    for at in range(0, len(segments), _SEGMENTS):
        statement = scope.select(table.c.sequence, table.c.digest, column, source=table).where(
            table.c.fingerprint == fingerprint, within(table, segments[at : at + _SEGMENTS])
        )
        for sequence, digest, raw in scope.all(statement):
            # `vector_send` begins with two 16-bit integers: the dimension, and one that is not used.
            values = np.frombuffer(bytes(raw[4:]) if postgresql else raw, dtype=">f4" if postgresql else "<f4")
            found[int(sequence)] = str(digest), values.astype(np.float32)
    return found


def write_vectors(scope: Scope, session: str, fingerprint: str, given: Vectors, *, encrypted: bool) -> int:
    """Keep vectors beside their messages; those of messages that are gone, or encrypted, are left out. How many."""
    view = find(scope, session)
    if view is None or not given:
        return 0
    owners = _owners(scope, view, sorted(given), encrypted)
    numbers = sorted(owners)
    if not numbers:
        return 0
    array = checked_vectors(np.stack([given[number][1] for number in numbers]), len(numbers))
    columns = to_column(scope.kind, array)
    table = tables.message_vectors
    for number, value in zip(numbers, columns, strict=True):
        row = {
            "session_id": owners[number],
            "sequence": number,
            "fingerprint": fingerprint,
            "digest": given[number][0],
            "vector": value,
        }
        scope.upsert(table, row, digest=row["digest"], vector=value)
    return len(numbers)


def _owners(scope: Scope, view: View, numbers: Sequence[int], encrypted: bool) -> dict[int, str]:
    """Whose row each number is, of the rows that are there; locked, so that they stay until the vectors are written."""
    table = tables.messages
    statement = scope.select(table.c.session_id, table.c.sequence, table.c.key_id).where(
        scope.among(table.c.session_id, view.owners), scope.among(table.c.sequence, numbers)
    )
    return {
        int(row.sequence): row.session_id
        for row in scope.all(scope.locked(statement))
        if view.owns(row) and (encrypted or row.key_id is None)
    }
