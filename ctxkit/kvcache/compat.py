"""What differs between the versions of transformers from 5.2 on, in one place.

| what | 5.2 | 5.4 | 5.14 | 5.16 | 5.24 |
|---|---|---|---|---|---|
| the cache's parameter of a model | `past_key_values` | | | | `cache` |
| `get_mask_sizes` is given | positions | a number | | | |
| the longest length is asked for as | `get_max_cache_shape` | | `get_max_length` | | |
| `crop(n)` of a positive n | keep n | | | deprecated | refused |
| `crop(0)` | remove all | | | remove nothing | |
"""

from __future__ import annotations

import inspect
from functools import cache, lru_cache
from typing import Any

from ctxkit.errors import KVCacheError
from ctxkit.settings import require

__all__ = ["cache_argument", "cache_utils", "crop_zero_removes_all", "plain_layers", "query_length"]

_PLAIN = "DynamicLayer"
_SLIDING = "DynamicSlidingWindowLayer"
_EMPTY = "DummyLayer"
"""Of a layer that reads another layer's keys and values."""

_KINDS = ("full_attention", "sliding_attention", "chunked_attention")


def cache_utils() -> Any:
    """The module `transformers.cache_utils`. Errors: `MissingExtraError`."""
    return require("transformers.cache_utils", extra="local", subject="kvcache")


@cache
def crop_zero_removes_all() -> bool:
    """Whether `crop(0)` means a length of 0 (before 5.16) instead of nothing to remove."""
    transformers = require("transformers", extra="local", subject="kvcache")
    major, minor = (int(part) for part in transformers.__version__.split(".")[:2])
    return (major, minor) < (5, 16)


def query_length(query: Any) -> int:
    """The number of new tokens that `get_mask_sizes` was called for: a number, or the tensor of their positions."""
    return query if isinstance(query, int) else int(query.shape[0]) if query.ndim else int(query)


@lru_cache(maxsize=32)
def _argument(forward: Any) -> str:
    return "cache" if "cache" in inspect.signature(forward).parameters else "past_key_values"


def cache_argument(model: Any) -> str:
    """The name under which this model's `forward` and `generate` take a cache."""
    return _argument(type(model).forward)


def plain_layers(config: Any) -> list[Any]:
    """The layers of the uncompressed cache that transformers would make for this model.

    Returns:
        Layers of three kinds, told apart by `is_plain`, `is_sliding_window`, or else empty ones.

    Errors: `KVCacheError` for an encoder-decoder, a model without keys and values, or a layer of another kind.
    """
    subject = str(getattr(config, "model_type", "") or type(config).__name__)
    remedy = "Use the model's own cache: leave the compressed one away."
    if getattr(config, "is_encoder_decoder", False):
        raise KVCacheError(
            "an encoder-decoder has two caches, which are not compressed", subject=subject, remedy=remedy
        )
    text = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config
    if not (getattr(text, "num_hidden_layers", None) and getattr(text, "num_attention_heads", None)):
        raise KVCacheError("the model has no attention, so no keys and values to keep", subject=subject, remedy=remedy)
    if not hasattr(text, "use_cache"):
        raise KVCacheError("the model keeps no keys and values: it is no decoder", subject=subject, remedy=remedy)
    try:
        layers: list[Any] = list(cache_utils().DynamicCache(config=config).layers)
    except KeyError as error:
        raise KVCacheError(f"layers of the kind {error} are not known", subject=subject, remedy=remedy) from error
    kinds = getattr(text, "layer_types", None) or []
    for index, layer in enumerate(layers):
        kind = kinds[index] if index < len(kinds) else _KINDS[0]
        of_layer = type(layer).__name__
        # Older versions make a plain layer of every kind that they do not know.
        if of_layer not in (_PLAIN, _SLIDING, _EMPTY) or (of_layer == _PLAIN and kind not in _KINDS):
            raise KVCacheError(f"layer {index} is of the kind {kind}", subject=subject, remedy=remedy)
    return layers


def is_plain(layer: Any) -> bool:
    """Whether a layer of `plain_layers` attends to every token."""
    return type(layer).__name__ == _PLAIN


def is_sliding_window(layer: Any) -> bool:
    """Whether a layer of `plain_layers` attends to the last tokens only."""
    return type(layer).__name__ == _SLIDING
