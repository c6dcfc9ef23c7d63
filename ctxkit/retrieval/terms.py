"""Text to index terms: words, stemmed where the language has a stemmer; CJK by character bigrams."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctxkit.errors import ConfigError
from ctxkit.stop_words import ENGLISH_STOP_WORDS
from ctxkit.text import words

__all__ = ["Analyzer"]

_CACHE_SIZE = 1 << 17
"""Distinct words whose terms are remembered; the commonest come back at once."""


@dataclass(frozen=True, kw_only=True)
class Analyzer:
    """Turns a text into index terms: 64-bit hashes of stemmed words.

    Terms are hashes so that an index needs no vocabulary beside its postings; among ten million different terms the
    chance of any collision is below one in three hundred thousand. Linear in the text.

    Args:
        language: of the Snowball stemmer (`english`, `german`, `russian` …), or None for none. Scripts the stemmer
            does not know pass unchanged, so Chinese beside English needs no setting.

    Raises:
        ConfigError: there is no stemmer of that name.

    Source: Porter, "Snowball: a language for stemming algorithms", 2001.

    Example:
        >>> analyzer = Analyzer()
        >>> analyzer.stem("keys"), analyzer.stem("rotating")
        ('key', 'rotat')
    """

    language: str | None = "english"
    _stemmer: Any = field(init=False, repr=False, compare=False, default=None)
    _terms: dict[str, int] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.language is None:
            return
        import snowballstemmer

        if self.language not in snowballstemmer.algorithms():
            raise ConfigError(
                "there is no stemmer for this language",
                subject=str(self.language),
                remedy=f"Known: {', '.join(snowballstemmer.algorithms())}; or None.",
            )
        object.__setattr__(self, "_stemmer", snowballstemmer.stemmer(self.language))

    @property
    def name(self) -> str:
        """Names what an index holds: two analyzers of one name give the same terms."""
        return f"words-1-{self.language or 'none'}"

    def stem(self, word: str) -> str:
        return word if self._stemmer is None else str(self._stemmer.stemWord(word))

    def terms(self, text: str) -> NDArray[np.uint64]:
        """The terms of a text to be indexed, in order, repeats kept."""
        return self._hashed(words(text))

    def query_terms(self, text: str) -> NDArray[np.uint64]:
        """The terms of a question: English stop words are left out, unless there is nothing else."""
        found = words(text)
        if self.language == "english":
            found = [word for word in found if word not in ENGLISH_STOP_WORDS] or found
        return self._hashed(found)

    def _hashed(self, found: list[str]) -> NDArray[np.uint64]:
        known = self._terms
        if len(known) > _CACHE_SIZE:
            known.clear()
        return np.fromiter((known.get(word) or self._term(word) for word in found), dtype=np.uint64, count=len(found))

    def _term(self, word: str) -> int:
        stemmed = self.stem(word).encode("utf-8", "surrogatepass")
        term = int.from_bytes(hashlib.blake2b(stemmed, digest_size=8).digest(), "little")
        self._terms[word] = term
        return term
