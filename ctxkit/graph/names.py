"""How names are written as keys, so that the spellings of one name are equal in every document and in a question."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache

from ctxkit.protocols import EntityExtractor
from ctxkit.stop_words import ENGLISH_STOP_WORDS

__all__ = ["normalise", "query_names", "singulars"]

LONGEST = 200
"""Characters of a name; what is longer is cut."""

_OUTER = " \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\"'“”‘«»()[]{}<>,;:!?.*_~|/\\`=-‐‑‒–—。、《》「」『』【】"
_DASHES = "-_‐‑‒–—"
# A dash or an underscore between letters, or between a letter and a digit; "2024-05-01" and "1-2" keep theirs.
_JOINT = re.compile(f"(?<=[^\\W_])[{_DASHES}]+(?=[^\\W\\d_])|(?<=[^\\W\\d_])[{_DASHES}]+(?=[^\\W_])")
_INITIALS = re.compile(r"(?<!\S)[^\W\d_]\.(?: ?[^\W\d_]\.)*+(?: ?[^\W\d_])?(?!\S)")
_ARTICLES = ("the ", "a ", "an ")
_QUOTES = str.maketrans("’ʼ＇´`‛", "''''''")


def normalise(name: str) -> str:
    """The key of a name: what its spellings share. Node names of the graph are such keys.

    Unicode compatibility form (NFKC), no case, white space as single spaces, no punctuation around it, no possessive,
    no leading English article (unless nothing but a stop word would be left: The Who), dotted initials joined
    (U.S. is `us`, J. R. R. Tolkien `jrr tolkien`), and no hyphens and underscores inside words, so that
    `get_user-name` and `getUserName` are equal. Words are kept: the Los of Los Angeles is part of its name.
    Idempotent; the key of a name that has a visible character is never empty; at most 200 characters.

    Example:
        >>> normalise("The World  Health Organization’s"), normalise("parse_URL"), normalise("Los Angeles")
        ('world health organization', 'parseurl', 'los angeles')
    """
    return _normalised(name[:LONGEST])


@lru_cache(maxsize=1 << 16)
def _normalised(name: str) -> str:
    folded = " ".join(_folded(name)[:LONGEST].split())
    key = folded
    while (shorter := _shortened(key)) != key:
        key = shorter
    return key or folded


def _folded(name: str) -> str:
    if name.isascii():
        return name.lower().replace("`", "'")
    folded = unicodedata.normalize("NFKC", name.translate(_QUOTES).casefold())
    while (again := unicodedata.normalize("NFKC", folded.translate(_QUOTES).casefold())) != folded:
        folded = again
    return folded


def _shortened(key: str) -> str:
    key = key.strip(_OUTER)
    key = key.removesuffix("'s")
    for article in _ARTICLES:
        rest = key.removeprefix(article)
        if rest != key and rest.strip(_OUTER) not in ENGLISH_STOP_WORDS:
            key = rest
    if "." in key:
        key = _INITIALS.sub(lambda found: found[0].replace(".", "").replace(" ", ""), key)
    return _JOINT.sub("", key)


def singulars(name: str) -> Iterator[str]:
    """The keys that `name`, a key, may be the simple English plural of.

    Example:
        >>> list(singulars("rostovs")), list(singulars("companies")), list(singulars("boss"))
        (['rostov'], ['companie', 'company'], [])
    """
    if len(name) < 4 or not name.endswith("s") or name.endswith(("ss", "us", "is")):
        return
    yield name[:-1]
    if name.endswith("ies") and len(name) > 4:
        yield f"{name[:-3]}y"
    elif name.endswith(("ses", "xes", "zes", "ches", "shes")):
        yield name[:-2]


_MOST_WORDS = 512
_LONGEST_PHRASE = 6
_HAN_RUN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]{2,64}")
_LONGEST_HAN = 10


def query_names(text: str, extractor: EntityExtractor | None = None) -> tuple[str, ...]:
    """The keys of all names that a question may hold, in whatever case it is written; the longest first.

    These are the keys of the extractor's entities, of each run of up to six words that neither begins nor ends with a
    stop word, of their singulars, and of the substrings of Chinese runs. Look them up among the nodes' names; most are
    no node. A stop word alone counts only where it is written as an acronym: WHO, US. O(words), of the first 512.

    Example:
        >>> "tim cook" in query_names("when did tim cook join apple?"), "who" in query_names("who founded apple?")
        (True, False)
    """
    found = {normalise(entity.text): None for entity in next(iter(extractor.extract([text])))} if extractor else {}
    found |= dict.fromkeys(_phrases(text.split(None, _MOST_WORDS)[:_MOST_WORDS]))
    for run in _HAN_RUN.finditer(text[: _MOST_WORDS * 8]):
        found |= dict.fromkeys(_substrings(run[0]))
    for name in list(found):
        found |= dict.fromkeys(singulars(name))
    return tuple(sorted((name for name in found if name), key=lambda name: (-len(name), name)))


def _phrases(words: list[str]) -> Iterable[str]:
    empty = [_is_empty(word) for word in words]
    for start in range(len(words)):
        for end in range(start + 1, min(len(words), start + _LONGEST_PHRASE) + 1):
            if not empty[start] and not empty[end - 1]:
                yield normalise(" ".join(words[start:end]))


def _is_empty(word: str) -> bool:
    bare = word.strip(_OUTER)
    acronym = len(bare) > 1 and bare.isupper()
    return not bare or (not acronym and bare.lower() in ENGLISH_STOP_WORDS)


def _substrings(run: str) -> Iterable[str]:
    for start in range(len(run) - 1):
        for end in range(start + 2, min(len(run), start + _LONGEST_HAN) + 1):
            yield normalise(run[start:end])
