"""Vectors in four bits a component: groups of 32, one FP16 scale a group, zero point 8, two values a byte.

A group is `scale * (code - 8)` with codes from 0 to 15. For 384 components that is 192 + 24 bytes instead of 1,536.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ctxkit.errors import EmbeddingError

__all__ = ["GROUP", "ZERO_POINT", "check", "dequantise", "pack", "padded", "quantise", "unpack"]

GROUP = 32
"""Components that share a scale."""

ZERO_POINT = 8

Codes = NDArray[np.uint8]
Scales = NDArray[np.float16]
Vectors = NDArray[np.float32]

_LARGEST = float(np.finfo(np.float16).max)

_TOP, _BOTTOM = 7.5, 8.5
"""In scales: what rounds to the codes 15 and 0 and is at most half a scale away from them."""


def padded(dimension: int) -> int:
    """The dimension with zeros up to whole groups."""
    return -(-dimension // GROUP) * GROUP


def quantise(vectors: Vectors) -> tuple[Codes, Scales]:
    """Packed codes of shape `(n, padded / 2)` and scales of shape `(n, padded / 32)`.

    The scale is the smallest FP16 number for which no component is clipped, so that
    `|x - dequantise(x)| <= scale / 2` for every component (up to float32 rounding). A group of zeros has scale 0.

    Raises:
        EmbeddingError: a component is NaN, infinite, or too large for FP16.

    Example:
        >>> codes, scales = quantise(np.eye(2, 32, dtype=np.float32))
        >>> codes.shape, scales.shape
        ((2, 16), (2, 1))
    """
    count, dimension = vectors.shape
    check(vectors)
    whole = np.zeros((count, padded(dimension)), dtype=np.float32)
    whole[:, :dimension] = vectors
    groups = whole.reshape(count, padded(dimension) // GROUP, GROUP)
    wanted = np.maximum(groups.max(axis=2) / np.float32(_TOP), groups.min(axis=2) / np.float32(-_BOTTOM))
    scales = wanted.astype(np.float16)
    too_small = scales.astype(np.float32) < wanted
    too_small |= (scales == 0) & groups.any(axis=2)
    scales[too_small] = np.nextafter(scales[too_small], np.float16(np.inf))
    divisors = scales.astype(np.float32)
    divisors[divisors == 0] = 1
    codes = np.clip(np.rint(groups / divisors[:, :, None]) + ZERO_POINT, 0, 15).astype(np.uint8)
    return pack(codes.reshape(whole.shape)), scales


def check(vectors: Vectors) -> None:
    """Raise `EmbeddingError` for what FP16 cannot hold."""
    if not np.maximum.reduce(np.abs(vectors), axis=None, initial=0.0) <= _LARGEST:
        raise EmbeddingError(
            "a vector holds NaN, infinity or a number beyond FP16", remedy="Check the embedder's output: unit vectors."
        )


def dequantise(codes: Codes, scales: Scales, dimension: int) -> Vectors:
    """The vectors of packed codes and their scales, shape `(n, dimension)`."""
    count, groups = scales.shape
    values = unpack(codes).reshape(count, groups, GROUP).astype(np.float32)
    values -= ZERO_POINT
    values *= scales.astype(np.float32)[:, :, None]
    return values.reshape(count, groups * GROUP)[:, :dimension]


def pack(codes: Codes) -> Codes:
    """Two codes a byte, the even component in the low half."""
    return codes[:, 0::2] | (codes[:, 1::2] << np.uint8(4))


def unpack(packed: Codes) -> Codes:
    """One code a byte again: the inverse of `pack`."""
    codes = np.empty((len(packed), 2 * packed.shape[1]), dtype=np.uint8)
    codes[:, 0::2] = packed & np.uint8(15)
    codes[:, 1::2] = packed >> np.uint8(4)
    return codes
