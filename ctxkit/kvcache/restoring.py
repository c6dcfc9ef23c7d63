"""Between a cache of transformers and the payload of a block: which layers go together, cutting out, putting back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ctxkit.errors import KVCacheError
from ctxkit.kvcache.blocks import Payload
from ctxkit.kvcache.codecs import Codec
from ctxkit.settings import require

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["cut", "groups_of", "restore"]

SINKS = 4
"""Exact tokens at the start of a sequence."""

Layers = Sequence[tuple["Tensor", "Tensor"]]
"""Keys and values of each layer, each `(1, heads, tokens, dim)`."""


def groups_of(layers: Layers) -> tuple[tuple[int, ...], ...]:
    """The layers that are packed as one: those of equal heads and dims, in the order of their first. O(layers)."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for number, (keys, values) in enumerate(layers):
        groups.setdefault((keys.shape[1], keys.shape[3], values.shape[3]), []).append(number)
    return tuple(map(tuple, groups.values()))


def cut(layers: Layers, start: int, end: int, *, groups: Sequence[Sequence[int]], codec: Codec) -> dict[str, Tensor]:
    """The payload of the tokens `[start, end)`: per group the codec's tensors, of leading axes `(layers, heads)`.

    The first tokens of a sequence, which all others attend to, stay exact beside what a codec rounds.
    """
    torch: Any = require("torch", extra="local")
    payload: dict[str, Tensor] = {}
    for number, group in enumerate(groups):
        keys, values = (torch.stack([layers[layer][which][0, :, start:end] for layer in group]) for which in (0, 1))
        if start == 0 and codec.name != "none":
            for name, whole in (("sink_keys", keys), ("sink_values", values)):
                payload[f"{number}.{name}"] = _halved(torch, whole[..., :SINKS, :])
                # Their outliers must not set the scale of a group that they share with other tokens.
                whole[..., :SINKS, :] = whole[..., SINKS : SINKS + 1, :]
        payload.update({f"{number}.{name}": tensor for name, tensor in codec.encode(keys, values).items()})
    return payload


def restore(
    payloads: Sequence[Payload],
    lengths: Sequence[int],
    *,
    groups: Sequence[Sequence[int]],
    codec: Codec,
    dtype: Any,
    device: Any,
) -> list[tuple[Tensor, Tensor]]:
    """Keys and values of every layer, blocks one after the other, in memory of their own.

    Args:
        payloads: of blocks that follow each other, as `cut` made them.
        lengths: tokens of each.

    Errors: `KVCacheError` where a payload is not of these groups.
    """
    torch: Any = require("torch", extra="local")
    total = sum(lengths)
    layers: dict[int, tuple[Tensor, Tensor]] = {}
    for number, group in enumerate(groups):
        joined: list[Tensor] = []
        start = 0
        for payload, tokens in zip(payloads, lengths, strict=True):
            prefix = f"{number}."
            block = {name[len(prefix) :]: tensor for name, tensor in payload.items() if name.startswith(prefix)}
            exact = [block.pop("sink_keys", None), block.pop("sink_values", None)]
            try:
                parts = codec.decode(block, tokens=tokens, dtype=dtype, device=device)
            except KeyError as error:
                raise KVCacheError(
                    f"a block lacks the tensor {error}", subject=codec.name, remedy="Delete it; it is computed again."
                ) from error
            if not joined:
                joined = [
                    torch.empty((*part.shape[:-2], total, part.shape[-1]), dtype=dtype, device=device) for part in parts
                ]
            for whole, part in zip(joined, parts, strict=True):
                if part.shape[0] != len(group) or part.shape[-2] != tokens:
                    raise KVCacheError(
                        f"a block holds {part.shape[-2]} tokens of {part.shape[0]} layers, not {tokens} of "
                        f"{len(group)}",
                        subject=codec.name,
                        remedy="Delete it; it is computed again.",
                    )
                whole[..., start : start + tokens, :] = part
                if start == 0 and (sink := exact.pop(0)) is not None:
                    whole[..., : sink.shape[-2], :] = sink
            start += tokens
        for row, layer in enumerate(group):
            layers[layer] = (joined[0][row][None], joined[1][row][None])
    return [layers[layer] for layer in sorted(layers)]


def _halved(torch: Any, x: Tensor) -> Tensor:
    """A copy in half the bytes, where every number of it fits."""
    half: Tensor = x.to(torch.float16)
    return half if x.dtype == torch.float32 and bool(half.isfinite().all()) else x.clone()
