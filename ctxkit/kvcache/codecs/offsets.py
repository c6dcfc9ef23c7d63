"""What the keys of neighbouring tokens have in common, channel by channel, taken out before they are packed.

Some channels of keys are large in every token (KIVI, arXiv 2402.02750). Their mean over a few dozen tokens, one
number a channel, leaves much smaller numbers to pack: the error of a 4-bit code is a share of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.kvcache.codecs.protocol import torch_module

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["add_offsets", "take_offsets"]


_LARGEST = 448
"""Of an FP8 number (E4M3)."""


def take_offsets(x: Tensor, tokens: int, *, bits: int = 16) -> tuple[Tensor, Tensor]:
    """The rest of float32 `(..., n, dim)`, and the means `(..., groups, dim)` of groups of that many tokens.

    The last group may be shorter.

    Args:
        bits: of an offset: FP16, or FP8 as bytes. It need not be exact: what it leaves is in the rest.
    """
    torch = torch_module()
    means = torch.stack([part.mean(-2) for part in x.split(tokens, -2)], -2)
    stored = means.to(torch.float16) if bits == 16 else means.clamp(-_LARGEST, _LARGEST).to(torch.float8_e4m3fn)
    stored = stored.contiguous()
    return x - _spread(stored, tokens, x.shape[-2]), stored if bits == 16 else stored.view(torch.uint8)


def add_offsets(x: Tensor, offsets: Tensor, tokens: int) -> Tensor:
    """What `take_offsets` was given, in place, where `x` is its rest."""
    torch = torch_module()
    means = offsets.view(torch.float8_e4m3fn) if offsets.dtype == torch.uint8 else offsets
    return x.add_(_spread(means, tokens, x.shape[-2]))


def _spread(means: Tensor, tokens: int, count: int) -> Tensor:
    return means.float().repeat_interleave(tokens, -2)[..., :count, :]
