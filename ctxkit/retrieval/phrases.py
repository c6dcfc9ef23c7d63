"""The phrases of a text that may be names, as hashes: where a name that some other text gave away is written, too."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ctxkit.graph.names import normalise

__all__ = ["hashed", "name_phrases"]

Hashes = NDArray[np.uint64]

MOST_WORDS = 6
"""Of a name that is looked for in texts."""

_WORD = re.compile(r"[^\W_]+(?:['’.\-&][^\W_]+)*")
_BETWEEN = re.compile(r"[ \t]{1,2}|[ \t]*\n[ \t]*|,[ ]|\.[ ]|[ ]&[ ]")
_SHORT = 4
"""A full stop after so many characters may belong to an abbreviation: St. Louis, Martin Luther King Jr. Day."""


def name_phrases(text: str) -> Iterator[str]:
    """Every run of up to six words that begins and ends with a capital or a digit, in order; linear.

    An extractor that reads a text alone misses names that stand at the beginning of a sentence, or that it takes for
    something else; here nothing is missed, and what no text calls a name is never looked up.

    Example:
        >>> list(name_phrases("He left St. Louis. The mayor of Paris did not."))
        ['He', 'St', 'St. Louis', 'Louis', 'The', 'Paris']
    """
    words = [match.span() for match in _WORD.finditer(text)]
    opens = [text[start].isupper() or text[start].isdigit() for start, _ in words]
    for first, (start, end) in enumerate(words):
        if not opens[first]:
            continue
        yield text[start:end]
        for last in range(first + 1, min(len(words), first + MOST_WORDS)):
            before, after = words[last - 1][1], words[last][0]
            gap = text[before:after]
            if not _BETWEEN.fullmatch(gap) or (gap[0] == "." and before - words[last - 1][0] > _SHORT):
                break
            if opens[last]:
                yield text[start : words[last][1]]


def hashed(name: str) -> int:
    """The 64-bit hash of a name's key; the same in every process."""
    key = normalise(name).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")
