"""Words for matching: stemmed, and the question without those that carry nothing."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ctxkit.stop_words import ENGLISH_STOP_WORDS
from ctxkit.text import words

__all__ = ["question_terms", "stem", "terms"]


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
