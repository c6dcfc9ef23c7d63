"""What an embedder gives back, checked: every stage that is given one calls it through here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctxkit.errors import EmbeddingError
from ctxkit.protocols import Embedder

__all__ = ["embedded"]

_LARGEST = 65504.0
"""Of FP16, in which vectors are kept; a unit vector has nothing above 1."""


def embedded(embedder: Embedder, texts: Sequence[str]) -> NDArray[np.float32]:
    """The vectors of some texts: finite, real, one row for each text; shape `(n, embedder.dimension)`.

    Raises:
        EmbeddingError: the embedder gave something else; the message names it and says what is wrong.
    """
    name = type(embedder).__name__
    remedy = "An embedder returns one row for each text: an array of float32 of shape (texts, dimension)."
    dimension = getattr(embedder, "dimension", None)
    if isinstance(dimension, bool) or not isinstance(dimension, int | np.integer):
        raise EmbeddingError(
            f"the embedder's dimension is {dimension!r:.60}",
            subject=name,
            remedy="Give it an attribute dimension: the components of a vector, a whole number.",
        )
    vectors = _array(embedder.embed(texts), name, remedy)
    if vectors.shape != (len(texts), dimension):
        count = f"{len(texts)} texts" if len(texts) != 1 else "1 text"
        raise EmbeddingError(
            f"{count} gave vectors of shape {vectors.shape}, not {(len(texts), int(dimension))}",
            subject=name,
            remedy=remedy,
        )
    if not np.maximum.reduce(np.abs(vectors), axis=None, initial=0.0) <= _LARGEST:  # NaN is not, either
        raise EmbeddingError(
            "a vector holds NaN, infinity or a number beyond FP16", subject=name, remedy="Check the embedder's output."
        )
    return vectors.astype(np.float32, copy=False)


def _array(given: Any, name: str, remedy: str) -> NDArray[Any]:
    try:
        vectors = np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged rows, or a tensor of another device
        raise EmbeddingError(f"the embedder gave no array: {error}", subject=name, remedy=remedy) from error
    if vectors.dtype.kind not in "fiu":
        raise EmbeddingError(f"the embedder gave {vectors.dtype}, not numbers", subject=name, remedy=remedy)
    return vectors
