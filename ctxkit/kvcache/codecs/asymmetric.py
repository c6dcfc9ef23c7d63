"""Asymmetric quantisation to four bits, channel by channel: groups of tokens share an FP16 scale and offset.

A group is `offset + scale * code` with codes from 0 to 15.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.kvcache.codecs.packing import pack, unpack
from ctxkit.kvcache.codecs.protocol import torch_module

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["dequantise", "quantise"]

_TOP = 15
_SHRINK = (0.0, 0.02, 0.04, 0.07, 0.1, 0.14)
"""Shares of the range that are cut off on each side: clipping a little makes the other codes finer."""


def quantise(x: Tensor, tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """Packed codes `(..., whole groups of tokens, dim / 2)`, scales and offsets `(..., groups, dim)`.

    Args:
        x: float32 `(..., tokens, dim)`; a last group that is short is filled with its last token.
        tokens: of a group.
    """
    torch = torch_module()
    short = -x.shape[-2] % tokens
    if short:
        x = torch.cat([x, x[..., -1:, :].expand(*x.shape[:-2], short, x.shape[-1])], -2)
    groups = x.unflatten(-2, (-1, tokens))
    low, high = groups.amin(-2, keepdim=True), groups.amax(-2, keepdim=True)
    scale, offset, error = _fit(torch, groups, (high - low) / _TOP, low)
    for shrink in _SHRINK[1:]:
        for below, above in ((shrink, shrink), (shrink, 0), (0, shrink)):
            width = high - low
            found = _fit(torch, groups, width * (1 - below - above) / _TOP, low + width * below)
            scale, offset, error = _better(found, (scale, offset, error))
    for _ in range(2):
        found = _fit(torch, groups, *_regression(groups, _codes(groups, scale, offset)))
        scale, offset, error = _better(found, (scale, offset, error))
    codes = _codes(groups, scale, offset).nan_to_num_(nan=0).to(torch.uint8)
    half = torch.float16
    return (
        pack(codes.flatten(-3, -2)),
        scale.squeeze(-2).to(half).contiguous(),
        offset.squeeze(-2).to(half).contiguous(),
    )


def dequantise(packed: Tensor, scales: Tensor, offsets: Tensor) -> Tensor:
    """Float32 `(..., tokens, dim)`."""
    codes = unpack(packed).unflatten(-2, (scales.shape[-2], -1))
    return codes.mul_(scales.float().unsqueeze(-2)).add_(offsets.float().unsqueeze(-2)).flatten(-3, -2)


def _codes(groups: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    return ((groups - offset) / scale.where(scale != 0, 1)).round_().clamp_(0, _TOP)


def _fit(torch: Any, groups: Tensor, scale: Tensor, offset: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scale and offset as they will be stored, and their squared error."""
    scale, offset = scale.to(torch.float16).float(), offset.to(torch.float16).float()
    error = (_codes(groups, scale, offset).mul_(scale) + offset - groups).square_().sum(-2, keepdim=True)
    return scale, offset, error


def _better(found: tuple[Tensor, ...], best: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
    better = found[2] < best[2]
    scale, offset, error = (new.where(better, old) for new, old in zip(found, best, strict=True))
    return scale, offset, error


def _regression(groups: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
    """Scale and offset with the least squared error for these codes."""
    mean_x, mean_code = groups.mean(-2, keepdim=True), codes.mean(-2, keepdim=True)
    spread = (codes - mean_code).square().sum(-2, keepdim=True)
    joint = ((codes - mean_code) * (groups - mean_x)).sum(-2, keepdim=True)
    scale = joint / spread.where(spread != 0, 1)
    return scale, mean_x - scale * mean_code
