"""Encodings older than UTF-8, told apart by their bytes: statistics, corrected where they are known to be weak."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["SUPERSETS", "guess"]

SUPERSETS = {"iso8859-1": "cp1252", "latin_1": "cp1252", "ascii": "cp1252"} | {
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "shift_jis_2004": "cp932",
    "euc_jis_2004": "euc_jp",
}
"""Labels are read as the superset that is really used under them (WHATWG Encoding Standard, section 4.2)."""

_WIDE = ["utf_16", "utf_16_be", "utf_16_le", "utf_32", "utf_32_be", "utf_32_le", "utf_7"]
_LETTERS = "àâäáãåæçèéêëìíîïñòóôöõøùúûüÿßœšžýðþ"
_WESTERN_LETTERS = frozenset(_LETTERS + _LETTERS.upper())
_WESTERN_SIGNS = frozenset("“”‘’–—…•«»°£€§©®™·¡¿ºª´\xa0\xad½¼¾×²³±µ†‰¢¥")
_ALONE = frozenset("àÀáéÉèÈêÊóòíìåÅøØæÆùúüöÖäÄ")
# No Western language has a letter of the left together with one of the right: the page is another one
# (Czech ř reads as ø, Hungarian ő as õ, Romanian ţ and Turkish ş as þ).
_STRANGERS = (("ø", "èìùòšž"), ("õ", "öüû"), ("þðý", "üçãâîìèù"))
_WORD = re.compile(r"[^\W\d_]+")
_SAMPLE = 1 << 16


def guess(data: bytes) -> str | None:
    """The codec of text that is not UTF-8, or None. Looks at the first 64 KiB; the caller decodes.

    charset-normalizer decides, except where it is known to be weak: Western European text with few accents, which it
    takes for Central European or Arabic, and a few Chinese characters, which it takes for Big5.
    """
    sample = data[:_SAMPLE]
    if _is_western(sample):
        return "cp1252"
    from charset_normalizer import from_bytes

    best = from_bytes(sample, cp_exclusion=_WIDE).best()
    if best is None:
        return None
    if best.encoding.startswith("big5") and _is_common_chinese(sample):
        return "gb18030"
    return SUPERSETS.get(best.encoding, best.encoding)


def _is_western(sample: bytes) -> bool:
    """Whether every accented letter stands in a word of mostly plain letters, and the signs stand apart."""
    try:
        text = sample.decode("cp1252")
    except UnicodeDecodeError:
        return False
    high = {character for character in text if character > "\x7f"}
    if not high <= _WESTERN_LETTERS | _WESTERN_SIGNS:
        return False
    lower = {character.lower() for character in high}
    if any(lower & set(left) and lower & set(right) for left, right in _STRANGERS):
        return False
    if re.search(r"[^\W\d_][¡¿£€§¥¢½¼¾×±µ][^\W\d_]", text):
        return False
    return all(_is_western_word(word) for word in _WORD.findall(text) if not word.isascii())


def _is_western_word(word: str) -> bool:
    plain = sum(character.isascii() for character in word)
    return word in _ALONE or plain >= len(word) - plain


def _is_common_chinese(sample: bytes) -> bool:
    """Whether every pair is punctuation or one of the 3,755 everyday characters of GB 2312 (rows A1-A3, B0-D7)."""
    pairs: Sequence[bytes] = re.findall(rb"[\x80-\xff].", sample, re.DOTALL)
    return all((0xA1 <= pair[0] <= 0xA3 or 0xB0 <= pair[0] <= 0xD7) and pair[1] >= 0xA1 for pair in pairs[:-1] or pairs)
