"""Checks of parameters: the wrong type or a number out of range is a `ConfigError` that says what is taken."""

from __future__ import annotations

import math
from typing import Any

from ctxkit.errors import ConfigError

__all__ = ["check_kind", "check_number", "check_whole"]


def check_whole(value: Any, what: str, *, minimum: int, remedy: str = "") -> None:
    """A whole number of at least `minimum`; True and 1.0 are none."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ConfigError(f"{what} is {value!r}", remedy=remedy or f"Give a whole number of at least {minimum:,}.")


def check_number(value: Any, what: str, *, minimum: float, maximum: float = math.inf, remedy: str = "") -> None:
    """A finite number in `[minimum, maximum]`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(f"{what} is {value!r}", remedy=remedy or "Give a finite number.")
    if not minimum <= value <= maximum:
        upper = "" if maximum == math.inf else f" and at most {maximum:g}"
        raise ConfigError(f"{what} is {value!r}", remedy=remedy or f"It must be at least {minimum:g}{upper}.")


def check_kind(value: Any, kinds: type | tuple[type, ...], what: str, *, remedy: str) -> None:
    """An instance of one of `kinds`."""
    if not isinstance(value, kinds):
        raise ConfigError(f"{what} is a {type(value).__name__}", subject=repr(value)[:60], remedy=remedy)
