"""What a codec of keys and values is, and how one is found by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, cast

from ctxkit.checking import check_able
from ctxkit.errors import KVCacheError
from ctxkit.registry import create
from ctxkit.settings import require

if TYPE_CHECKING:
    from torch import Tensor, device, dtype

__all__ = ["Codec", "get_codec"]


class Codec(Protocol):
    """Turns the keys and values of a run of tokens into packed tensors and back; knows nothing of caches.

    Invariants:
        Every packed tensor is contiguous and has the leading axes `(*batch, heads)` of its input, so that selecting
        rows or heads is indexing, and so that several blocks may be encoded at once as one more leading axis.
        `encode` is a function of its arguments alone: the same keys and values give the same bytes.
        A non-finite number is not hidden: its group decodes to non-finite numbers.
    """

    @property
    def name(self) -> str:
        """Under which it is registered as `ctxkit.codec`; with `version` it says how bytes are read."""
        ...

    @property
    def version(self) -> int:
        """Raised when bytes that an older one wrote would be read differently."""
        ...

    @property
    def group_tokens(self) -> int:
        """Tokens that share something: a block of a multiple of it takes the fewest bits."""
        ...

    def encode(self, keys: Tensor, values: Tensor) -> dict[str, Tensor]:
        """Packed tensors.

        Args:
            keys, values: `(*batch, heads, tokens, dim)` of any float dtype; their dims may differ.

        Errors: `KVCacheError` for a dim that the format cannot hold.
        """
        ...

    def decode(
        self, block: Mapping[str, Tensor], *, tokens: int, dtype: dtype, device: device | None = None
    ) -> tuple[Tensor, Tensor]:
        """Keys and values of shape `(*batch, heads, tokens, dim)`: what `encode` was given, rounded.

        Args:
            tokens: at most as many as were encoded; the first ones are returned.
            dtype: of the result; the arithmetic is float32.
            device: of the result; by default that of the block.
        """
        ...

    def nbytes(self, heads: int, tokens: int, dim: int, *, itemsize: int = 2) -> int:
        """The exact bytes of one encoded block of one sequence.

        Args:
            itemsize: bytes of a number of the computation; only `none` depends on it.
        """
        ...


@cache
def _named(name: str) -> Codec:
    return cast(Codec, create("codec", name))


def get_codec(codec: str | Codec) -> Codec:
    """A codec by its name, or the one that is given. Errors: `ConfigError` for an unknown name."""
    if isinstance(codec, str):
        return _named(codec)
    check_able(codec, "encode", "codec", remedy="Give the name of a codec, such as int4, or a Codec.")
    return codec


def check_pair(keys: Any, values: Any) -> None:
    """Refuse what is not the keys and values of the same tokens."""
    if keys.ndim < 2 or keys.shape[:-1] != values.shape[:-1] or not keys.is_floating_point():
        raise KVCacheError(
            f"keys of shape {tuple(keys.shape)} ({keys.dtype}) do not go with values of shape {tuple(values.shape)}",
            remedy="Give two floating-point tensors of shape (*batch, heads, tokens, dim) for the same tokens.",
        )


def torch_module() -> Any:
    """Torch, imported when a codec is first used."""
    return require("torch", extra="local", subject="kvcache")
