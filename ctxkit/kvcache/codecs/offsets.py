"""What the keys of neighbouring tokens have in common, channel by channel, taken out before they are packed.

Some channels of keys are large in every token (KIVI, arXiv 2402.02750). Their mean over a few dozen tokens, one FP16
number a channel, leaves much smaller numbers to pack: the error of a 4-bit code is a share of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.kvcache.codecs.protocol import torch_module

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["add_offsets", "take_offsets"]


def take_offsets(x: Tensor, tokens: int) -> tuple[Tensor, Tensor]:
    """The rest of float32 `(..., n, dim)`, and the FP16 means `(..., groups, dim)` of groups of that many tokens.

    The last group may be shorter.
    """
    torch = torch_module()
    means = torch.stack([part.mean(-2) for part in x.split(tokens, -2)], -2).to(torch.float16)
    return x - _spread(means, tokens, x.shape[-2]), means.contiguous()


def add_offsets(x: Tensor, offsets: Tensor, tokens: int) -> Tensor:
    """What `take_offsets` was given, in place, where `x` is its rest."""
    return x.add_(_spread(offsets, tokens, x.shape[-2]))


def _spread(means: Tensor, tokens: int, count: int) -> Tensor:
    return means.float().repeat_interleave(tokens, -2)[..., :count, :]
