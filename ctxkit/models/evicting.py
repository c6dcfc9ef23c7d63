"""Eviction between the prefill of a prompt and the first token of its answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from ctxkit.kvcache.cache import CompressedCache
from ctxkit.kvcache.compat import is_sliding_window
from ctxkit.kvcache.eviction.protocol import Evicted, Eviction, evict
from ctxkit.kvcache.eviction.reading import Queries, observe, per_layer_masks
from ctxkit.kvcache.layer import CompressedLayer

__all__ = ["PromptEviction"]


class PromptEviction:
    """Evicts from one prompt's cache. What was computed goes to the store whole, before; what is left never does.

    Args:
        store: takes keys and values, as `KeyValueCache`.

    Attributes:
        done: what the eviction did, once it has.
    """

    def __init__(self, eviction: Eviction, model: Any, ids: Sequence[int], store: Any) -> None:
        self._eviction = eviction
        self._model = model
        self._ids = ids
        self._store = store
        self._queries: Queries | None = None
        self.done: Evicted | None = None

    @contextmanager
    def prefill(self) -> Iterator[None]:
        """Around the passes that read the prompt."""
        with observe(self._model, self._eviction.method) as self._queries:
            yield

    def after(self, cache: Any) -> CompressedCache:
        """The cache to go on with."""
        held = _adopted(self._model, cache)
        self._store.give(self._model, list(self._ids), cache)
        self.done = evict(held, self._eviction, model=self._model, ids=self._ids, queries=self._queries)
        return held

    @contextmanager
    def decode(self) -> Iterator[None]:
        """Around the passes that write the answer."""
        with nullcontext() if self._eviction.even else per_layer_masks(self._model):
            yield


def _adopted(model: Any, cache: Any) -> CompressedCache:
    """The same keys and values in a cache that can be evicted from."""
    if isinstance(cache, CompressedCache):
        return cache
    made = CompressedCache(model.config, codec="none")
    for index, layer in enumerate(cache.layers):
        if isinstance(made.layers[index], CompressedLayer) or not is_sliding_window(layer):
            made.layers[index].update(layer.keys, layer.values)
        else:
            made.layers[index] = layer  # it holds its window, and counts what it has seen
    return made
