"""Prefill and decode of a causal language model, step by step, with honest times.

A loop of our own instead of `generate()`: prefill and decode are timed apart, a caller may stop between any two tokens,
chance comes from a generator of its own, and a cache that already holds a prefix is used as it is.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from ctxkit.errors import KVCacheError
from ctxkit.kvcache.identity import PREFILL_GRID
from ctxkit.models.evicting import PromptEviction
from ctxkit.settings import require

__all__ = ["FreshCache", "KeyValueCache", "Step", "cache_name", "decode_steps", "prefill_spans"]


class KeyValueCache(Protocol):
    """Gives a model the keys and values that it need not compute again, and takes what it computed.

    A cache is any object that the model's `forward` takes as its key-value cache (a `transformers.Cache`).
    """

    def take(self, model: Any, ids: Sequence[int]) -> tuple[Any, int]:
        """A cache for these ids, and how many of them, from the first, it already holds (fewer than all)."""
        ...

    def give(self, model: Any, ids: Sequence[int], cache: Any) -> None:
        """The cache after an answer; it holds the keys and values of `ids`."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """One generated id, and the seconds that it took: for the first one, those of the prefill."""

    token: int
    seconds: float


class FreshCache:
    """No reuse: every prompt gets an empty `DynamicCache`."""

    def take(self, model: Any, ids: Sequence[int]) -> tuple[Any, int]:
        cache_utils: Any = require("transformers.cache_utils", extra="local")
        return cache_utils.DynamicCache(config=model.config), 0

    def give(self, model: Any, ids: Sequence[int], cache: Any) -> None:
        return None


def decode_steps(
    model: Any,
    ids: Sequence[int],
    *,
    cache: Any,
    reused: int,
    step: int = PREFILL_GRID,
    max_tokens: int,
    stop_ids: frozenset[int],
    temperature: float,
    top_p: float,
    seed: int | None,
    check: Callable[[], None],
    eviction: PromptEviction | None = None,
) -> Iterator[Step]:
    """Generate ids after `ids`; a stop id ends it and is the last one yielded.

    Args:
        model: a causal language model of transformers, in evaluation mode.
        cache: its key-value cache, which holds the first `reused` ids already.
        step: ids that are read at once in the prefill.
        temperature: 0 takes the likeliest id; else ids are drawn from `softmax(logits / temperature)` cut at `top_p`.
        seed: of a generator of its own; the global state of chance is neither read nor changed.
        check: called between steps; may raise.
        eviction: watches the prefill, and gives the cache to go on with.
    """
    torch: Any = require("torch", extra="local")
    forward = _Forward(model, cache)
    generator = None
    if temperature > 0:
        generator = torch.Generator(device=model.device)
        generator.seed() if seed is None else generator.manual_seed(seed)
    # Inference mode is entered for each step and not around the loop: a generator's frame may be resumed elsewhere.
    started = time.perf_counter()
    logits = None
    with eviction.prefill() if eviction else nullcontext():
        for start, end in prefill_spans(reused, len(ids), step):
            check()
            with torch.inference_mode():
                logits = forward(ids[start:end])
    if not _was_filled(cache):
        raise KVCacheError(
            "it keeps no keys and values, and would answer from its last token alone",
            subject=type(model).__name__,
            remedy="Use a causal language model with a cache (a decoder).",
        )
    if eviction is not None:
        with torch.inference_mode():
            cache = eviction.after(cache)
        forward = _Forward(model, cache)
    with torch.inference_mode():
        token = _choose(torch, logits, temperature, top_p, generator)
    yield Step(token, time.perf_counter() - started)
    for _ in range(max_tokens - 1):
        if token in stop_ids:
            return
        check()
        started = time.perf_counter()
        with torch.inference_mode(), eviction.decode() if eviction else nullcontext():
            logits = forward([token])
            token = _choose(torch, logits, temperature, top_p, generator)
        yield Step(token, time.perf_counter() - started)


def prefill_spans(reused: int, count: int, step: int = PREFILL_GRID) -> Iterator[tuple[int, int]]:
    """The steps of a prefill: up to each multiple of `step`, then the rest, with or without a cache.

    Matrix kernels choose how they sum, and so round, by the shapes that they are called with. On one grid a prompt
    whose prefix was restored runs through the same shapes as one that is computed whole, and gives the same bits.
    """
    start = reused
    while start < count:
        end = min(count, (start // step + 1) * step)
        yield start, end
        start = end


def _was_filled(cache: Any) -> bool:
    """Whether a model wrote to a cache; taken as true of caches of another kind."""
    layers = getattr(cache, "layers", None)
    return layers is None or any(getattr(layer, "is_initialized", True) for layer in layers)


class _Forward:
    """Calls the model; returns the logits after the last id, of shape `(vocabulary,)`."""

    def __init__(self, model: Any, cache: Any) -> None:
        self._torch: Any = require("torch", extra="local")
        self._model = model
        self._cache = cache
        self._cache_name, self._keeps = _interface(type(model).forward)

    def __call__(self, ids: Sequence[int]) -> Any:
        arguments: dict[str, Any] = {self._cache_name: self._cache, "use_cache": True}
        if self._keeps:
            arguments["logits_to_keep"] = 1
        tensor = self._torch.tensor([list(ids)], device=self._model.device)
        return self._model(input_ids=tensor, **arguments).logits[0, -1]


def cache_name(forward: Any) -> str:
    """What a model's `forward` calls its key-value cache."""
    return _interface(forward)[0]


@lru_cache(maxsize=32)
def _interface(forward: Any) -> tuple[str, bool]:
    """The name of the cache's parameter (`cache` from transformers 5.24 on), and whether `logits_to_keep` is known."""
    names = inspect.signature(forward).parameters
    return "cache" if "cache" in names else "past_key_values", "logits_to_keep" in names


def _choose(torch: Any, logits: Any, temperature: float, top_p: float, generator: Any) -> int:
    if temperature == 0:
        return int(logits.argmax())
    weights = torch.softmax(logits.float() / temperature, dim=-1)
    if top_p < 1:
        ordered, order = weights.sort(descending=True, stable=True)
        ordered[ordered.cumsum(-1) - ordered >= top_p] = 0  # the first one always stays
        weights = torch.zeros_like(weights).scatter(0, order, ordered)
    return int(torch.multinomial(weights, 1, generator=generator))
