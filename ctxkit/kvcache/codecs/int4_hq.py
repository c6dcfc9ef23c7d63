"""Four bits a number with keys channel by channel: 4.75 bits with the scales, and less loss than `int4`.

Keys have channels that are large in every token (KIVI, arXiv 2402.02750): a scale and an offset a channel take that
out. Values have none, and are packed as `int4` packs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ctxkit.kvcache.codecs.asymmetric import dequantise as dequantise_channels
from ctxkit.kvcache.codecs.asymmetric import quantise as quantise_channels
from ctxkit.kvcache.codecs.packing import channel_group
from ctxkit.kvcache.codecs.protocol import check_pair
from ctxkit.kvcache.codecs.rotation import rotate
from ctxkit.kvcache.codecs.symmetric import dequantise, quantise

if TYPE_CHECKING:
    from torch import Tensor, device, dtype

__all__ = ["Int4HQCodec"]

_TOKENS = 32


@dataclass(frozen=True, kw_only=True)
class Int4HQCodec:
    """Keys per channel, asymmetric, groups of 32 tokens; values per token, rotated, groups of 32 channels.

    Packed: `keys` `(..., tokens up to whole groups, dim / 2)` bytes, `key_scales` and `key_offsets`
    `(..., groups, dim)` FP16, `values` and `value_scales` as those of `int4`. A last group of fewer than 32 tokens
    takes the room of a whole one.
    """

    name: ClassVar[str] = "int4-hq"
    version: ClassVar[int] = 1
    group_tokens: ClassVar[int] = _TOKENS

    def encode(self, keys: Tensor, values: Tensor) -> dict[str, Tensor]:
        check_pair(keys, values)
        channel_group(keys.shape[-1], codec=self.name)
        packed, scales, offsets = quantise_channels(keys.detach().float(), _TOKENS)
        group = channel_group(values.shape[-1], codec=self.name)
        values, value_scales = quantise(rotate(values.detach().float()), group)
        return {
            "keys": packed,
            "key_scales": scales,
            "key_offsets": offsets,
            "values": values,
            "value_scales": value_scales,
        }

    def decode(
        self, block: Mapping[str, Tensor], *, tokens: int, dtype: dtype, device: device | None = None
    ) -> tuple[Tensor, Tensor]:
        keys = dequantise_channels(block["keys"], block["key_scales"], block["key_offsets"])[..., :tokens, :]
        values = rotate(dequantise(block["values"][..., :tokens, :], block["value_scales"][..., :tokens, :]))
        return keys.to(device=device, dtype=dtype), values.to(device=device, dtype=dtype)

    def nbytes(self, heads: int, tokens: int, dim: int, *, itemsize: int = 2) -> int:
        groups = -(-tokens // _TOKENS)
        keys = groups * (_TOKENS * (dim // 2) + 2 * 2 * dim)
        values = tokens * (dim // 2 + 2 * (dim // channel_group(dim, codec=self.name)))
        return heads * (keys + values)
