"""Keys moved to another position: rotary embeddings compose, so a turn by the difference is all that it takes.

RoPE (arXiv 2104.09864) turns the key at position p by the angles p·w, one frequency w for each pair of channels. The
key at position q is the key at p, turned by (q - p)·w. Values have no position.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from ctxkit.kvcache.compat import cache_argument, cache_utils
from ctxkit.settings import require

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["cannot_move", "move_keys"]

_TRIED = (7, 307)
"""Positions at which a model is tried."""

_TOLERANCE = 1e-3
"""Of the largest key: beyond it the angles of this model are not those of its rotary embedding."""

_tried: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def move_keys(model: Any, keys: Tensor, distance: int) -> Tensor:
    """Keys `(..., tokens, dim)` as if each token stood `distance` positions further on (or back).

    The angles are those of the model's own rotary embedding, so its scaling is theirs; the length that some scalings
    (YaRN) give to keys is in them already and is not given twice. Where only a part of the channels is turned the rest
    stays. Exact up to rounding; a new tensor. O(numbers).

    Example:
        move_keys(model, move_keys(model, keys, 300), -300)  # the keys
    """
    torch: Any = require("torch", extra="local")
    moved: Tensor
    if distance == 0:
        moved = keys.clone()
        return moved
    rotary = _rotary(model)
    with torch.inference_mode():
        position = torch.tensor([[distance]], device=keys.device)
        cos, sin = (part[0, 0].float() / _length(rotary) for part in rotary(keys.new_empty(1).float(), position))
        turned = keys[..., : cos.shape[-1]].float()
        half = turned.shape[-1] // 2
        across = torch.cat([-turned[..., half:], turned[..., :half]], dim=-1)
        turned = (turned * cos + across * sin).to(keys.dtype)
        moved = torch.cat([turned, keys[..., cos.shape[-1] :]], dim=-1)
    return moved


def cannot_move(model: Any) -> str:
    """Why this model's keys cannot be moved, or "".

    Beside its configuration the model itself is asked: the keys of one token at two positions must be one another,
    turned. So a model with positions of another kind, or with channels paired another way, is found out. Two passes
    of one token, once a model.
    """
    found = _tried.get(model)
    if found is None:
        found = _tried[model] = _reason(model) or _try(model)
    return found


def _reason(model: Any) -> str:
    config = model.config.get_text_config(decoder=True)
    if getattr(model.config, "is_encoder_decoder", False):
        return "the model has an encoder"
    if kinds := sorted({str(kind) for kind in getattr(config, "layer_types", None) or ()} - {"full_attention"}):
        return f"the model has layers of type {', '.join(kinds)}"
    if getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True):
        return "the model attends to a window only"
    rotary = _rotary(model)
    if rotary is None:
        return "the model has no rotary embedding"
    kind = str(getattr(rotary, "rope_type", "default"))
    if "dynamic" in kind or kind == "longrope":
        return f"its angles depend on the length of the prompt (RoPE of type {kind})"
    return ""


def _try(model: Any) -> str:
    torch: Any = require("torch", extra="local")
    found = []
    for position in _TRIED:
        cache = cache_utils().DynamicCache()
        with torch.inference_mode():
            model(
                input_ids=torch.ones((1, 1), dtype=torch.long, device=model.device),
                position_ids=torch.tensor([[position]], device=model.device),
                use_cache=True,
                **{cache_argument(model): cache},
            )
        found.append([(layer.keys, layer.values) for layer in cache.layers])
    tolerance = _TOLERANCE if found[0][0][0].dtype == torch.float32 else 30 * _TOLERANCE
    for (keys, values), (far_keys, far_values) in zip(*found, strict=True):
        moved = move_keys(model, keys, _TRIED[1] - _TRIED[0])
        for one, other in ((moved, far_keys), (values, far_values)):
            if one.shape != other.shape or (one - other).abs().max() > tolerance * (1 + other.abs().max()):
                return "its keys do not turn as its rotary embedding says"
    return ""


def _rotary(model: Any) -> Any:
    """The rotary embedding of a causal language model of transformers, or None."""
    return getattr(getattr(model, "model", model), "rotary_emb", None)


def _length(rotary: Any) -> float:
    """What the cosines and sines of a scaled embedding are multiplied by."""
    return float(getattr(rotary, "attention_scaling", 1.0) or 1.0)
