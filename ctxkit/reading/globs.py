"""The glob patterns of ignore files, matched in linear time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from operator import eq

__all__ = ["PATTERN_LIMIT", "Matcher", "glob_matcher"]

Matcher = Callable[[bytes], object]
"""Says of a path, or of a name, whether the pattern matches all of it."""

PATTERN_LIMIT = 4096
"""Bytes. No system takes a longer path, and a pattern costs as much to compile as it is long."""

_STAR = b"[^/]*+"
_FOLDERS = b"(?:[^/]++/)"
_SPECIAL = re.compile(rb"[*?\[\\]")
_CLASSES: dict[bytes, Callable[[bytes], bool]] = {
    b"alnum": bytes.isalnum,
    b"alpha": bytes.isalpha,
    b"blank": lambda byte: byte in b" \t",
    b"cntrl": lambda byte: byte < b" " or byte == b"\x7f",
    b"digit": bytes.isdigit,
    b"graph": lambda byte: b"!" <= byte <= b"~",
    b"lower": bytes.islower,
    b"print": lambda byte: b" " <= byte <= b"~",
    b"punct": lambda byte: b"!" <= byte <= b"~" and not byte.isalnum(),
    b"space": bytes.isspace,
    b"upper": bytes.isupper,
    b"xdigit": lambda byte: byte in b"0123456789abcdefABCDEF",
}


def glob_matcher(pattern: bytes) -> Matcher | None:
    """The matcher of a pattern; None where git lets it match nothing (`[` that is never closed, a `\\` at the end).

    `*` and `?` stand for anything but a slash, `**` as a whole segment for any number of folders. Bytes, as in git: a
    `?` is one byte of a name, not one character. A match takes O(path * pattern): whatever stands before a star is
    searched for once, and the place where it is found first is never given up for a later one. That loses no match, for
    the star after it takes what a later place would have left; a matcher that goes back is polynomial in the number of
    stars, so that one line could hold up every walk.

    Source: gitignore(5), and the wildmatch of git for what it leaves open.
    """
    if len(pattern) > PATTERN_LIMIT:
        return None
    if not _SPECIAL.search(pattern):
        return partial(eq, pattern)
    segments: list[bytes | None] = []  # None is a `**`
    for tokens in _segments(pattern):
        if tokens is None:
            return None
        if len(tokens) > 1 and all(token == _STAR for token in tokens):
            if not segments or segments[-1] is not None:
                segments.append(None)
        else:
            segments.append(_segment(tokens))
    return re.compile(_path(segments), re.DOTALL).fullmatch


def _path(segments: list[bytes | None]) -> bytes:
    """One expression for all segments: each block of them that a `**` ends is found at the first place it fits."""
    built: list[bytes] = []
    block: list[bytes] = []
    after_any = False
    for segment in segments:
        if segment is not None:
            block.append(segment)
            continue
        if block:
            here = b"".join(part + b"/" for part in block)
            built.append(b"(?>" + (_FOLDERS + b"*?" if after_any else b"") + here + b")")
        block, after_any = [], True
    if block:
        built.append((_FOLDERS + b"*?" if after_any else b"") + b"/".join(block))
    else:
        built.append(b".*")
    return b"".join(built)


def _segment(tokens: list[bytes]) -> bytes:
    """What stands before the first star as it is, each piece between stars where it is found first, the last at the
    segment's end."""
    pieces: list[list[bytes]] = [[]]
    for token in tokens:
        if token != _STAR:
            pieces[-1].append(token)
        elif pieces[-1] or len(pieces) == 1:
            pieces.append([])
    first, *middle = [b"".join(piece) for piece in pieces]
    if not middle:
        return first
    *middle, last = middle
    found = b"".join(b"(?>[^/]*?" + piece + b")" for piece in middle)
    # The last piece is of fixed length and must end the segment: going back over it is bounded by its length.
    ending = b"[^/]*" + last + b"(?![^/])" if last else _STAR
    return b"(?>" + first + found + ending + b")"


def _segments(pattern: bytes) -> Iterator[list[bytes] | None]:
    """The tokens of each segment, as expressions for one byte each, or `_STAR`; None where the pattern is none."""
    tokens: list[bytes] = []
    position = 0
    while position < len(pattern):
        byte = pattern[position : position + 1]
        position += 1
        if byte == b"/":
            yield tokens
            tokens = []
        elif byte == b"*":
            tokens.append(_STAR)
        elif byte == b"?":
            tokens.append(b"[^/]")
        elif byte == b"[":
            end, members = _class(pattern, position)
            if members is None:
                yield None
                return
            tokens.append(members)
            position = end
        else:
            if byte == b"\\":
                byte = pattern[position : position + 1]
                position += 1
                if not byte:
                    yield None
                    return
            tokens.append(re.escape(byte))
    yield tokens


def _class(pattern: bytes, position: int) -> tuple[int, bytes | None]:
    """Where the bracket expression that begins before `position` ends, and an expression for its members."""
    negated = pattern[position : position + 1] in (b"!", b"^")
    start = position = position + negated
    members: set[int] = set()
    previous: int | None = None
    while position < len(pattern):
        byte = pattern[position]
        if byte == ord("]") and position > start:
            return position + 1, _one_of(set(range(256)) - members if negated else members)
        following = pattern[position + 1 : position + 2]
        if byte == ord("-") and previous is not None and following and following != b"]":
            position += 2 if following == b"\\" else 1
            if position >= len(pattern):
                break
            members.update(range(previous, pattern[position] + 1))
            previous = None
        elif byte == ord("[") and following == b":" and (end := pattern.find(b"]", position + 2)) >= 0:
            name = pattern[position + 2 : end]
            if name.endswith(b":"):
                if (is_member := _CLASSES.get(name[:-1])) is None:
                    break
                members.update(code for code in range(256) if is_member(bytes([code])))
                position, previous = end, None
            else:
                members.add(byte)
                previous = byte
        else:
            if byte == ord("\\"):
                position += 1
                if position >= len(pattern):
                    break
                byte = pattern[position]
            members.add(byte)
            previous = byte
        position += 1
    return position, None


def _one_of(members: set[int]) -> bytes:
    """An expression for one byte of these but the slash, as the ranges that they form."""
    members.discard(ord("/"))
    starts = sorted(member for member in members if member - 1 not in members)
    ends = sorted(member for member in members if member + 1 not in members)
    ranges = b"".join(b"\\x%02x-\\x%02x" % pair for pair in zip(starts, ends, strict=True))
    return b"[" + ranges + b"]" if ranges else b"(?!)"
