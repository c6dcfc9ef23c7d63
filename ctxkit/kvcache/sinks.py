"""The first tokens of every row, kept exact: attention sinks (StreamingLLM, arXiv 2309.17453).

They draw attention from every later token, and their keys are unlike all others: packed, they would cost the most and
spoil the scales of their neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ctxkit.errors import KVCacheError
from ctxkit.kvcache.codecs.protocol import torch_module

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Sinks"]


class Sinks:
    """Exact keys and values of `count` tokens a row.

    Args:
        padding: `(rows,)`, how many tokens of padding each row begins with; its sinks come after them.
    """

    def __init__(self, count: int, padding: Tensor | None = None) -> None:
        self.count = count
        self.padding = padding
        self.held: tuple[Tensor, Tensor] | None = None

    def fit(self, rows: int) -> None:
        """Take the padding to a batch of so many rows: `generate()` repeats each row of a prompt for its searches.

        Errors: `KVCacheError` where the rows are no multiple of those that the padding was given for.
        """
        if self.padding is None or (given := self.padding.shape[0]) == rows:
            return
        if not given or rows % given:
            raise KVCacheError(
                f"padding was given for {given} rows, and the batch has {rows}",
                remedy="Give the tokens of padding of each row of the batch.",
            )
        self.padding = self.padding.repeat_interleave(rows // given)

    def take(self, keys: Tensor, values: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """Keep the sinks among tokens that are about to be packed; the token after them is packed in their place.

        Args:
            keys, values: `(rows, heads, tokens, dim)` of the tokens from `start` on.
        """
        rows, slots, places = self._within(keys.shape[0], start, keys.shape[2], keys.device)
        if not len(rows):
            return keys, values
        if self.held is None:
            empty = (x.new_zeros(*x.shape[:2], self.count, x.shape[3]) for x in (keys, values))
            self.held = next(empty), next(empty)
        self.held = self.held[0].to(keys.dtype), self.held[1].to(values.dtype)  # they may have rested in FP16
        neighbours = (places - slots + self.count).clamp(max=keys.shape[2] - 1)
        replaced = []
        for held, x in zip(self.held, (keys, values), strict=True):
            held[rows, :, slots] = x[rows, :, places]
            x = x.clone()
            x[rows, :, places] = x[rows, :, neighbours]
            replaced.append(x)
        return replaced[0], replaced[1]

    def put(self, keys: Tensor, values: Tensor, *, stop: int) -> None:
        """Write the sinks that lie before `stop` to their places."""
        if self.held is None:
            return
        rows, slots, places = self._within(keys.shape[0], 0, stop, keys.device)
        for held, x in zip(self.held, (keys, values), strict=True):
            x[rows, :, places] = held[rows, :, slots].to(x.dtype)

    def map(self, change: Callable[[Tensor], Tensor]) -> None:
        if self.held is not None:
            self.held = change(self.held[0]), change(self.held[1])
        if self.padding is not None:
            self.padding = change(self.padding)

    def clear(self) -> None:
        self.held = None

    def _within(self, rows: int, start: int, tokens: int, device: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Row, number and place of each sink among the tokens from `start` on."""
        torch = torch_module()
        first = torch.zeros(rows, dtype=torch.long, device=device) if self.padding is None else self.padding.to(device)
        places = first[:, None] + torch.arange(self.count, device=device) - start
        row, slot = torch.nonzero((places >= 0) & (places < tokens), as_tuple=True)
        return row, slot, places[row, slot]
