"""A rotation of the channels that spreads outliers, so that a group of 32 has no single large number.

The normalised Walsh-Hadamard matrix is symmetric and its own inverse: rotating twice gives the input back. Its use
before 4-bit quantisation is that of QuaRot (arXiv 2404.00456).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ctxkit.kvcache.codecs.protocol import torch_module

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["rotate", "rotation_size"]

_SMALLEST = 16


def rotation_size(dim: int) -> int:
    """The channels that are rotated together: the largest power of two that divides `dim`, 1 (none) below 16."""
    size = dim & -dim
    return size if size >= _SMALLEST else 1


def rotate(x: Tensor) -> Tensor:
    """Rotate blocks of the last axis, float32 `(..., dim)`; its own inverse. O(dim * size) a vector."""
    size = rotation_size(x.shape[-1])
    if size == 1:
        return x
    matrix = _matrix(size, x.device)
    if size == x.shape[-1]:
        return x @ matrix
    return (x.unflatten(-1, (-1, size)) @ matrix).flatten(-2)


@lru_cache(maxsize=32)
def _matrix(size: int, device: Any) -> Tensor:
    torch = torch_module()
    matrix = torch.ones(1, 1)
    while matrix.shape[0] < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return (matrix / size**0.5).to(device)
