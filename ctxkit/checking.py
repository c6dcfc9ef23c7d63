"""Checks of parameters: the wrong type or a number out of range is a `ConfigError` that says what is taken."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Iterable, Sequence
from typing import Any

from ctxkit.errors import ConfigError

__all__ = ["check_able", "check_kind", "check_number", "check_whole", "did_you_mean", "shown"]

_LARGEST = (1 << 63) - 1


def check_whole(value: Any, what: str, *, minimum: int, remedy: str = "") -> None:
    """A whole number of at least `minimum` that 64 bits hold, as arrays and databases need; True and 1.0 are none."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ConfigError(f"{what} is {shown(value)}", remedy=remedy or f"Give a whole number of at least {minimum:,}.")
    if value > _LARGEST:
        raise ConfigError(f"{what} is {shown(value)}", remedy=f"Give a whole number below {_LARGEST + 1:.1e}.")


def check_number(value: Any, what: str, *, minimum: float, maximum: float = math.inf, remedy: str = "") -> None:
    """A finite number in `[minimum, maximum]`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not _finite(value):
        raise ConfigError(f"{what} is {shown(value)}", remedy=remedy or "Give a finite number.")
    if not minimum <= float(value) <= maximum:
        upper = "" if maximum == math.inf else f" and at most {maximum:g}"
        raise ConfigError(f"{what} is {shown(value)}", remedy=remedy or f"It must be at least {minimum:g}{upper}.")


def check_kind(value: Any, kinds: type | tuple[type, ...], what: str, *, remedy: str) -> None:
    """An instance of one of `kinds`."""
    if not isinstance(value, kinds):
        raise ConfigError(f"{what} is a {type(value).__name__}", subject=shown(value), remedy=remedy)


def check_able(value: Any, method: str, what: str, *, remedy: str) -> None:
    """Something with this method. Not `isinstance` of a protocol: that would ask a model for its size, and load it."""
    # A str or a list has a count() of its own.
    if isinstance(value, type | Sequence) or not callable(getattr(value, method, None)):
        raise ConfigError(f"{what} is {shown(value)}, which has no {method}()", remedy=remedy)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The beginning of a remedy: the known name that is nearest to a wrong one, or "" where none is near.

    Example:
        >>> did_you_mean("histry", ["context", "history"])
        "Did you mean 'history'? "
    """
    near = difflib.get_close_matches(name, known if isinstance(known, list) else list(known), 1)
    return f"Did you mean {near[0]!r}? " if near else ""


def shown(value: Any) -> str:
    """A wrong value in an error's text, cut short."""
    try:
        text = repr(value)
    except ValueError:  # Python writes out no number of more than 4,300 digits
        text = f"a {type(value).__name__} too long to write"
    return text if len(text) <= 60 else f"{text[:60]}…"


def _finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond every float
        return False
