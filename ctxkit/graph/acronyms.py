"""Abbreviations that a text defines: `World Health Organization (WHO)`, `WHO (World Health Organization)`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Definition", "definitions"]


class Definition(NamedTuple):
    """A short form and the long form that the text gives for it, as they are written."""

    short: str
    long: str


_BRACKETED = re.compile(r"[(（]\s{0,3}+(?:the\s)?[“\"'‘]?([^()（）\n]{2,100})[)）]")
_SHORT = re.compile(r"[^\W_](?:[\w&./-]{0,10}[^\W_])\Z")
_SHORT_BEFORE = re.compile(r"(?<![\w&./-])[^\W_][\w&./-]{0,10}[^\W_]\s{0,2}\Z")
_WORDS_BEFORE = 160
_SENTENCE_END = re.compile(r"[.!?。！？;；\n]\s")


def definitions(text: str) -> Iterator[Definition]:
    """The abbreviations that the text defines in brackets, in either order. Linear: each bracket looks back 160
    characters at most.

    The letters of the short form must be found in the long form from right to left, the first of them where a word
    begins (Schwartz and Hearst 2003, "A simple algorithm for identifying abbreviation definitions in biomedical text").

    Example:
        >>> list(definitions("The World Health Organization (WHO) met. EU (European Union) too."))
        [Definition(short='WHO', long='World Health Organization'), Definition(short='EU', long='European Union')]
    """
    for bracket in _BRACKETED.finditer(text):
        inner = re.split(r"[,;，；”\"’]", bracket[1], maxsplit=1)[0].strip()
        before = text[max(0, bracket.start() - _WORDS_BEFORE) : bracket.start()].rstrip()
        if _is_short(inner):
            short = inner[:-1] if inner[-1] == "s" and inner[-2].isupper() else inner
            long = _long_form(short, _last_words(before, short))
            if long:
                yield Definition(short, long)
        elif " " in inner:
            found = _SHORT_BEFORE.search(before[-14:])
            if found and _is_short(found[0].strip()):
                short = found[0].strip()
                long = _long_form(short, inner)
                if long == inner:
                    yield Definition(short, long)


def _is_short(form: str) -> bool:
    return 2 <= len(form) <= 12 and bool(_SHORT.match(form)) and sum(letter.isupper() for letter in form) >= 2


def _last_words(before: str, short: str) -> str:
    """The words that the long form may be made of: at most twice as many as the short form has letters, or five more;
    of one sentence."""
    ends = [end.end() for end in _SENTENCE_END.finditer(before)]
    before = before[ends[-1] :] if ends else before
    words = before.split(" ")
    return " ".join(words[-min(len(short) + 5, 2 * len(short)) :])


def _long_form(short: str, words: str) -> str:
    """The shortest end of `words` that holds the letters of `short` in order, or "" where there is none."""
    letters = [letter.lower() for letter in short if letter.isalnum()]
    lower = words.lower()
    if len(lower) != len(words):  # a letter that has two in lower case
        return ""
    at = len(lower)
    for number, letter in reversed(list(enumerate(letters))):
        at = lower.rfind(letter, 0, at)
        while number == 0 and at > 0 and lower[at - 1].isalnum():
            at = lower.rfind(letter, 0, at)
        if at < 0:
            return ""
    long = words[at:].strip()
    return long if " " in long and len(long) > len(short) else ""
