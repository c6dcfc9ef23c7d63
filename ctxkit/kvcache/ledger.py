"""Bytes of blocks against a budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import RLock

from ctxkit.checking import check_whole
from ctxkit.kvcache.use_order import UseOrder

__all__ = ["Ledger"]


class Ledger:
    """Which blocks a tier holds, how many bytes they take, and which is given up first. Safe to use from threads.

    Args:
        budget: bytes; None for no limit.
        what: the budget's name, in errors.
    """

    def __init__(self, budget: int | None, *, what: str) -> None:
        if budget is not None:
            check_whole(budget, what, minimum=0)
        self.budget = budget
        self.nbytes = 0
        self.lock = RLock()
        self._sizes: dict[str, int] = {}
        self._order = UseOrder()
        self._pins: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._sizes)

    def __contains__(self, key: str) -> bool:
        return key in self._sizes

    def add(self, key: str, nbytes: int) -> None:
        """Note a block that the tier now holds; of one that is noted already, the new size."""
        with self.lock:
            self.nbytes += nbytes - self._sizes.get(key, 0)
            self._sizes[key] = nbytes
            self._order.add(key)

    def use(self, keys: Sequence[str]) -> None:
        """Note one request's use of blocks, in the order of the prompt, held or not."""
        with self.lock:
            self._order.use(keys)

    def remove(self, key: str) -> int:
        """Note that a block is gone; the bytes that it took."""
        with self.lock:
            nbytes = self._sizes.pop(key, 0)
            self.nbytes -= nbytes
            self._order.remove(key)
            return nbytes

    def recount(self, found: Iterable[tuple[str, int]]) -> None:
        """Take the truth from the folder: `(key, bytes)` of all there is, the least recently used first."""
        with self.lock:
            there = dict(found)
            for key in [key for key in self._sizes if key not in there]:
                self.remove(key)
            for key, nbytes in there.items():
                self.add(key, nbytes)

    @contextmanager
    def pinned(self, keys: Iterable[str]) -> Iterator[None]:
        """These blocks are in use: none of them is given up meanwhile."""
        held = list(keys)
        with self.lock:
            self._pins.update(held)
        try:
            yield
        finally:
            with self.lock:
                self._pins.subtract(held)
                self._pins += Counter()  # drops what is at zero

    def victim(self, *, room_for: int = 0, spared: Iterable[str] = ()) -> str | None:
        """The block to give up first while the tier and `room_for` more bytes are over the budget, else None."""
        with self.lock:
            if self.budget is None or self.nbytes + room_for <= self.budget:
                return None
            return self._order.victim(self._pins.keys() | set(spared))
