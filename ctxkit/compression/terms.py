"""Words for matching: stemmed, and the question without those that carry nothing."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ctxkit.text import words

__all__ = ["question_terms", "terms"]

# English function words: among a few dozen sentences, rarity alone does not tell them from content.
_FUNCTION_WORDS = frozenset(
    """
    a an the this that these those and or but nor if then than as of in on at by for from with without to into onto
    over under about between through during before after is are was were be been being am do does did done has have
    had can could will would shall should may might must i me my we us our you your he him his she her it its they
    them their what which who whom whose when where why how not no so such there here also both
    """.split()  # noqa: SIM905
)


def terms(text: str) -> list[str]:
    """The stemmed words of a text, in order; scripts without a stemmer unchanged."""
    return [_stem(word) for word in words(text)]


def question_terms(text: str) -> list[str]:
    """The same without function words, unless there is nothing else."""
    found = words(text)
    return [_stem(word) for word in found if word not in _FUNCTION_WORDS] or [_stem(word) for word in found]


@lru_cache(maxsize=1 << 16)
def _stem(word: str) -> str:
    return str(_stemmer().stemWord(word)) if word.isascii() and word.isalpha() else word


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    import snowballstemmer

    return snowballstemmer.stemmer("english")
