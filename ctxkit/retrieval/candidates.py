"""From keys and scores to candidates, and what every retriever checks first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ctxkit.documents import Candidate, Query
from ctxkit.errors import ConfigError
from ctxkit.stage_inputs import check_asked

if TYPE_CHECKING:
    from ctxkit.storage import Store

__all__ = ["check_query", "fetch"]


def check_query(store: Store, query: Query, k: int) -> bool:
    """Whether there is anything to look for: a query of white space alone finds nothing.

    Raises:
        ConfigError: `k` is not positive, or the query is none, or it belongs to another tenant than the store (law 10).
    """
    check_asked(query)
    if k < 1:
        raise ConfigError(f"k is {k}", remedy="Ask for at least one candidate.")
    if query.tenant != store.tenant:
        raise ConfigError(
            f"a query of tenant {query.tenant!r} reached the store of tenant {store.tenant!r}",
            remedy="Use a retriever over store.for_tenant(query.tenant).",
        )
    return bool(query.text.strip())


def fetch(store: Store, keys: NDArray[np.int64], signals: Mapping[str, NDArray[np.floating]]) -> list[Candidate]:
    """The candidates of these keys in their order; chunks that went since the search are left out.

    A score that is NaN, a signal that does not know the chunk, is left out of its candidate's scores.
    """
    chunks = store.documents.chunks(keys)
    found = []
    for position, key in enumerate(keys.tolist()):
        if key in chunks:
            scores = {name: float(values[position]) for name, values in signals.items()}
            known = {name: score for name, score in scores.items() if score == score}
            found.append(Candidate(chunks[key], known))
    return found
