"""JSON text of what a provider is sent, for counting it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ctxkit.errors import ConfigError

__all__ = ["json_text"]


def json_text(value: Any, *, subject: str = "") -> str:
    """The value as JSON, characters unescaped. Raises `ConfigError` for what is not JSON: a set, NaN, a circle."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"not JSON ({type(error).__name__})",
            subject=subject,
            remedy="Give texts, finite numbers, truth values, None, lists, and dicts whose keys are texts.",
        ) from error


def _plain(value: object) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
