"""What compression must not tear out of a text that it keeps: numbers, dates, negations, units, names, code and ids."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from ctxkit.documents import Span, merge_spans
from ctxkit.graph.light import LightExtractor
from ctxkit.graph.light_rules import DAY_FIRST, MONTH_FIRST
from ctxkit.protected import code_fences
from ctxkit.stop_words import ENGLISH_STOP_WORDS

__all__ = ["is_bare_negation", "is_negation", "name_spans", "names_in", "protected_spans"]

_MONTHS = (
    "January|February|March|April|June|July|August|September|October|November|December"
    "|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept|Sep|Oct|Nov|Dec"
)
_DAYS = "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"
_UNITS = (
    "%|‰|°[CF]?|percent|per cent|[kKMGTm]?[bB]|[KMGT]iB|[kcmµ]?m²?|km/h|mph|[mk]?g|[mk]?l|lbs?|oz|ft|in|mi|[mnµ]?s"
    "|[kMG]?[HW]z?|kWh|[kM]?V|h|min|K|°"
    "|bytes?|bits?|tokens?|seconds?|minutes?|hours?|days?|weeks?|months?|years?|decades?|centur(?:y|ies)"
    "|met(?:er|re)s?|kilomet(?:er|re)s?|miles?|feet|inch(?:es)?|yards?|acres?|hectares?"
    "|grams?|kilograms?|kilos?|pounds?|tons?|tonnes?|ounces?|lit(?:er|re)s?|gallons?"
    "|dollars?|cents?|euros?|yen|yuan|USD|EUR|GBP|RMB|CNY|JPY|degrees?|points?|times|people|hundred|thousand"
    "|million|billion|trillion|BC|BCE|AD|CE|a\\.?m\\.?|p\\.?m\\.?"
)
_NUMBER_WORDS = (
    "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen"
    "|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundreds?|thousands?|millions?|billions?|dozens?"
    "|twice|thrice|half|halves|quarters?|thirds?|first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth"
)
_NEGATIONS = (
    "not|no|never|none|nobody|nothing|nowhere|neither|nor|without|cannot|unless|except|excluding|hardly|barely|rarely"
    "|seldom|unable|fails?|failed|lacks?|lacked|denie[sd]|deny|refuse[sd]?|prohibited|forbidden"
)
_HAN_DIGITS = "〇零一二三四五六七八九十百千万萬亿億两兩半"
_HAN_UNITS = (
    "年|月|日|号|號|时|時|点|點|分钟|分鐘|分|秒|小时|小時|天|周|星期|世纪|世紀|个|個|位|名|人|次|种|種|条|條|本|座|家"
    "|公里|千米|米|厘米|毫米|公斤|千克|克|吨|噸|升|毫升|元|美元|欧元|歐元|日元|岁|歲|倍|度|亩|畝|平方公里|平方米|届|屆|章|节|節"
)
_HAN_NEGATIONS = "没有|沒有|不|没|沒|无|無|非|未|勿|莫|否|别|別"

# One pass, one alternation: each branch begins with a fixed character or a bounded look-around and takes what it takes
# for good, so that no character is read more than a few times.
_GUARD = re.compile(
    r"(?P<code>`[^`\n]{1,200}+`)"
    r"|(?P<address>(?:https?|ftp|file)://[^\s<>\"'“”，。；）)]++|\bwww\.[^\s<>\"'，。；）)]++)"
    r"|(?P<mail>(?<![\w.+-])[\w.+-]{1,64}+@[\w-]{1,63}+(?:\.[\w-]{1,63}+)++)"
    rf"|(?P<day>(?<![\w.,:/-])(?:{DAY_FIRST}|{MONTH_FIRST}))"
    # snake_case, dotted.names, pa/ths, kebab-1, camelCase, letters and digits mixed
    r"|(?P<id>(?<![\w./-])(?=[A-Za-z0-9_~$@/])"
    r"(?=[A-Za-z0-9_~./\\:$@#-]{0,80}?(?:[A-Za-z][_./\\:]{1,2}+\w|[a-z][A-Z]|[A-Za-z]-?\d|\d-?[A-Za-z]))"
    r"[A-Za-z0-9_~./\\:$@#-]++(?:\(\))?)"
    rf"|(?P<number>[$€£¥]?[+\-−]?(?<![\w.,])\d[\d,.:/–-]*+(?:st|nd|rd|th|s)?(?![\w])"
    rf"(?:[ \u00a0-]?(?:{_UNITS})(?![\w]))?)"
    rf"|(?P<figure>\d[\d,.:/]*+(?:[ ]?(?:{_HAN_UNITS}|[%‰℃°]))?)"
    rf"|(?P<han>[{_HAN_DIGITS}]++(?:{_HAN_UNITS}))"
    rf"|(?P<date>\b(?:{_MONTHS}|{_DAYS})\b)"
    rf"|(?P<count>\b(?i:{_NUMBER_WORDS})\b(?:-[a-z]++)?(?:[ -](?:{_UNITS})(?![\w]))?)"
    rf"|(?P<negation>\b(?i:{_NEGATIONS})\b|\b\w+n['’]t\b|{_HAN_NEGATIONS})"
)
_BARE_NEGATION = re.compile(
    rf"\W*(?:not|no|nor|never|neither|cannot|\w{{1,12}}n['’]t|{_HAN_NEGATIONS})\W*", re.IGNORECASE
)
_NEGATION = re.compile(rf"\b(?:{_NEGATIONS})\b|n['’]t\b|{_HAN_NEGATIONS}", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+(?:['’][^\W\d_]+)*")
_NAME = re.compile(r"[^\W\d_][\w.'’&-]*+")
_QUOTED = re.compile(r"[\"“「『《]([^\"”」』》\n]{2,80}+)[\"”」』》]")
_HAN = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]")
_NAME_LABELS = ("NAME", "WORK_OF_ART", "TERM")
_WHOLE_QUOTE = re.compile(r"[\"“「『《][^\"“”「『」』《》\n]{2,80}+[\"”」』》]")
_BEFORE_NAME = re.compile(r"\b(?:The|Mr|Mrs|Ms|Dr|Prof|Gen|Col|Capt|Lt|Sgt|Rev|Gov|Sen|Rep|Sir|Lady|Lord)\.? $")
_BETWEEN_NAMES = frozenset((" of ", " of the ", " for ", " / ", " & ", " du ", " v. "))
_LONGEST_TITLE = 40  # characters; a longer quotation is speech
_TRAILING = ".,:;/-–\\"
_MOST_NAMES = 64
"""Of a question; a longer one is a text, and guarding all of its names would guard everything."""


def protected_spans(text: str, query: str, *, entities: Iterable[str] = ()) -> list[Span]:
    """The stretches of a text that a compressor of words keeps, as sorted and disjoint offsets into it.

    Numbers with their units and signs, dates, number words, negations, the names of the question and those given, code
    (fences and `inline`), addresses, paths and identifiers; in English and Chinese. Linear in the text.

    Args:
        query: the question; its names (capitalised words, quoted titles, Latin words in a Chinese question) count.
        entities: more names that count wherever they stand.

    Example:
        >>> text = "The key_v2 of Oslo is not valid for 30 days, of course."
        >>> [span.slice(text) for span in protected_spans(text, "How long is the key of Oslo valid?")]
        ['key_v2', 'Oslo', 'not', '30 days']
    """
    found = code_fences(text)
    for hit in _GUARD.finditer(text):
        end = hit.end()
        if hit.lastgroup in ("number", "figure", "id", "address"):
            end = hit.start() + len(hit[0].rstrip(_TRAILING))
        if end > hit.start():
            found.append(Span(hit.start(), end))
    found.extend(_named(text, [*names_in(query), *entities]))
    return list(merge_spans(found))


def names_in(query: str) -> list[str]:
    """The names of a question, in order: capitalised words, what stands in quotes, Latin words among Chinese.

    A capital that only begins the sentence counts unless it is on a function word.

    Example:
        >>> names_in("Was Ed Wood the director of “Glen or Glenda”?")
        ['Glen or Glenda', 'Ed', 'Wood', 'Glen', 'Glenda']
    """
    return list(_names_in(query))


@lru_cache(maxsize=8)
def _names_in(query: str) -> tuple[str, ...]:
    """Asked for each sentence that is cut."""
    names: list[str] = [hit[1] for hit in _QUOTED.finditer(query)]
    mixed = _HAN.search(query) is not None
    for hit in _NAME.finditer(query):
        word = hit[0].rstrip(".'’-")
        if _HAN.search(word):
            continue
        lower = word.lower().removesuffix("'s").removesuffix("’s")
        if lower in ENGLISH_STOP_WORDS or len(lower) < 2:
            continue
        if mixed or not word.islower():
            names.append(word.removesuffix("'s").removesuffix("’s"))
    return tuple(dict.fromkeys(names))[:_MOST_NAMES]


def name_spans(text: str) -> list[Span]:
    """The names that a text itself brings, each in one piece, as sorted and disjoint offsets into it.

    Capitalised words (not where a capital only opens a sentence), with the particles and initials between them, the
    title or the capital `The` before them; what stands in quotes or 《》, with these. By the rules of `LightExtractor`,
    without a model. Linear in the text.

    Example:
        >>> text = "Yesterday Mr. Lawrence won the Filmfare Award for Best Director, she wrote in “Flora”."
        >>> [span.slice(text) for span in name_spans(text)]
        ['Mr. Lawrence', 'Filmfare Award for Best Director', '“Flora”']
    """
    (entities,) = LightExtractor().extract([text])
    joined: list[Span] = []
    for entity in entities:
        if entity.label not in _NAME_LABELS:
            continue
        span = entity.span
        if before := _BEFORE_NAME.search(text[max(0, span.start - 6) : span.start]):
            span = Span(span.start - len(before[0]), span.end)
        if joined and span.start > joined[-1].end and text[joined[-1].end : span.start] in _BETWEEN_NAMES:
            span = Span(joined.pop().start, span.end)
        joined.append(span)
    quoted = [Span(hit.start(), hit.end()) for hit in _WHOLE_QUOTE.finditer(text) if len(hit[0]) <= _LONGEST_TITLE]
    return list(merge_spans([*joined, *quoted]))


def is_negation(word: str) -> bool:
    """Whether a word denies: `not`, `never`, `isn't`, `没有` …

    Example:
        >>> is_negation("don't"), is_negation("note")
        (True, False)
    """
    return _NEGATION.search(word) is not None


def is_bare_negation(word: str) -> bool:
    """Whether a word denies and says nothing else: `not`, `isn't`, `不`; and not `refused`, `非洲` or a row with `not`.

    Example:
        >>> is_bare_negation(" not"), is_bare_negation("refused"), is_bare_negation("| key | not set |")
        (True, False, False)
    """
    return _BARE_NEGATION.fullmatch(word) is not None


def _named(text: str, names: Iterable[str]) -> list[Span]:
    """Where the words of these names stand in the text, whatever their case; Chinese names as they are written."""
    single: set[str] = set()
    found: list[Span] = []
    for name in names:
        if _HAN.search(name):
            at = text.find(name)
            while at >= 0:
                found.append(Span(at, at + len(name)))
                at = text.find(name, at + len(name))
        else:
            parts = [part.lower() for part in _WORD.findall(name)]
            single.update(part for part in parts if part not in ENGLISH_STOP_WORDS and len(part) > 1)
    if single:
        for hit in _WORD.finditer(text):
            word = hit[0].lower().removesuffix("'s").removesuffix("’s")
            if word in single:
                found.append(Span(hit.start(), hit.end()))
    return found
