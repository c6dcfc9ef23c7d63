"""Which block is given up first. LRU for now: see the benchmark's `mooncake` part."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Sequence

__all__ = ["UseOrder"]


class UseOrder:
    """Blocks by how soon they are likely to be used again."""

    def __init__(self) -> None:
        self._keys: OrderedDict[str, None] = OrderedDict()

    def add(self, key: str) -> None:
        self._keys.setdefault(key)

    def use(self, keys: Sequence[str]) -> None:
        for key in reversed(keys):
            self._keys.setdefault(key)
            self._keys.move_to_end(key)

    def remove(self, key: str) -> None:
        self._keys.pop(key, None)

    def victim(self, spared: Container[str]) -> str | None:
        return next((key for key in self._keys if key not in spared), None)
