"""Bytes to text: the encoding found, every offset kept, nothing in the text that a database refuses."""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

from ctxkit.errors import ReadingError
from ctxkit.reading.legacy import SUPERSETS, guess

__all__ = ["Decoded", "clean", "decode"]

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16: its mark begins with theirs
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# `<meta charset=…>`, `<?xml encoding=…?>` and Python's `# -*- coding: … -*-`.
_DECLARED = re.compile(rb"""(?:charset|encoding|coding)\s*[=:]\s*["']?([-\w.]{2,40})""")
_NOT_CHARSETS = {"idna", "punycode", "raw-unicode-escape", "unicode-escape", "undefined", "utf-7", "mbcs", "oem"}
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_HEAD = 1024
_SAMPLE = 1 << 16


class Decoded(NamedTuple):
    """A text, the codec that gave it, and how many characters were replaced by U+FFFD."""

    text: str
    encoding: str
    replaced: int


def clean(text: str) -> tuple[str, int]:
    """The text with every NUL and lone surrogate replaced by U+FFFD, one for one, and how many there were."""
    return _UNSTORABLE.subn("\ufffd", text)


def decode(data: bytes, *, subject: str = "") -> Decoded:
    """Text from bytes in an unknown encoding. Newlines stay as they are; a byte order mark goes.

    A byte order mark decides; then UTF-8, even with a few broken bytes; then what the file declares; then statistics
    (charset-normalizer). Linear in the length of `data`.

    Raises:
        ReadingError: no encoding makes text of it.
    """
    found = _decode(data)
    if found is None:
        raise ReadingError(
            "the encoding is not known", subject=subject, remedy="Convert the file to UTF-8 and read it again."
        )
    text, encoding = found
    # U+FFFD that stood in the file itself is no replacement of ours.
    own = "\ufffd".encode(encoding, "ignore")
    broken = text.count("\ufffd") - (data.count(own) if own else 0)
    text, replaced = clean(text)
    return Decoded(text, encoding, replaced + max(0, broken))


def _decode(data: bytes) -> tuple[str, str] | None:
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            errors = "replace" if encoding == "utf-8" else "surrogatepass"
            try:
                return data[len(mark) :].decode(encoding, errors), encoding
            except UnicodeDecodeError:
                return data[len(mark) :].decode(encoding, "replace"), encoding
    if b"\x1b$" in data and data.isascii() and (text := _attempt(data, "iso2022_jp")) is not None:
        return text, "iso2022_jp"
    if (wide := _wide(data)) is not None and (text := _attempt(data, wide, "surrogatepass")) is not None:
        return text, wide
    # "surrogatepass": some programs write UTF-16 halves as if they were characters; each is replaced as one.
    if (text := _attempt(data, "utf-8", "surrogatepass")) is not None:
        return text, "utf-8"
    if _mostly_utf8(data):
        return data.decode("utf-8", "replace"), "utf-8"
    if (declared := _declared(data)) is not None and (text := _attempt(data, declared)) is not None:
        return text, declared
    if (guessed := guess(data)) is None:
        return None
    # The guess saw the beginning only: what does not fit further on is replaced, not fatal.
    return data.decode(guessed, "replace"), guessed


def _attempt(data: bytes, encoding: str, errors: str = "strict") -> str | None:
    try:
        return data.decode(encoding, errors)
    except (UnicodeDecodeError, LookupError):
        return None


def _wide(data: bytes) -> str | None:
    """UTF-16 without a mark: the high bytes of Latin text are zero, so NULs stand on one side of the pairs."""
    sample = data[:_SAMPLE]
    if len(sample) < 4 or len(data) % 2:
        return None
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    if max(even, odd) < 0.3 * (len(sample) // 2) or min(even, odd) > 0.05 * max(even, odd):
        return None
    return "utf-16-le" if odd > even else "utf-16-be"


def _mostly_utf8(data: bytes) -> bool:
    """Whether a few broken bytes stand in a text that otherwise has characters of two bytes and more in UTF-8."""
    text = data.decode("utf-8", "ignore")
    broken = len(data) - len(text.encode("utf-8"))
    wide = len(text) - len(text.encode("ascii", "ignore"))
    return wide > 0 and wide >= 20 * broken


def _declared(data: bytes) -> str | None:
    match = _DECLARED.search(data[:_HEAD])
    if match is None:
        return None
    try:
        info = codecs.lookup(match[1].decode("ascii", "ignore"))
    except LookupError:
        return None
    if info.name in _NOT_CHARSETS or not getattr(info, "_is_text_encoding", True):
        return None
    return SUPERSETS.get(info.name, info.name)
