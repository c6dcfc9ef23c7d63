"""Four bits a number, token by token: 4.5 bits with the scales."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ctxkit.kvcache.codecs.packing import channel_group
from ctxkit.kvcache.codecs.protocol import check_pair
from ctxkit.kvcache.codecs.rotation import rotate
from ctxkit.kvcache.codecs.symmetric import dequantise, quantise

if TYPE_CHECKING:
    from torch import Tensor, device, dtype

__all__ = ["Int4Codec"]


@dataclass(frozen=True, kw_only=True)
class Int4Codec:
    """Groups of 32 channels of one token, an FP16 scale each, zero point 8.

    Every token stands alone, so blocks are cut and joined freely. Packed: `keys`, `values` of
    `(..., tokens, dim / 2)` bytes and `key_scales`, `value_scales` of `(..., tokens, dim / 32)`. Where 32 does not
    divide the channels of a head, groups are smaller (see `channel_group`).

    Args:
        rotate: spread outliers over the channels first (a Hadamard rotation).
        search: look for the scale with the least squared error.

    Both change how bytes are made; `rotate` also how they are read, so it is part of the name.
    """

    rotate: bool = True
    search: bool = True

    version: ClassVar[int] = 1
    group_tokens: ClassVar[int] = 1

    @property
    def name(self) -> str:
        return "int4" if self.rotate else "int4-plain"

    def encode(self, keys: Tensor, values: Tensor) -> dict[str, Tensor]:
        check_pair(keys, values)
        packed, key_scales = self._quantise(keys)
        values, value_scales = self._quantise(values)
        return {"keys": packed, "key_scales": key_scales, "values": values, "value_scales": value_scales}

    def decode(
        self, block: Mapping[str, Tensor], *, tokens: int, dtype: dtype, device: device | None = None
    ) -> tuple[Tensor, Tensor]:
        keys, values = (
            self._dequantise(block[f"{what}s"][..., :tokens, :], block[f"{what}_scales"][..., :tokens, :])
            for what in ("key", "value")
        )
        return keys.to(device=device, dtype=dtype), values.to(device=device, dtype=dtype)

    def nbytes(self, heads: int, tokens: int, dim: int, *, itemsize: int = 2) -> int:
        return 2 * heads * tokens * (dim // 2 + 2 * (dim // channel_group(dim, codec=self.name)))

    def _quantise(self, x: Tensor) -> tuple[Tensor, Tensor]:
        group = channel_group(x.shape[-1], codec=self.name)
        x = x.detach().float()
        return quantise(rotate(x) if self.rotate else x, group, search=self.search)

    def _dequantise(self, packed: Tensor, scales: Tensor) -> Tensor:
        x = dequantise(packed, scales)
        return rotate(x) if self.rotate else x
