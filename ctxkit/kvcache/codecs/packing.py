"""Codes of four bits, two a byte, and how many numbers share a scale."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ctxkit.errors import KVCacheError
from ctxkit.kvcache.codecs.protocol import torch_module

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["GROUP", "channel_group", "pack", "unpack"]

GROUP = 32
"""Numbers that share a scale."""

_SMALLEST = 8


def channel_group(dim: int, *, codec: str) -> int:
    """Neighbouring channels that share a scale: 32, or the largest power of two from 8 on that divides `dim`.

    Errors: `KVCacheError` when there is none: such heads have no 4-bit format.
    """
    group = math.gcd(dim, GROUP)
    if group < _SMALLEST:
        raise KVCacheError(
            f"a head of {dim} channels cannot be cut into groups of at least {_SMALLEST}",
            subject=f"codec {codec}",
            remedy="Use the codec int8 or none for this model.",
        )
    return group


def pack(codes: Tensor) -> Tensor:
    """Codes from 0 to 15 of shape `(..., n)`, n even, as bytes of shape `(..., n / 2)`.

    The low halves of the bytes hold the first half of the codes: unpacking writes two contiguous runs.
    """
    half = codes.shape[-1] // 2
    return (codes[..., :half] | (codes[..., half:] << 4)).contiguous()


def unpack(packed: Tensor) -> Tensor:
    """The codes that `pack` was given, as float32."""
    torch = torch_module()
    half = packed.shape[-1]
    codes = torch.empty((*packed.shape[:-1], 2 * half), dtype=torch.float32, device=packed.device)
    codes[..., :half] = packed & 15
    codes[..., half:] = packed >> 4
    return codes
