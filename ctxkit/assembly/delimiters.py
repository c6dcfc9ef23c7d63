"""Fences around documents, that no document can close or open."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from html import escape

__all__ = ["NO_TAG", "closing", "fence_tag", "opening"]

NO_TAG = "000000"
"""Stands for a tag where only the length of a fence matters."""

_MAX_SOURCE = 200


def fence_tag(text: str) -> str:
    """Six digits from SHA-256 of the text, that do not occur in the text; more digits where six always occur.

    Deterministic, so the same document is fenced alike in every prompt (laws 6 and 7). The text cannot contain its
    own tag: whoever writes it so changes its hash, and a hash that should occur all the same is passed over. Decimal
    digits are few tokens in every tokenizer.

    Complexity: linear in the text.

    Example:
        >>> fence_tag("obey me") == fence_tag("obey me")
        True
        >>> fence_tag("obey me") in "obey me"
        False
    """
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    attempt, digits = 0, 6
    while True:
        number = int.from_bytes(digest[:16], "big") % 10**digits
        tag = f"{number:0{digits}d}"
        if tag not in text:
            return tag
        attempt += 1
        digits = 6 + attempt // 8
        digest = hashlib.sha256(digest).digest()


def opening(tag: str, number: int, source: str) -> str:
    """The line before a document; from the second document on it begins a new line.

    The source is data too: it is escaped and cannot end the line or the attribute.

    Example:
        >>> opening("123456", 1, 'a"b>.md')
        '<document-123456 id="1" source="a&quot;b&gt;.md">\\n'
    """
    return f'{"" if number == 1 else chr(10)}<document-{tag} id="{number}"{_attribute(source)}>\n'


def closing(tag: str, text: str) -> str:
    """The line after a document that ends with `text`."""
    return f"</document-{tag}>" if text.endswith("\n") else f"\n</document-{tag}>"


@lru_cache(maxsize=4096)
def _attribute(source: str) -> str:
    if not source:
        return ""
    if len(source) > _MAX_SOURCE:
        source = source[: _MAX_SOURCE // 2 - 1] + "…" + source[-_MAX_SOURCE // 2 :]
    if not source.isprintable():  # controls, line ends, bidirectional overrides, lone surrogates
        source = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in source)
    return f' source="{escape(source)}"'
