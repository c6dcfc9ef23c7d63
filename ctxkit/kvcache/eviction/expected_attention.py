"""Expected Attention (Devoto et al. 2025, arXiv 2510.00636): what queries that are still to come would look at."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ctxkit.checking import check_number, check_whole
from ctxkit.kvcache.codecs.protocol import torch_module
from ctxkit.kvcache.eviction.reading import Reading

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["ExpectedAttention"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedAttention:
    """The attention that a key can expect of later queries, times the length of its value.

    Later queries are taken to be normally distributed, as those that were read are before the rotation of positions:
    `E exp(q k / sqrt d) = exp(m k / sqrt d + k C k / 2 d)`, with mean and covariance rotated to the mean of the next
    `future` positions. For a question that is not known.

    Args:
        sample: last tokens whose queries are counted.
        future: positions ahead.
        epsilon: added to the expected attention before it is multiplied, so that a large value alone can save a token.

    O(sample dim^2 + tokens dim^2) beside the prefill.
    """

    name: ClassVar[str] = "Expected Attention"
    sample: int = 512
    future: int = 512
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        check_whole(self.sample, "sample", minimum=2)
        check_whole(self.future, "future", minimum=1)
        check_number(self.epsilon, "epsilon", minimum=0)

    @property
    def observed(self) -> int:
        return self.sample

    def scores(self, reading: Reading) -> list[Tensor]:
        """`(rows, heads, tokens)` of each layer."""
        queries = reading.observed(self.name)
        found = []
        for index, layer in reading.layers():
            keys, values = (x.float() for x in layer.keys_values(0, layer.length))
            module = queries.modules[index]
            sample = queries.plain[index][:, :, -self.sample :].float()
            turn = self._turn(reading.model, module, sample, layer.get_seq_length())
            mean = sample.mean(2, keepdim=True)
            spread = sample - mean
            covariance = turn @ (spread.transpose(2, 3) @ spread / sample.shape[2]) @ turn.T
            heads = keys.shape[1]
            expected = _products(mean @ turn.T, covariance, keys, heads, module.scaling)
            found.append((expected.softmax(-1).mean(2) + self.epsilon) * values.norm(dim=-1))
        return found

    def _turn(self, model: Any, module: Any, like: Tensor, start: int) -> Tensor:
        """The mean of the rotations of the positions to come, as a matrix `(dim, dim)`."""
        torch = torch_module()
        positions = torch.arange(start, start + self.future, device=like.device)[None]
        kind = (getattr(module, "layer_type", None),) if hasattr(model.base_model.rotary_emb, "layer_types") else ()
        cos, sin = model.base_model.rotary_emb(like, positions, *kind)
        rotate = sys.modules[type(module).__module__].apply_rotary_pos_emb
        unit = torch.eye(like.shape[-1], device=like.device)[None, None]
        cos, sin = (x.float().mean(1, keepdim=True) for x in (cos, sin))
        turned: Tensor = rotate(unit, unit, cos, sin)[0][0, 0]
        return turned.T


def _products(mean: Tensor, covariance: Tensor, keys: Tensor, heads: int, scaling: float) -> Tensor:
    """The logarithm of the expected attention: `(rows, heads, query heads of a head, tokens)`."""
    keys = keys[:, :, None]
    first = (keys @ mean.unflatten(1, (heads, -1)).transpose(3, 4)).squeeze(-1) * scaling
    second: Tensor = (keys @ covariance.unflatten(1, (heads, -1)) * keys).sum(-1) * (scaling**2 / 2)
    return first + second
