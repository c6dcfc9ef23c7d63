"""Codes of four or five bits as bytes, and how many numbers share a scale."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ctxkit.errors import KVCacheError
from ctxkit.kvcache.codecs.protocol import torch_module

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["GROUP", "channel_group", "pack", "pack_bits", "unpack", "unpack_bits"]

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


def pack_bits(codes: Tensor, bits: int) -> Tensor:
    """Codes of four or five bits of shape `(..., n)`, n a multiple of 8, as bytes of shape `(..., n * bits / 8)`.

    Of five bits the lower four lie as `pack` lays them; then, eighth by eighth of the codes, the fifth.
    """
    if bits == 4:
        return pack(codes)
    torch = torch_module()
    fifths = (codes >> 4).unflatten(-1, (8, -1))
    last = fifths[..., 0, :].clone()
    for number in range(1, 8):
        last |= fifths[..., number, :] << number
    return torch.cat([pack(codes & 15), last], -1).contiguous()


def unpack_bits(packed: Tensor, bits: int) -> Tensor:
    """The codes that `pack_bits` was given, as float32."""
    if bits == 4:
        return unpack(packed)
    eighth = packed.shape[-1] // bits
    codes = unpack(packed[..., : 4 * eighth])
    last = packed[..., 4 * eighth :]
    for number in range(8):
        codes[..., number * eighth : (number + 1) * eighth] += (last >> number & 1) * 16
    return codes
