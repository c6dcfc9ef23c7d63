"""A memory of what was computed for a text, bounded by the characters it holds, safe for threads."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, Generic, TypeVar

__all__ = ["Memo"]

Value = TypeVar("Value")
_UNKNOWN: Any = object()


class Memo(Generic[Value]):
    """Remembers `compute(text)` for the texts used last, up to `max_characters` of them in all.

    Two generations: what is used goes to the younger one; when that is half the size, the older one is forgotten. So a
    hit costs one look-up without a lock, and what was used within the last half of the size is always known.

    Args:
        compute: a pure function of a text.
        max_characters: how many characters of texts are kept; a text is counted with a fixed cost of 64 more.

    Example:
        >>> lengths = Memo(len)
        >>> lengths("four"), lengths.computed
        (4, 1)
        >>> lengths("four"), lengths.computed
        (4, 1)
    """

    def __init__(self, compute: Callable[[str], Value], *, max_characters: int = 32_000_000) -> None:
        self._compute = compute
        self._limit = max_characters // 2
        self._held = 0
        self._young: dict[str, Value] = {}
        self._old: dict[str, Value] = {}
        self._lock = Lock()
        self.computed = 0
        """How many times `compute` was called."""

    def __call__(self, text: str) -> Value:
        value: Value = self._young.get(text, _UNKNOWN)
        if value is not _UNKNOWN:
            return value
        value = self._old.get(text, _UNKNOWN)
        fresh = value is _UNKNOWN
        if fresh:
            value = self._compute(text)
        with self._lock:
            self.computed += fresh
            if text not in self._young:
                self._held += len(text) + 64
                if self._held > self._limit:
                    self._old, self._young = self._young, {}
                    self._held = len(text) + 64
                self._young[text] = value
        return value
