"""Quantisation of rotated numbers: a codebook for the normal distribution, and a scale of one byte.

Rotated channels are nearly normal, so codes stand for the levels that lose least of a normal number, close together
around zero. A group is `scale * level`. Scales are powers of two to the sixths, 12 % apart: one of the right size to
6 % loses next to nothing, because the codes make up for it.

Source: Max, "Quantizing for Minimum Distortion", IRE Transactions on Information Theory 6, 1960; the levels are the
fixed point of his two conditions for 16 and 32 levels.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ctxkit.kvcache.codecs.packing import pack_bits, unpack_bits
from ctxkit.kvcache.codecs.protocol import torch_module

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["dequantise", "quantise"]

_LEVELS = {
    4: (0.1284, 0.3880, 0.6568, 0.9423, 1.2562, 1.6180, 2.0690, 2.7326),
    5: (
        *(0.0659, 0.1981, 0.3314, 0.4667, 0.6049, 0.7471, 0.8946, 1.0488),
        *(1.2118, 1.3863, 1.5762, 1.7872, 2.0287, 2.3177, 2.6911, 3.2607),
    ),
}
"""By bits, the levels above zero; those below are the same."""

_PER_DOUBLING = 6
_ONE = 170
"""The byte of a scale of 1: bytes from 1 to 254 are scales from 2^-28 to 2^14, 0 is 0, and 255 not a number."""

_FINE = 1024
"""Even steps by which the nearest level is found."""


def quantise(x: Tensor, group: int, bits: int) -> tuple[Tensor, Tensor]:
    """Packed codes `(..., dim * bits / 8)` and scales `(..., dim / group)`, bytes both, of float32 `(..., dim)`.

    The scale is the one with the least squared error of four: the root of the mean square, the next smaller and larger
    ones, and the one that clips nothing.
    """
    torch = torch_module()
    groups = x.unflatten(-1, (-1, group))
    middle = _byte(groups.square().mean(-1, keepdim=True).sqrt())
    best, error = middle, _error(groups, middle, bits)
    covering = _byte(groups.abs().amax(-1, keepdim=True) / _LEVELS[bits][-1])
    sound = (middle > 0) & (middle < 255)
    for tried in (middle - 1, middle + 1, covering):
        scales = tried.clamp(1, 254).where(sound, middle)
        found = _error(groups, scales, bits)
        better = found < error
        best, error = scales.where(better, best), found.where(better, error)
    codes = _nearest(bits, x.device)[_steps(groups, best)].to(torch.uint8)
    return pack_bits(codes.flatten(-2), bits), best.squeeze(-1).to(torch.uint8).contiguous()


def dequantise(packed: Tensor, scales: Tensor, bits: int) -> Tensor:
    """Float32 `(..., dim)`."""
    levels = _levels(bits, packed.device)[unpack_bits(packed, bits).int()]
    groups = levels.unflatten(-1, (scales.shape[-1], -1))
    return groups.mul_(_scale(scales).unsqueeze(-1)).flatten(-2)


def _byte(scales: Tensor) -> Tensor:
    """The nearest byte, as a float."""
    found = scales.log2().mul(_PER_DOUBLING).add(_ONE).round().clamp_min(1)
    return found.where(found <= 254, 255).where(scales != 0, 0)  # what is no number is not over 254 either


def _steps(groups: Tensor, scales: Tensor) -> Tensor:
    """In which of fine, even steps from -4 to 4 each number of a group is: an index of `_nearest`."""
    divisors = _scale(scales)
    factor = (_FINE / 8) / divisors.where(divisors != 0, 1)
    return (groups * factor).add_(_FINE / 2).nan_to_num_(nan=0).clamp_(0, _FINE - 1).int()


def _error(groups: Tensor, scales: Tensor, bits: int) -> Tensor:
    levels = _levels(bits, groups.device)[_nearest(bits, groups.device)]
    found = levels[_steps(groups, scales)].mul_(_scale(scales))
    return found.sub_(groups).square_().sum(-1, keepdim=True)


def _scale(codes: Tensor) -> Tensor:
    return _scales(codes.device)[codes.int()]


@lru_cache(maxsize=8)
def _levels(bits: int, device: Any) -> Tensor:
    above = _LEVELS[bits]
    return torch_module().tensor([*(-level for level in reversed(above)), *above], device=device)


@lru_cache(maxsize=8)
def _nearest(bits: int, device: Any) -> Tensor:
    """The code of the level that is nearest to the middle of each fine step: faster than a search among levels."""
    torch = torch_module()
    levels = _levels(bits, torch.device("cpu"))
    middles = (torch.arange(_FINE) + 0.5) * (8 / _FINE) - 4
    return torch.bucketize(middles, (levels[1:] + levels[:-1]) / 2).to(device)


@lru_cache(maxsize=8)
def _scales(device: Any) -> Tensor:
    torch = torch_module()
    table = torch.exp2((torch.arange(256, dtype=torch.float64) - _ONE) / _PER_DOUBLING).float()
    table[0], table[255] = 0.0, float("nan")
    return table.to(device)
