"""Four bits a number, 4.5 with everything that belongs to them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ctxkit.kvcache.codecs.offsets import add_offsets, take_offsets
from ctxkit.kvcache.codecs.packing import channel_group
from ctxkit.kvcache.codecs.protocol import check_pair
from ctxkit.kvcache.codecs.rotation import rotate
from ctxkit.kvcache.codecs.symmetric import dequantise, quantise

if TYPE_CHECKING:
    from torch import Tensor, device, dtype

__all__ = ["Int4Codec"]


@dataclass(frozen=True, kw_only=True)
class Int4Codec:
    """Codes of four bits around a zero point of 8, per token, with an FP16 scale for a group of channels.

    Errors of keys cost some ten times what errors of values do, so keys get the bits: groups of 32 channels, and one
    FP16 offset a channel for 64 tokens; values have groups of 64. Together 4.5 bits a number where 64 divides the
    channels of a head. Packed: `keys`, `values` of `(..., tokens, dim / 2)` bytes, `key_scales` `(..., tokens,
    dim / 32)`, `value_scales` `(..., tokens, dim / 64)`, `key_offsets` `(..., tokens / 64, dim)`. Where the channels of
    a head are no multiple, groups are smaller (see `channel_group`).

    Args:
        rotate: spread outliers over the channels first (a Hadamard rotation).
        search: look for the scale with the least squared error.
        centre: take the offsets out of the keys. Without them keys and values have groups of 32, also 4.5 bits.

    `search` changes how bytes are made; the other two also how they are read, so they are part of the name.
    """

    rotate: bool = True
    search: bool = True
    centre: bool = True

    version: ClassVar[int] = 1
    group_tokens: ClassVar[int] = 64

    @property
    def name(self) -> str:
        return "int4" + ("" if self.rotate else "-unrotated") + ("" if self.centre else "-uncentred")

    def encode(self, keys: Tensor, values: Tensor) -> dict[str, Tensor]:
        check_pair(keys, values)
        block = {}
        rest = keys.detach().float()
        if self.centre:
            rest, block["key_offsets"] = take_offsets(rest, self.group_tokens)
        block["keys"], block["key_scales"] = self._quantise(rest, self._key_group(keys.shape[-1]))
        group = self._value_group(values.shape[-1])
        block["values"], block["value_scales"] = self._quantise(values.detach().float(), group)
        return block

    def decode(
        self, block: Mapping[str, Tensor], *, tokens: int, dtype: dtype, device: device | None = None
    ) -> tuple[Tensor, Tensor]:
        keys, values = (
            self._dequantise(block[f"{what}s"][..., :tokens, :], block[f"{what}_scales"][..., :tokens, :])
            for what in ("key", "value")
        )
        if self.centre:
            keys = add_offsets(keys, block["key_offsets"], self.group_tokens)
        return keys.to(device=device, dtype=dtype), values.to(device=device, dtype=dtype)

    def nbytes(self, heads: int, tokens: int, dim: int, *, itemsize: int = 2) -> int:
        scales = dim // self._key_group(dim) + dim // self._value_group(dim)
        offsets = -(-tokens // self.group_tokens) * dim if self.centre else 0
        return heads * (tokens * (dim + 2 * scales) + 2 * offsets)

    def _key_group(self, dim: int) -> int:
        return channel_group(dim, codec=self.name)

    def _value_group(self, dim: int) -> int:
        group = channel_group(dim, codec=self.name)
        return math.gcd(dim, 2 * group) if self.centre else group

    def _quantise(self, x: Tensor, group: int) -> tuple[Tensor, Tensor]:
        return quantise(rotate(x) if self.rotate else x, group, search=self.search)

    def _dequantise(self, packed: Tensor, scales: Tensor) -> Tensor:
        x = dequantise(packed, scales)
        return rotate(x) if self.rotate else x
