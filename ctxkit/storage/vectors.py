"""Embeddings as a database holds them: float32 bytes on SQLite, pgvector's `vector` on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sqlalchemy import ColumnElement, Text, bindparam, cast

from ctxkit.errors import StorageError
from ctxkit.storage.tables import Vector

__all__ = ["as_vector", "checked_keys", "checked_vectors", "from_blobs", "from_sent", "to_column"]

Vectors = NDArray[np.float32]
Keys = NDArray[np.int64]


def checked_keys(keys: ArrayLike) -> list[int]:
    """Keys of any integer form as plain integers."""
    array = np.asarray(keys)
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise StorageError(f"keys are {array.dtype}, not integers", remedy="Use what keys() gave.")
    return [int(key) for key in array.reshape(-1)]


def checked_vectors(vectors: Vectors, count: int) -> Vectors:
    """Float32 of shape `(count, dimension)`, finite."""
    array = np.ascontiguousarray(vectors, dtype=np.float32)
    if array.ndim != 2 or array.shape[0] != count or (count and array.shape[1] == 0):
        raise StorageError(
            f"vectors of shape {array.shape} do not belong to {count:,} chunks",
            remedy="Give one row for each chunk, in order: shape (chunks, dimension).",
        )
    if not np.isfinite(array).all():
        row = int(np.argwhere(~np.isfinite(array))[0, 0])
        raise StorageError(f"vector {row} holds NaN or infinity", remedy="Check the embedder's output.")
    return array


def to_column(kind: str, vectors: Vectors) -> list[Any]:
    """What to bind for each row: bytes, or pgvector's text form (9 digits hold a float32 exactly)."""
    if kind == "postgresql":
        return ["[" + ",".join([f"{value:.9g}" for value in row]) + "]" for row in vectors.tolist()]
    little = vectors.astype("<f4", copy=False)
    return [row.tobytes() for row in little]


def from_blobs(blobs: Sequence[bytes], dimension: int) -> Vectors:
    """The rows of SQLite's bytes."""
    return np.frombuffer(b"".join(blobs), dtype="<f4").reshape(len(blobs), dimension).astype(np.float32, copy=False)


def from_sent(blobs: Sequence[bytes], dimension: int) -> Vectors:
    """The rows of `vector_send`: two 16-bit integers (dimension, unused), then big-endian float32."""
    joined = b"".join(bytes(blob[4:]) for blob in blobs)
    return np.frombuffer(joined, dtype=">f4").reshape(len(blobs), dimension).astype(np.float32)


def as_vector(text: str) -> ColumnElement[Any]:
    """pgvector's text form as a value of type `vector`, bound."""
    return cast(bindparam(None, text, type_=Text, unique=True), Vector())
