"""The best extractor that is installed for each text's language."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from ctxkit.documents import Entity
from ctxkit.graph.jieba_extractor import JiebaExtractor
from ctxkit.graph.light import LightExtractor
from ctxkit.graph.spacy_extractor import SpacyExtractor, installed_models
from ctxkit.protocols import EntityExtractor
from ctxkit.stage_inputs import each_text

__all__ = ["AutoExtractor", "language_of"]


@dataclass(frozen=True, kw_only=True)
class AutoExtractor:
    """Reads each text with what is installed for its language: a spaCy model, jieba for Chinese, or else the rules of
    `LightExtractor`.

    The language is told from the script and, among Latin ones, from the commonest small words of a text's beginning;
    each text decides for itself. `fingerprint` names what is installed, so that a store whose documents were read
    with less is read again.

    Example:
        >>> found = list(AutoExtractor().extract(["Tim Cook flew to Paris.", "毛泽东在北京。"]))
        >>> found[0][0].text, found[1][-1].text
        ('Tim Cook', '北京')
    """

    _extractors: Mapping[str, EntityExtractor] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        extractors: dict[str, EntityExtractor] = {}
        if importlib.util.find_spec("spacy") is not None:
            for model in sorted(installed_models(), key=_size, reverse=True):
                extractors[model.partition("_")[0]] = SpacyExtractor(model=model)
        if importlib.util.find_spec("jieba") is not None:
            extractors["zh"] = JiebaExtractor()
        object.__setattr__(self, "_extractors", extractors)

    @property
    def fingerprint(self) -> str:
        """What reads which language."""
        known = {"": LightExtractor(), **self._extractors}
        return ", ".join(f"{language}:{getattr(known[language], 'fingerprint', '')}" for language in sorted(known))

    def extract(self, texts: Iterable[str]) -> Iterator[Sequence[Entity]]:
        """For each text in order its entities; lazily. Neighbours of one language go to its extractor together."""
        return self._read(each_text(texts, "extract"))

    def _read(self, texts: Iterator[str]) -> Iterator[Sequence[Entity]]:
        fallback = LightExtractor()
        for language, group in groupby(texts, key=language_of):
            yield from self._extractors.get(language, fallback).extract(group)


_SIZES = ("_sm", "_md", "_lg", "_trf")


def _size(model: str) -> tuple[int, str]:
    """Small models first: they are several times as fast, and a graph of names needs no more."""
    return next((rank for rank, size in enumerate(_SIZES) if size in model), len(_SIZES)), model


_SAMPLE = 4_000
_SCRIPTS = {
    "ja": re.compile("[\u3041-\u30ff]"),
    "zh": re.compile("[\u3400-\u4dbf\u4e00-\u9fff]"),
    "ko": re.compile("[\uac00-\ud7a3]"),
    "ru": re.compile("[\u0410-\u044f]"),
    "el": re.compile("[\u0391-\u03c9]"),
}
_LATIN = re.compile("[A-Za-z]")
_SMALL_WORDS = {
    "en": "the of and to in is was for that with it as on are by this from be at an not have which or",
    "de": "der die und das nicht von zu mit den ist ein eine dem auf für sich auch als im werden wird nach bei aus",
    "fr": "le la les des et en un une du est que dans pour qui sur pas avec au par il elle sont ce ne",
    "es": "el los las y en un una que del es por con para se su al lo como más pero sus fue este ha",
    "it": "il lo gli e di che un una è per non con del della sono nel alla dei si da le anche come più",
    "pt": "o os as e em um uma que do da não para com dos das por mais ao foi são no na se como",
    "nl": "de het een en van is dat op te zijn voor niet met aan er om ook als dan maar bij uit werd naar",
}
_LEAD = 1.5  # one Dutch "met" makes no Dutch
_LANGUAGES = {
    word: [name for name, others in _SMALL_WORDS.items() if word in others.split()]
    for words in _SMALL_WORDS.values()
    for word in words.split()
}


def language_of(text: str) -> str:
    """The language of a text, by its first 4,000 characters: `zh`, `ja`, `ko`, `ru`, `el`, or what its small words
    say; `en` for Latin text without any.

    Example:
        >>> language_of("The key rotates."), language_of("Der Schlüssel wird nicht getauscht."), language_of("钥匙 key")
        ('en', 'de', 'zh')
    """
    sample = text[:_SAMPLE]
    if not sample.isascii():
        letters = len(_LATIN.findall(sample))
        found = {name: len(script.findall(sample)) for name, script in _SCRIPTS.items()}
        # A word has about five letters, or two ideographs; Japanese has kana among them, Chinese none.
        if found["ja"] + found["zh"] > letters // 3:
            return "ja" if found["ja"] * 8 > found["zh"] else "zh"
        best = max(found, key=lambda name: found[name])
        if found[best] > letters:
            return best
    votes = dict.fromkeys(_SMALL_WORDS, 0.0)
    for word in dict.fromkeys(sample.lower().split()):
        for name in _LANGUAGES.get(word, ()):
            votes[name] += 1 / len(_LANGUAGES[word])
    votes["en"] += _LEAD
    return max(votes, key=lambda name: votes[name])
