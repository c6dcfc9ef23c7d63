"""The line that says where a chunk stands: title, headings, and what its neighbours are about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

__all__ = ["context_line"]

_NEIGHBOURS = 6  # names at most


def context_line(
    title: str,
    headings: Sequence[str],
    around: Counter[str],
    text: str,
    *,
    limit: int,
    count: Callable[[str], int],
) -> str:
    """`title > heading > heading | name, name`, of at most `limit` tokens; empty where there is nothing to say.

    Args:
        around: names in the neighbourhood and how often they stand there; those in `text` are left out.
        text: of the chunk.
    """
    path: list[str] = []
    for part in [title, *headings]:
        clean = " ".join(part.split())
        if clean and (not path or path[-1] != clean):
            path.append(clean)
    line = ""
    while path:
        line = " > ".join(path)
        if count(line) <= limit:
            break
        path.pop(0 if len(path) > 1 else -1)  # the nearest heading says most
        line = ""
    lower = text.lower()
    names = 0
    for name, _ in sorted(around.items(), key=lambda item: (-item[1], item[0])):
        if names == _NEIGHBOURS:
            break
        if name.lower() in lower or name.lower() in line.lower():
            continue
        longer = f"{line}, {name}" if names else f"{line} | {name}" if line else name
        if count(longer) > limit:
            continue
        line = longer
        names += 1
    return line
