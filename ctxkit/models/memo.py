"""A memory of what was computed for a text, bounded by the characters it holds, safe for threads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

__all__ = ["Memo"]

Value = TypeVar("Value")


class Memo(Generic[Value]):
    """Remembers `compute(text)` for the texts used last, up to `max_characters` of them in all.

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
        self._limit = max_characters
        self._held = 0
        self._values: OrderedDict[str, Value] = OrderedDict()
        self._lock = Lock()
        self.computed = 0
        """How many times `compute` was called."""

    def __call__(self, text: str) -> Value:
        with self._lock:
            if text in self._values:
                self._values.move_to_end(text)
                return self._values[text]
        value = self._compute(text)
        with self._lock:
            self.computed += 1
            if text not in self._values:
                self._values[text] = value
                self._held += len(text) + 64
                while self._held > self._limit and len(self._values) > 1:
                    gone, _ = self._values.popitem(last=False)
                    self._held -= len(gone) + 64
        return value
