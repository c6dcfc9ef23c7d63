"""SnapKV (Li et al. 2024, arXiv 2404.14469): the last tokens of a prompt, its question, vote for what they look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ctxkit.checking import check_whole
from ctxkit.errors import ConfigError
from ctxkit.kvcache.codecs.protocol import torch_module
from ctxkit.kvcache.eviction.reading import Reading, attention_shares

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["SnapKV"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapKV:
    """The mean attention that each key gets from the last `window` queries, pooled over its neighbours.

    For a question that is known and stands at the end of what was read. What the question does not look at is lost for
    the next one.

    Args:
        window: last tokens that vote; they stay.
        pool: tokens over which votes are averaged, odd: what surrounds an answer is kept with it.

    O(window tokens) beside the prefill.
    """

    name: ClassVar[str] = "SnapKV"
    window: int = 64
    pool: int = 5

    def __post_init__(self) -> None:
        check_whole(self.window, "window", minimum=1)
        check_whole(self.pool, "pool", minimum=1)
        if self.pool % 2 == 0:
            raise ConfigError(f"pool is {self.pool}", remedy="Give an odd number: as many neighbours on each side.")

    @property
    def observed(self) -> int:
        return self.window

    def scores(self, reading: Reading) -> list[Tensor]:
        """`(rows, heads, tokens)` of each layer."""
        torch = torch_module()
        queries = reading.observed(self.name)
        found = []
        for index, layer in reading.layers():
            keys, _ = layer.keys_values(0, layer.length)
            shares = attention_shares(queries.modules[index], queries.turned[index][:, :, -self.window :], keys)
            own = shares.shape[3]
            votes = shares[..., :-own].mean((2, 3))
            votes = torch.nn.functional.avg_pool1d(votes, self.pool, padding=self.pool // 2, stride=1)
            found.append(torch.nn.functional.pad(votes, (0, own), value=float(votes.max()) + 1))
        return found
