"""Symmetric quantisation to four bits: groups of 32 channels, one FP16 scale a group, zero point 8.

A group is `scale * (code - 8)` with codes from 0 to 15. The scale may be negative: there is one more code below the
zero point than above it, and the sign gives it to the side with the larger number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.kvcache.codecs.packing import pack, unpack
from ctxkit.kvcache.codecs.protocol import torch_module

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["dequantise", "quantise"]

ZERO_POINT = 8

_STEPS = (8.0, 7.5, 7.0, 6.5, 6.0, 5.5, 5.0)
"""What the largest number of a group is divided by: below 8 it is clipped, and the others are finer."""


def quantise(x: Tensor, group: int, *, search: bool = True) -> tuple[Tensor, Tensor]:
    """Packed codes `(..., dim / 2)` and FP16 scales `(..., dim / group)` of float32 `(..., dim)`.

    Args:
        search: take of several scales and both signs the one with the least squared error, then the scale that is best
            for its codes; else the largest absolute number divided by 7.
    """
    torch = torch_module()
    groups = x.unflatten(-1, (-1, group))
    scales = _searched(torch, groups) if search else _half(torch, groups.abs().amax(-1, keepdim=True) / 7)
    codes = (_codes(groups, scales) + ZERO_POINT).nan_to_num_(nan=ZERO_POINT).to(torch.uint8)
    return pack(codes.flatten(-2)), scales.squeeze(-1).to(torch.float16).contiguous()


def dequantise(packed: Tensor, scales: Tensor) -> Tensor:
    """Float32 `(..., dim)`."""
    codes = unpack(packed).sub_(ZERO_POINT).unflatten(-1, (scales.shape[-1], -1))
    return codes.mul_(scales.float().unsqueeze(-1)).flatten(-2)


def _half(torch: Any, scales: Tensor) -> Tensor:
    """As it will be stored: rounding first lets the codes make up for it. What is over FP16 becomes infinite."""
    return scales.to(torch.float16).float()


def _codes(groups: Tensor, scales: Tensor) -> Tensor:
    """Codes around 0, as floats; a group of scale 0 has code 0."""
    return (groups / scales.where(scales != 0, 1)).round_().clamp_(-ZERO_POINT, ZERO_POINT - 1)


def _searched(torch: Any, groups: Tensor) -> Tensor:
    largest = groups.gather(-1, groups.abs().argmax(-1, keepdim=True))
    best = _half(torch, largest / -ZERO_POINT)
    error = _error(groups, best)
    for step in _STEPS:
        for sign in (-1, 1):
            scales = _half(torch, largest / (sign * step))
            best, error = _better(groups, scales, best, error)
    codes = _codes(groups, best)
    squares = codes.square().sum(-1, keepdim=True)
    refined = _half(torch, (groups * codes).sum(-1, keepdim=True) / squares.where(squares != 0, 1))
    return _better(groups, refined, best, error)[0]


def _error(groups: Tensor, scales: Tensor) -> Tensor:
    return (_codes(groups, scales).mul_(scales) - groups).square_().sum(-1, keepdim=True)


def _better(groups: Tensor, scales: Tensor, best: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
    found = _error(groups, scales)
    better = found < error
    return scales.where(better, best), found.where(better, error)
