"""Attention entropy as a gate: where attention is spread over many tokens, fewer of them are evicted, or none."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctxkit.checking import check_able, check_number, check_whole
from ctxkit.kvcache.eviction.protocol import Evictor
from ctxkit.kvcache.eviction.reading import Reading, attention_shares

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["EntropyGate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EntropyGate:
    """Another method, that keeps at least twice as many tokens as the widest head of each layer attends to.

    A query whose attention has the entropy H attends to as many tokens as exp(H) equally; of each layer the head with
    the largest mean counts, of the layers the mean. Entropy decides how much may go, not what: weighting scores with
    it changed nothing (Shannon 1948 for the measure; the threshold was measured, see decision 26).

    Args:
        method: whose scores are taken.
        margin: tokens that stay for each that is attended to.
        window: last tokens whose attention is looked at.

    O(window tokens).
    """

    method: Evictor
    margin: float = 2.0
    window: int = 32

    def __post_init__(self) -> None:
        check_able(self.method, "scores", "method", remedy="Give a method of eviction, such as KVzip().")
        check_number(self.margin, "margin", minimum=0)
        check_whole(self.window, "window", minimum=1)

    @property
    def name(self) -> str:
        return f"{self.method.name}, gated"

    @property
    def observed(self) -> int:
        return max(self.window, self.method.observed)

    def scores(self, reading: Reading) -> list[Tensor]:
        return self.method.scores(reading)

    def at_least(self, reading: Reading) -> int:
        """Tokens that must stay."""
        return math.ceil(self.margin * self.attended(reading))

    def attended(self, reading: Reading) -> float:
        """To how many tokens the widest head attends, the mean of the layers."""
        queries = reading.observed(self.name)
        found = []
        for index, layer in reading.layers():
            keys, _ = layer.keys_values(0, layer.length)
            shares = attention_shares(queries.modules[index], queries.turned[index][:, :, -self.window :], keys)
            entropy = -(shares * shares.clamp(min=1e-30).log()).sum(-1)
            found.append(float(entropy.exp().mean(3).amax()))
        return sum(found) / len(found)
