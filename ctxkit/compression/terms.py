"""Words for matching: stemmed, and the question without those that carry nothing."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from ctxkit.stop_words import ENGLISH_STOP_WORDS
from ctxkit.text import words

__all__ = ["asks_for_a_figure", "plain_words", "question_terms", "stem", "terms"]

_FOR_A_FIGURE = re.compile(
    r"\b(?:when|years?|dates?|how (?:many|much|long|old|far|often)|born|ages?)\b|何时|何時|多少|几|幾|哪年|什么时候",
    re.IGNORECASE,
)


_DECADE = re.compile(r"(?<!\w)(?:19)?([2-9]0)['’]?s\b")
_DOTTED = re.compile(r"(?<![\w.])(?:[A-Z]\.){2,}")
_WRITTEN_OUT = re.compile(r"\b(?:United (?:States(?: of America)?|Kingdom|Nations)|European Union)\b")
_NO_CAPITAL = re.compile(r"[^A-Z]+")
_AMERICA = re.compile(r"\bUSA?\b")  # which the pronoun must not be taken for


def plain_words(text: str) -> list[str]:
    """The index terms of a text, what is written in several ways in one of them.

    A decade: "the 70's", "the '70s", "the 1970s"; capitals with and without dots, and the few that everybody writes
    out as well: "U.N.", "UN" and "United Nations", "US", "USA" and "United States".
    """
    text = _DECADE.sub(r"19\1s", text)
    text = _DOTTED.sub(lambda found: _NO_CAPITAL.sub("", found[0]) + " ", text)
    text = _WRITTEN_OUT.sub(lambda found: _NO_CAPITAL.sub("", found[0]), text)
    return words(_AMERICA.sub("USA", text))


def asks_for_a_figure(question: str) -> bool:
    """Whether the answer may be a number or a date."""
    return _FOR_A_FIGURE.search(question) is not None


def terms(text: str) -> list[str]:
    """The stemmed words of a text, in order; scripts without a stemmer unchanged."""
    return [stem(word) for word in plain_words(text)]


def question_terms(text: str) -> list[str]:
    """The same without function words, unless there is nothing else."""
    found = plain_words(text)
    return [stem(word) for word in found if word not in ENGLISH_STOP_WORDS] or [stem(word) for word in found]


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """An English word without its ending; any other as it is."""
    return str(_stemmer().stemWord(word)) if word.isascii() and word.isalpha() else word


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    import snowballstemmer

    return snowballstemmer.stemmer("english")
