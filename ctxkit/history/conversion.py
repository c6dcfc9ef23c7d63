"""What conversions between message formats share: notes of what is lost, and images."""

from __future__ import annotations

import json
import re
from typing import Any

from ctxkit.errors import HistoryError
from ctxkit.messages import Part

__all__ = ["Notes", "image_data", "image_url", "malformed", "strict_json"]

_DATA_URL = re.compile(r"data:([\w.+/-]+);base64,([A-Za-z0-9+/=]*)")


class Notes:
    """Collects what a conversion leaves out; with `strict` the first note is an error."""

    def __init__(self, *, strict: bool) -> None:
        self.strict = strict
        self._lines: list[str] = []

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(self._lines)

    def add(self, index: int | None, text: str) -> None:
        """Note it, of the message with this index (from 0)."""
        where = "" if index is None else f"message {index + 1}"
        if self.strict:
            raise HistoryError(text, subject=where, remedy="Use the format jsonl, or do without strict.")
        self._lines.append(f"{where}: {text}" if where else text)


def malformed(index: int, problem: str, remedy: str = "Give a message of this format.") -> HistoryError:
    return HistoryError(problem, subject=f"message {index + 1}", remedy=remedy)


def strict_json(text: str) -> Any:
    """The JSON value, or None where a text is none that every reader takes."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def image_data(part: Part) -> tuple[str, str] | None:
    """Media type and base64 of an image that holds its bytes."""
    match = _DATA_URL.fullmatch(str(part.data.get("url", "")))
    return (match[1], match[2]) if match else None


def image_url(media_type: str, data: str) -> str:
    return f"data:{media_type};base64,{data}"
