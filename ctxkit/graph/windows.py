"""A long text in overlapping windows, for models that take short ones."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ctxkit.documents import Span
from ctxkit.text import sentence_breaks

__all__ = ["windows"]

# What no model of prose reads: base64, minified code. Chinese is written without spaces too, and is not meant.
_BLOB = re.compile(r"[!-~]{400,}+")
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n\s*")
_SPACE = re.compile(r"\s")


def windows(text: str, size: int, overlap: int) -> Iterator[Span]:
    """Spans of at most `size` characters that cover all that is neither blank nor a run of 400 and more ASCII
    characters without a space.

    A window ends, in the second half of its size, at a blank line, where the next one begins too; or else at a
    sentence's end or a space, and then the next one begins up to `overlap` characters before. Lazy and linear; each
    window looks at its own characters alone.

    Example:
        >>> [span.slice("One day. Two days. Three.") for span in windows("One day. Two days. Three.", 20, 4)]
        ['One day. Two days. ', 'ys. Three.']
    """
    position = 0
    for blob in _BLOB.finditer(text):
        yield from _of_part(text, position, blob.start(), size, overlap)
        position = blob.end()
    yield from _of_part(text, position, len(text), size, overlap)


def _of_part(text: str, start: int, end: int, size: int, overlap: int) -> Iterator[Span]:
    while end - start > size:
        stop, following = _cut(text, start, start + size, overlap)
        if not text[start:stop].isspace():
            yield Span(start, stop)
        start = following
    if end > start and not text[start:end].isspace():
        yield Span(start, end)


def _cut(text: str, start: int, limit: int, overlap: int) -> tuple[int, int]:
    """Where the window that begins at `start` ends, and where the next one begins: after `start`."""
    half = start + (limit - start) // 2
    paragraph = _last(line.end() for line in _BLANK_LINE.finditer(text, half, limit))
    if paragraph:
        return paragraph, paragraph
    stop = _last(at for at in sentence_breaks(text, half, limit) if at < limit)
    stop = stop or _last(space.end() for space in _SPACE.finditer(text, half, limit)) or limit
    earliest = max(start + 1, stop - overlap)
    space = _SPACE.search(text, earliest, max(earliest, stop - overlap // 2))
    return stop, space.end() if space else earliest


def _last(positions: Iterator[int]) -> int:
    found = 0
    for found in positions:  # noqa: B007
        pass
    return found
