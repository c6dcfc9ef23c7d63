"""What a counter says, checked: a count that is none would be a wrong budget, or an exception of numpy."""

from __future__ import annotations

import operator
from typing import Any

from ctxkit.checking import shown
from ctxkit.errors import ConfigError
from ctxkit.protocols import TokenCounter
from ctxkit.tokens import BpeCounter, get_counter

__all__ = ["counting"]

_MOST = (1 << 31) - 1
"""Tokens of one text: what the arrays of sentences hold."""
_SHORT = 8
"""Characters that an estimate, such as a quarter of them, may round to no token."""


class _Checked:
    """A counter whose every count is a whole number, and above 0 for a text with letters or digits."""

    def __init__(self, counter: TokenCounter, name: str) -> None:
        self.name = name
        self._counter = counter

    def count(self, text: str) -> int:
        found: Any = self._counter.count(text)
        try:
            tokens = operator.index(found)
        except TypeError:
            tokens = -1
        if not 0 <= tokens <= _MOST or isinstance(found, bool) or (not tokens and _has_words(text)):
            raise ConfigError(
                f"the counter gives {shown(found)} tokens for a text of {len(text):,} characters",
                subject=f"{self.name} ({type(self._counter).__name__})",
                remedy="count() returns a whole number, above 0 for a text with words; get_counter() gives one.",
            )
        return tokens


def _has_words(text: str) -> bool:
    return len(text) > _SHORT and any(map(str.isalnum, text))


def counting(counter: TokenCounter | None) -> TokenCounter:
    """The counter with its counts checked; o200k_base for None, and ours as they are.

    Raises:
        ConfigError: the counter has no name; later, it gives what is no count.
    """
    if counter is None:
        return get_counter()
    if isinstance(counter, BpeCounter | _Checked):
        return counter
    name = getattr(counter, "name", None)
    if not isinstance(name, str):
        raise ConfigError(
            f"the counter's name is {shown(name)}",
            subject=type(counter).__name__,
            remedy="Give it an attribute name, a str that says whose tokenizer it is: counts are kept under it.",
        )
    return _Checked(counter, name)
