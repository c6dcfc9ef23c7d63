"""The line that says where a chunk stands: title, headings, and whom its first words speak of."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

__all__ = ["context_line", "refers_back"]

_NAMES = 2
_REFERRING = re.compile(
    r"\W*(?:it|its|they|their|them|these|this|that|those|he|his|him|she|her|such|we|our|both"
    r"|the (?:company|group|team|author|authors|study|game|song|film|book|city|building|program|project|law|act))\b"
    r"|\W*[他她它其这那该此]",
    re.IGNORECASE,
)


def refers_back(text: str) -> bool:
    """Whether a text opens with a word for something that was named before it: `it`, `they`, `the company`.

    Example:
        >>> refers_back("They left."), refers_back("Ann left.")
        (True, False)
    """
    return _REFERRING.match(text) is not None


def context_line(
    path: Sequence[str], names: Iterable[str], text: str, *, limit: int, count: Callable[[str], int]
) -> str:
    """`title > heading > heading | name, name`, of at most `limit` tokens; empty where there is nothing to say.

    Args:
        path: title and headings, outermost first. Where all are too long, the outermost and the last go before those
            between them.
        names: what was named before the text, nearest first; what the text names itself is left out.
        text: of the chunk.
    """
    lower = text.lower()
    parts: list[str] = []
    for part in path:
        clean = " ".join(part.split())
        if clean and clean not in parts:
            parts.append(clean)
    while len(parts) > 1 and count(" > ".join(parts)) > limit:
        del parts[len(parts) // 2 if len(parts) > 2 else 0]
    line = " > ".join(parts)
    if line and count(line) > limit:
        line = ""
    taken = 0
    for name in names:
        if taken == _NAMES:
            break
        if name.lower() in lower or name.lower() in line.lower():
            continue
        longer = f"{line}, {name}" if taken else f"{line} | {name}" if line else name
        if count(longer) <= limit:
            line = longer
            taken += 1
    return line
