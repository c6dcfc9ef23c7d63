"""Four and a half bits a number, 4.75 with everything that belongs to them, and half the loss of `int4`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ctxkit.kvcache.codecs.codebook import dequantise, quantise
from ctxkit.kvcache.codecs.offsets import add_offsets, take_offsets
from ctxkit.kvcache.codecs.packing import channel_group
from ctxkit.kvcache.codecs.protocol import check_pair
from ctxkit.kvcache.codecs.rotation import rotate

if TYPE_CHECKING:
    from torch import Tensor, device, dtype

__all__ = ["Int4HQCodec"]

_KEY_BITS, _VALUE_BITS = 5, 4
_LARGEST_GROUP = 64


@dataclass(frozen=True, kw_only=True)
class Int4HQCodec:
    """Keys in five bits and values in four, rotated, in codebooks, with one scale of a byte for 64 channels of a token.

    Keys have an offset a channel for 32 tokens, of a byte too. What scales and offsets of FP16 would take is spent on a
    fifth bit of the keys, whose errors cost most. Packed: `keys` of `(..., tokens, dim * 5 / 8)` bytes, `values` of
    `(..., tokens, dim / 2)`, `key_scales` and `value_scales` of `(..., tokens, dim / 64)`, `key_offsets` of
    `(..., tokens / 32, dim)`. Where the channels of a head are no multiple of 64, groups are smaller.
    """

    name: ClassVar[str] = "int4-hq"
    version: ClassVar[int] = 2
    group_tokens: ClassVar[int] = 32

    def encode(self, keys: Tensor, values: Tensor) -> dict[str, Tensor]:
        check_pair(keys, values)
        rest, offsets = take_offsets(keys.detach().float(), self.group_tokens, bits=8)
        block = {"key_offsets": offsets}
        block["keys"], block["key_scales"] = quantise(rotate(rest), _group(keys.shape[-1]), _KEY_BITS)
        turned = rotate(values.detach().float())
        block["values"], block["value_scales"] = quantise(turned, _group(values.shape[-1]), _VALUE_BITS)
        return block

    def decode(
        self, block: Mapping[str, Tensor], *, tokens: int, dtype: dtype, device: device | None = None
    ) -> tuple[Tensor, Tensor]:
        keys, values = (
            rotate(dequantise(block[f"{what}s"][..., :tokens, :], block[f"{what}_scales"][..., :tokens, :], bits))
            for what, bits in (("key", _KEY_BITS), ("value", _VALUE_BITS))
        )
        keys = add_offsets(keys, block["key_offsets"], self.group_tokens)
        return keys.to(device=device, dtype=dtype), values.to(device=device, dtype=dtype)

    def nbytes(self, heads: int, tokens: int, dim: int, *, itemsize: int = 2) -> int:
        codes = dim * (_KEY_BITS + _VALUE_BITS) // 8
        offsets = -(-tokens // self.group_tokens) * dim
        return heads * (tokens * (codes + 2 * (dim // _group(dim))) + offsets)


def _group(dim: int) -> int:
    channel_group(dim, codec=Int4HQCodec.name)  # refuses heads that have none
    return math.gcd(dim, _LARGEST_GROUP)
