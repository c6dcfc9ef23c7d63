"""What a method of eviction sees: the queries of tokens that were read, caught by hooks, and the keys that they met."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ctxkit.errors import KVCacheError
from ctxkit.kvcache.codecs.protocol import torch_module
from ctxkit.kvcache.layer import CompressedLayer

if TYPE_CHECKING:
    from torch import Tensor

    from ctxkit.kvcache.cache import CompressedCache

__all__ = ["Queries", "Reading", "attention_shares", "capture", "observe", "per_layer_masks"]

Seen = Callable[[Any, "Tensor", "Tensor"], None]
"""Called with an attention module and its queries before and after rotation, `(rows, query heads, tokens, dim)`."""


@dataclass(slots=True)
class Queries:
    """The queries of the last tokens that were read, by layer: `(rows, query heads, tokens, dim)`.

    Args:
        last: tokens that are kept.
        plain: before the rotation of positions.
        turned: after it, as attention uses them.
        modules: the attention of each layer.
    """

    last: int
    plain: dict[int, Tensor] = field(default_factory=dict)
    turned: dict[int, Tensor] = field(default_factory=dict)
    modules: dict[int, Any] = field(default_factory=dict)

    def add(self, module: Any, plain: Tensor, turned: Tensor) -> None:
        torch = torch_module()
        index = module.layer_idx
        self.modules[index] = module
        for held, new in ((self.plain, plain), (self.turned, turned)):
            old = held.get(index)
            if old is not None and old.shape[0] == new.shape[0]:
                new = torch.cat([old, new], 2)
            held[index] = new[:, :, -self.last :].clone()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A text that a model has read into a cache.

    Args:
        cache: holds the keys and values.
        model: of transformers; None where the method needs none.
        ids: of the text, one row; empty where they are not known.
        queries: of the last tokens that were read; None where they were not observed.
    """

    cache: CompressedCache
    model: Any = None
    ids: Sequence[int] = ()
    queries: Queries | None = None

    def layers(self) -> Iterator[tuple[int, CompressedLayer]]:
        """Number and layer of those that attend to every token: only these are evicted from."""
        for index, layer in enumerate(self.cache.layers):
            if isinstance(layer, CompressedLayer):
                yield index, layer

    def observed(self, method: str) -> Queries:
        """Errors: `KVCacheError` where the text was not read inside `observe`."""
        if self.queries is None or any(index not in self.queries.plain for index, _ in self.layers()):
            raise KVCacheError(
                "no queries were observed", subject=method, remedy="Read the text inside `with observe(model, method)`."
            )
        return self.queries


@contextmanager
def observe(model: Any, method: Any) -> Iterator[Queries]:
    """While it lasts, the queries of the last `method.observed` tokens of each layer are kept.

    They are projected a second time, and no attention is computed for them; a method that observes nothing sets no
    hook. The hooks always go.

    Errors: `KVCacheError` where the model's queries cannot be computed apart.
    """
    queries = Queries(method.observed)
    if not queries.last:
        yield queries
        return
    with capture(model, queries.add, last=queries.last):
        yield queries


@contextmanager
def capture(model: Any, seen: Seen, *, last: int | None = None) -> Iterator[None]:
    """Call `seen` after the attention of every layer, with the queries of the pass (of its `last` tokens).

    Of the passes of this thread: others may use the same weights.
    """
    torch = torch_module()
    thread = threading.get_ident()

    def hook(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], _: Any) -> None:
        if threading.get_ident() != thread:
            return
        hidden = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
        positions = kwargs.get("position_embeddings", args[1] if len(args) > 1 else None)
        if positions is None:
            raise KVCacheError(
                "its attention has no rotary positions, so its queries cannot be observed",
                subject=type(model).__name__,
                remedy="Leave eviction away for this model.",
            )
        cos, sin = positions
        start = 0 if last is None else max(0, hidden.shape[1] - last)
        with torch.no_grad():
            plain = module.q_proj(hidden[:, start:]).unflatten(-1, (-1, module.head_dim)).transpose(1, 2)
            norm = getattr(module, "q_norm", None)
            plain = plain if norm is None else norm(plain)
            # The model's own rotation: it turns pairs of channels, and each architecture pairs them its way.
            rotate = sys.modules[type(module).__module__].apply_rotary_pos_emb
            turned = rotate(plain, plain[:, :1], cos[:, start:], sin[:, start:])[0]
            seen(module, plain, turned)

    handles: list[Any] = []
    try:
        for module in _attention_modules(model):
            handles.append(module.register_forward_hook(hook, with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def per_layer_masks(model: Any) -> Iterator[None]:
    """While it lasts, layers of a cache that hold different numbers of tokens each get a mask of their own length.

    transformers makes one mask for all layers, by the length of the first. Only passes of several tokens need it, and
    only after an uneven eviction; without it such a pass is an error of torch about shapes. The hooks always go.
    """
    torch = torch_module()

    def hook(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
        cache = kwargs.get("cache", kwargs.get("past_key_values"))
        layers = getattr(cache, "layers", ())
        layer = layers[module.layer_idx] if module.layer_idx < len(layers) else None
        mask = kwargs.get("attention_mask")
        if not isinstance(layer, CompressedLayer) or mask is None or mask.ndim != 4:
            return None
        wanted = layer.length + mask.shape[2]
        missing = wanted - mask.shape[3]
        if not missing:
            return None
        # What is held before the pass is visible to all of it: rows are not padded.
        visible = True if mask.dtype == torch.bool else 0.0
        mask = torch.nn.functional.pad(mask, (missing, 0), value=visible) if missing > 0 else mask[..., -missing:]
        return args, {**kwargs, "attention_mask": mask}

    handles: list[Any] = []
    try:
        for module in _attention_modules(model):
            handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


def attention_shares(module: Any, queries: Tensor, keys: Tensor) -> Tensor:
    """How queries, of the last tokens that the keys are of, spread their attention.

    Args:
        module: an attention of transformers: it knows how scores are scaled.
        queries: `(rows, query heads, queries, dim)`, rotated.
        keys: `(rows, heads, tokens, dim)`.

    Returns:
        `(rows, heads, query heads of a head, queries, tokens)`, float32; each last axis sums to 1.

    O(queries tokens).
    """
    torch = torch_module()
    own, heads = queries.shape[2], keys.shape[1]
    scores = queries.unflatten(1, (heads, -1)) @ (keys[:, :, None].transpose(-1, -2) * module.scaling)
    later = torch.ones(own, own, dtype=torch.bool, device=keys.device).triu(1)
    scores[..., keys.shape[2] - own :].masked_fill_(later, float("-inf"))
    shares: Tensor = scores.float().softmax(-1)
    return shares


def _attention_modules(model: Any) -> list[Any]:
    found = [
        module
        for module in model.modules()
        if all(hasattr(module, name) for name in ("layer_idx", "q_proj", "head_dim", "scaling"))
        and hasattr(sys.modules[type(module).__module__], "apply_rotary_pos_emb")
    ]
    if not found:
        raise KVCacheError(
            "its attention has no projection of queries that can be observed",
            subject=type(model).__name__,
            remedy="Leave eviction away for this model.",
        )
    return found
