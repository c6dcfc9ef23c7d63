"""The packed blocks of one layer: appended, cut off at the end, decoded; never packed a second time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ctxkit.kvcache.codecs import Codec
from ctxkit.kvcache.codecs.protocol import torch_module

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["PackedBlocks", "Run"]

_ENCODED_AT_ONCE = 64
"""Blocks: bounds the temporary memory of packing a long prompt."""


@dataclass(slots=True)
class Run:
    """Blocks of one width that lie in the same tensors.

    Args:
        tensors: `(rows, heads, blocks, ...)` each.
        width: tokens of a block as it was packed.
        tokens: that count, from the first; fewer than `blocks * width` where the last block was cut.
    """

    tensors: dict[str, Tensor]
    blocks: int
    width: int
    tokens: int

    @property
    def whole(self) -> bool:
        return self.tokens == self.blocks * self.width


@dataclass(slots=True)
class PackedBlocks:
    """Runs of blocks, oldest first.

    A new block is a run of its own; two neighbours of one size become one, like the digits of a binary counter, so that
    `n` blocks lie in O(log n) runs, no room is kept for later ones, and a block is copied O(log n) times.
    """

    codec: Codec
    width: int
    runs: list[Run] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        return sum(run.tokens for run in self.runs)

    def append(self, keys: Tensor, values: Tensor) -> None:
        """Pack `(rows, heads, tokens, dim)`: whole blocks, or one that is shorter."""
        tokens = keys.shape[-2]
        width = min(self.width, tokens)
        step = _ENCODED_AT_ONCE * width
        for start in range(0, tokens, step):
            parts = (x[:, :, start : start + step].unflatten(2, (-1, width)) for x in (keys, values))
            blocks = min(step, tokens - start) // width
            self._add(Run(self.codec.encode(*parts), blocks, width, blocks * width))

    def append_packed(self, tensors: Mapping[str, Tensor], blocks: int) -> None:
        """Take blocks that are packed already: tensors of `(rows, heads, blocks, ...)`."""
        self._add(Run(dict(tensors), blocks, self.width, blocks * self.width))

    def _add(self, run: Run) -> None:
        torch = torch_module()
        self.runs.append(run)
        while len(self.runs) > 1 and _mergeable(*self.runs[-2:]):
            right = self.runs.pop()
            left = self.runs[-1]
            tensors = {name: torch.cat([left.tensors[name], right.tensors[name]], 2) for name in left.tensors}
            self.runs[-1] = Run(tensors, left.blocks + right.blocks, left.width, left.tokens + right.tokens)

    def decode_into(self, keys: Tensor, values: Tensor) -> None:
        """Write all tokens to the front of `(rows, heads, at least tokens, dim)`."""
        start = 0
        for run in self.runs:
            for index in range(0, run.blocks, _ENCODED_AT_ONCE):
                part = {name: tensor[:, :, index : index + _ENCODED_AT_ONCE] for name, tensor in run.tensors.items()}
                stop = min(start + _ENCODED_AT_ONCE * run.width, start + run.tokens - index * run.width)
                found = self.codec.decode(part, tokens=run.width, dtype=keys.dtype, device=keys.device)
                for out, x in zip((keys, values), found, strict=True):
                    out[:, :, start:stop] = x.flatten(2, 3)[:, :, : stop - start]
                start = stop

    def block(self, index: int) -> dict[str, Tensor] | None:
        """The packed tensors `(rows, heads, ...)` of tokens `[index * width, (index + 1) * width)`.

        None where these tokens are not a block that is whole: views, so copy what is to be kept.
        """
        start = 0
        for run in self.runs:
            here, off = divmod(index * self.width - start, self.width)
            if 0 <= here < run.blocks and start <= index * self.width < start + run.tokens:
                fits = off == 0 and run.width == self.width and (here + 1) * run.width <= run.tokens
                return {name: tensor[:, :, here] for name, tensor in run.tensors.items()} if fits else None
            start += run.tokens
        return None

    def truncate(self, tokens: int) -> None:
        """Keep the first tokens. Blocks that fall away are freed; a block that is cut stays packed as it is."""
        while self.runs and (excess := self.tokens - tokens) > 0:
            run = self.runs[-1]
            if excess >= run.tokens:
                self.runs.pop()
                continue
            run.tokens -= excess
            blocks = -(-run.tokens // run.width)
            if blocks < run.blocks:
                run.tensors = {name: tensor[:, :, :blocks].clone() for name, tensor in run.tensors.items()}
                run.blocks = blocks

    def map(self, change: Callable[[Tensor], Tensor]) -> None:
        """Replace every tensor."""
        for run in self.runs:
            run.tensors = {name: change(tensor) for name, tensor in run.tensors.items()}

    def tensors(self) -> Iterator[Tensor]:
        for run in self.runs:
            yield from run.tensors.values()


def _mergeable(left: Run, right: Run) -> bool:
    return left.whole and left.width == right.width and left.blocks <= right.blocks and left.width > 0


def clone_blocks(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Copies with memory of their own."""
    return {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
