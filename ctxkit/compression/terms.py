"""Words for matching: stemmed, and the question without those that carry nothing."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from ctxkit.stop_words import ENGLISH_STOP_WORDS
from ctxkit.text import words

__all__ = ["asks_for_a_figure", "question_terms", "stem", "terms"]

_FOR_A_FIGURE = re.compile(
    r"\b(?:when|years?|dates?|how (?:many|much|long|old|far|often)|born|ages?)\b|何时|何時|多少|几|幾|哪年|什么时候",
    re.IGNORECASE,
)


def asks_for_a_figure(question: str) -> bool:
    """Whether the answer may be a number or a date."""
    return _FOR_A_FIGURE.search(question) is not None


def terms(text: str) -> list[str]:
    """The stemmed words of a text, in order; scripts without a stemmer unchanged."""
    return [stem(word) for word in words(text)]


def question_terms(text: str) -> list[str]:
    """The same without function words, unless there is nothing else."""
    found = words(text)
    return [stem(word) for word in found if word not in ENGLISH_STOP_WORDS] or [stem(word) for word in found]


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """An English word without its ending; any other as it is."""
    return str(_stemmer().stemWord(word)) if word.isascii() and word.isalpha() else word


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    import snowballstemmer

    return snowballstemmer.stemmer("english")
