"""What a cache holds, in bytes of storage: views count as what they keep alive, and shared storage counts once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["MemoryReport", "held_bytes"]


def held_bytes(tensors: Iterable[Tensor | None], seen: set[int] | None = None) -> int:
    """Bytes of the storages behind these tensors.

    Args:
        seen: addresses of storages that were counted already; those of these tensors are added.
    """
    seen = set() if seen is None else seen
    total = 0
    for tensor in tensors:
        if tensor is None:
            continue
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in seen and storage.nbytes():
            seen.add(storage.data_ptr())
            total += storage.nbytes()
    return total


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Live bytes of a cache.

    Args:
        packed: of the packed blocks.
        window: of the exact sinks and, while a sequence is idle, its exact last tokens.
        working: of an active sequence in compute precision; 0 while it is idle.
        bounds: of the key bounds of block top-k attention.
        sliding: of layers that attend to a sliding window only.
    """

    packed: int
    window: int
    working: int
    bounds: int
    sliding: int

    @property
    def total(self) -> int:
        return self.packed + self.window + self.working + self.bounds + self.sliding

    def to_json(self) -> dict[str, int]:
        return {**asdict(self), "total": self.total}
