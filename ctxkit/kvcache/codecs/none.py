"""No compression: keys and values as they are, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ctxkit.kvcache.codecs.protocol import check_pair

if TYPE_CHECKING:
    from torch import Tensor, device, dtype

__all__ = ["NoCodec"]


@dataclass(frozen=True, kw_only=True)
class NoCodec:
    """Keeps keys and values in the dtype that they come in."""

    name: ClassVar[str] = "none"
    version: ClassVar[int] = 1
    group_tokens: ClassVar[int] = 1

    def encode(self, keys: Tensor, values: Tensor) -> dict[str, Tensor]:
        check_pair(keys, values)
        return {"keys": _copy(keys), "values": _copy(values)}

    def decode(
        self, block: Mapping[str, Tensor], *, tokens: int, dtype: dtype, device: device | None = None
    ) -> tuple[Tensor, Tensor]:
        keys, values = (block[name][..., :tokens, :].to(device=device, dtype=dtype) for name in ("keys", "values"))
        return keys, values

    def nbytes(self, heads: int, tokens: int, dim: int, *, itemsize: int = 2) -> int:
        return 2 * heads * tokens * dim * itemsize


def _copy(x: Tensor) -> Tensor:
    """Memory of its own: a view would keep the whole storage alive that it looks at."""
    return x.detach().contiguous().clone()
