"""Entities of Chinese text by part of speech."""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ctxkit.checking import check_kind
from ctxkit.documents import Entity, Span
from ctxkit.graph.light import LightExtractor
from ctxkit.settings import cache_dir, require
from ctxkit.stage_inputs import each_text

__all__ = ["JiebaExtractor", "load_tokenizer"]

_LABELS = {
    "nr": "PERSON",
    "nrt": "PERSON",
    "nrfg": "PERSON",
    "ns": "GPE",
    "nt": "ORG",
    "nz": "NAME",
}
_ORGANISATIONS = frozenset(
    """
    公司 有限公司 集团 工厂 大学 学院 中学 小学 医院 银行 政府 法院 检察院 委员会 协会 学会 研究所 研究院 出版社 报社
    电视台 基金会 俱乐部 博物馆 图书馆
    """.split()  # noqa: SIM905
)


@dataclass(frozen=True, kw_only=True)
class JiebaExtractor:
    """Finds names in Chinese text by jieba's part of speech, and in the text around it by the light rules.

    Persons (`nr`) are `PERSON`, places (`ns`) `GPE`, organisations (`nt`, and a name before 大学, 公司 and the like)
    `ORG`, other names (`nz`) `NAME`. A surname and a given name that jieba parts are one. Names within a sentence
    alone are looked at, so that nothing depends on the rest of the text. Linear; about as fast as jieba.

    Words that the application gives to jieba (`jieba.load_userdict`) count. Jieba keeps its dictionary, read once and
    written down for the next process, in ctxkit's cache folder.

    Args:
        latin: whether the light rules look at what is not Chinese: titles in 《》, numbers, dates, Latin names.

    Raises:
        MissingExtraError: jieba is not installed.

    Example:
        >>> (found,) = JiebaExtractor().extract(["曹雪芹在北京写了《红楼梦》，Tim Cook 来过清华大学。"])
        >>> [(entity.text, entity.label) for entity in found if entity.label != "NAME"]
        [('曹雪芹', 'PERSON'), ('北京', 'GPE'), ('红楼梦', 'WORK_OF_ART'), ('清华大学', 'ORG')]
    """

    latin: bool = True

    def __post_init__(self) -> None:
        check_kind(self.latin, bool, "latin", remedy="Give True or False.")

    @property
    def fingerprint(self) -> str:
        try:
            return f"jieba-{version('jieba')}-1"
        except PackageNotFoundError:
            return "jieba-1"

    def extract(self, texts: Iterable[str]) -> Iterator[Sequence[Entity]]:
        """For each text in order its entities, sorted and disjoint; lazily, one text at a time."""
        tagger = _tagger()
        light = LightExtractor()
        return (_entities(text, tagger, light if self.latin else None) for text in each_text(texts, "extract"))


_RUN = re.compile("[\u4e00-\u9fd5]+")
_PIECE = 400
_MARGIN = 40
_Found = tuple[int, int, str]


def _entities(text: str, tagger: Any, light: LightExtractor | None) -> tuple[Entity, ...]:
    found: list[Entity] = []
    position = 0
    for known in (*(next(light.extract([text])) if light else ()), None):  # a title of a book is not read inside
        for run in _RUN.finditer(text, position, known.span.start if known else len(text)):
            named = _joined(run[0], _words(run[0], tagger))
            found += [
                Entity(run[0][start:end], label, Span(start + run.start(), end + run.start()))
                for start, end, label in named
            ]
        if known:
            found.append(known)
            position = known.span.end
    return tuple(found)


def _words(run: str, tagger: Any) -> Iterator[_Found]:
    """The words of a run of Chinese with their part of speech. A run of unusual length is read in pieces that begin
    where a word does, well before the end of the last one, so that no word is cut."""
    position = 0
    while position < len(run):
        piece = run[position : position + _PIECE]
        stop = len(run) if position + _PIECE >= len(run) else position + _PIECE - _MARGIN
        for pair in tagger.cut(piece):
            end = position + len(pair.word)
            yield position, end, pair.flag
            position = end
            if position >= stop:
                break


def _joined(run: str, words: Iterable[_Found]) -> list[_Found]:
    """The names among the words: a surname with its given name, a name with the kind of organisation behind it."""
    names: list[_Found] = []
    for start, end, flag in words:
        label = _LABELS.get(flag)
        touching = bool(names) and names[-1][1] == start
        if touching and run[start:end] in _ORGANISATIONS:
            names[-1] = (names[-1][0], end, "ORG")
        elif touching and label == names[-1][2] == "PERSON" and names[-1][1] - names[-1][0] == 1 and end - start <= 2:
            names[-1] = (names[-1][0], end, label)
        elif label is not None:
            names.append((start, end, label))
    return [name for name in names if name[1] - name[0] > 1]


_loading = threading.Lock()


def load_tokenizer() -> Any:
    """jieba's tokenizer of the process, its dictionary loaded in silence. Raises `MissingExtraError`."""
    return _tagger().tokenizer


def _tagger() -> Any:
    with _loading:
        return _loaded()


@cache
def _loaded() -> Any:
    """The process's tagger, loaded without a word: jieba logs to standard error as soon as it is imported."""
    log = logging.getLogger("jieba")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its escapes in patterns, and pkg_resources where there is one
        jieba = require("jieba", extra="nlp", subject="JiebaExtractor")
        level = log.level
        log.setLevel(logging.CRITICAL + 1)
        try:
            tokenizer = jieba.dt
            if not tokenizer.initialized and tokenizer.tmp_dir is None and tokenizer.cache_file is None:
                # By default it would load what anybody may have put into the folder for temporary files.
                folder = cache_dir() / "jieba"
                with contextlib.suppress(OSError):
                    folder.mkdir(parents=True, exist_ok=True)
                tokenizer.tmp_dir = str(folder)
            tagger = require("jieba.posseg", extra="nlp", subject="JiebaExtractor").dt
            tokenizer.check_initialized()
        finally:
            log.setLevel(level)
    return tagger
