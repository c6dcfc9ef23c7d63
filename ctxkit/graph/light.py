"""Entities by rule: capitals, numbers, dates, identifiers, quotation marks. No model, several megabytes a second."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ctxkit.documents import Entity, Span
from ctxkit.graph.light_rules import (
    DATE_WORDS,
    FIRST_OF_NAMES,
    GIVEN_NAMES,
    LONGEST_ADDRESS,
    LONGEST_NAME,
    MASTER,
    NAMED_BY,
    NUMBER,
    NUMBER_LABELS,
    OPENERS,
    RULES,
    TITLES,
    TOKEN,
    WORD_BACKWARDS,
    WRITTEN_DATE,
)
from ctxkit.stage_inputs import each_text
from ctxkit.stop_words import ENGLISH_STOP_WORDS

__all__ = ["LightExtractor"]


@dataclass(frozen=True, kw_only=True)
class LightExtractor:
    """Finds what names look like, without a model.

    | label | what |
    |---|---|
    | `NAME` | capitalised phrases and acronyms: a rule cannot tell a person from a place |
    | `DATE`, `TIME`, `MONEY`, `PERCENT`, `QUANTITY`, `ORDINAL`, `CARDINAL` | numbers, as spaCy's models name them |
    | `CODE` | `snake_case`, `camelCase`, `dotted.names`, `` `backticks` `` |
    | `WORK_OF_ART`, `TERM` | 《a title》; a “quoted term” of a few words |
    | `URL`, `EMAIL`, `HANDLE` | addresses, and @handles |

    A capital at the beginning of a sentence proves nothing: such a word counts where the same text has it inside a
    sentence too, where more capitals follow or a verb that names one thing (Paris is, Ada wrote), or where it is an
    acronym. Each text is read alone, so that what else is
    in the iterable changes nothing. Linear in the text; memory is that of one text and its entities.

    Example:
        >>> (found,) = LightExtractor().extract(["Yesterday Tim Cook paid $3 million for parse_url in May 2024."])
        >>> [(entity.text, entity.label) for entity in found]
        [('Tim Cook', 'NAME'), ('$3 million', 'MONEY'), ('parse_url', 'CODE'), ('May 2024', 'DATE')]
    """

    @property
    def fingerprint(self) -> str:
        """Names the rules; it changes when they do, so that documents are read again."""
        return f"light-{RULES}"

    def extract(self, texts: Iterable[str]) -> Iterator[Sequence[Entity]]:
        """For each text in order its entities, sorted and disjoint; lazily, one text at a time."""
        return (_entities(text) for text in each_text(texts, "extract"))


# A place in the text and its label; "" is a lone word at the beginning of a sentence, of which nothing is known yet.
_Found = tuple[int, int, str]

_INSIDE = frozenset("abcdefghijklmnopqrstuvwxyz0123456789,;")
_OPENING_QUOTES = frozenset("\"“‘'«„")
_SENTENCE_ENDS = frozenset(".!?:…。！？：•|")
_LOOK_BACK = 64
_WRAPPED = 50  # a line of fewer characters was not broken for want of room


def _entities(text: str) -> tuple[Entity, ...]:
    found = _find(text)
    if any(not label for _, _, label in found):
        known = {word for start, end, label in found if label == "NAME" for word in text[start:end].split()}
        found = [(start, end, label or "NAME") for start, end, label in found if label or text[start:end] in known]
    return tuple(Entity(text[start:end], label, Span(start, end)) for start, end, label in found)


def _find(text: str) -> list[_Found]:
    """Every candidate in order, none overlapping."""
    found: list[_Found] = []
    done = 0
    for match in MASTER.finditer(text):
        start = match.start()
        group = match.lastgroup
        if start < done or group is None:
            continue
        new = _name(text, match, done) if group == "name" else _OTHERS[group](text, match, done)
        if new is not None:
            done = new[1]
            if new[2] != _SKIPPED:
                found.append(new)
    return found


_SKIPPED = "-"  # the label of what is passed over whole


def _name(text: str, match: re.Match[str], done: int) -> _Found | None:
    """What a capitalised phrase is."""
    start, end = match.span()
    after = text[end : end + 2]
    if len(after) == 2 and (after[0] == "@" or (after[0] in "._" and after[1].isalnum())):
        token = _around(text, end, done)
        if token is not None and token[1] > end and (token[2] == "EMAIL" or not after[1].isupper()):
            return token
    if end - start > LONGEST_NAME:
        return start, end, _SKIPPED
    inside = start > 1 and text[start - 1] == " " and text[start - 2] in _INSIDE
    phrase = text[start:end]
    while " " in phrase:  # "In the", "The": what opens a sentence, and connectors that have lost their head
        first, _, rest = phrase.partition(" ")
        if first in DATE_WORDS and WRITTEN_DATE.match(text, start):
            break
        lower = first.lower()
        if lower in FIRST_OF_NAMES or (inside and lower in GIVEN_NAMES):
            break
        if not (lower in OPENERS or first.rstrip(".") in TITLES or first.islower()):
            break
        start, phrase, inside = end - len(rest), rest, True
    first = phrase.partition(" ")[0]
    if first in DATE_WORDS:
        date = WRITTEN_DATE.match(text, start)
        if date is not None:
            return start, date.end(), "DATE"
        if DATE_WORDS[first] and first == phrase:
            return None
    if first[0].isdigit():
        number = NUMBER.match(text, start)
        return (start, number.end(), NUMBER_LABELS[str(number.lastgroup)]) if number else None
    if " " in phrase:
        return start, end, "NAME"
    if len(phrase) == 1 or not phrase[0].isupper() or (phrase.lower() in OPENERS and not phrase.isupper()):
        return None
    if "_" in phrase:
        return start, end, "CODE"
    if inside or not phrase[1:].islower() or not _begins_sentence(text, start) or NAMED_BY.match(text, end):
        return start, end, "NAME"
    return start, end, ""


def _begins_sentence(text: str, start: int) -> bool:
    """Whether a word opens a sentence, a line, a list item, a quotation."""
    window = text[max(0, start - 12) : start]
    if len(window) > 1 and window[-1] in "'’" and window[-2].isalnum():  # d'Artagnan
        return False
    before = window.rstrip(" \t\u00a0\u3000\"“‘'«„([{*_#>-–—")
    if not before or any(character in _OPENING_QUOTES for character in window[len(before) :]):
        return True
    if before[-1] not in "\n\r":
        return before[-1] in _SENTENCE_ENDS
    line_end = start - len(window) + len(before) - 1
    line = text[max(0, line_end - _WRAPPED) : line_end].rstrip("\r")
    return len(line) < _WRAPPED - 1 or "\n" in line or line[-1] in _SENTENCE_ENDS


def _token(text: str, start: int) -> _Found | None:
    """An address or an identifier that begins here."""
    match = TOKEN.match(text, start)
    if match is None:
        return None
    longest = LONGEST_ADDRESS if match.lastgroup == "URL" else LONGEST_NAME
    return start, match.end(), str(match.lastgroup) if match.end() - start <= longest else _SKIPPED


def _inside_token(text: str, match: re.Match[str], done: int) -> _Found | None:
    found = _around(text, match.start(), done)
    if found is not None and found[2] == _SKIPPED:
        return found[0], max(found[1], match.end()), _SKIPPED
    return found


def _around(text: str, at: int, done: int) -> _Found | None:
    """The token around an inner underscore, a dot, a hump or an at sign."""
    backwards = WORD_BACKWARDS.match(text[max(done, at - _LOOK_BACK) : at][::-1])
    length = backwards.end() if backwards else 0
    if length == _LOOK_BACK:  # no identifier is that long: a blob
        return at, at + 1, _SKIPPED
    start = at - length
    token = _token(text, start)
    while token is not None and token[1] <= at:  # "one-two_three": the token begins after the hyphen
        start = token[1] + 1
        token = _token(text, start) if start < at else None
    if token is None or token[2] != "CODE":
        return token
    if text[at] == "." and at - start < 2:  # e.g., i.e., a.m.
        return start, token[1], _SKIPPED
    return (start, token[1], "NAME") if text[at].isupper() and at - start == 1 else token  # iPhone, eBay


def _address(text: str, match: re.Match[str], done: int) -> _Found | None:
    """A URL, by what stands before its colon."""
    at = match.start()
    for scheme in ("https", "http", "ftp"):
        start = at - len(scheme)
        if start >= done and text.startswith(scheme, start):
            return _token(text, start)
    return None


def _number(text: str, match: re.Match[str], done: int) -> _Found | None:
    start = match.start()
    number = NUMBER.match(text, start)
    if number is None:
        return None
    label = NUMBER_LABELS[str(number.lastgroup)]
    if label == "CARDINAL" and number.end() - start < 3:  # what ties nothing to anything
        label = _SKIPPED
    return start, number.end(), label


def _quoted(text: str, match: re.Match[str], done: int) -> _Found | None:
    """A quoted term or title; one capitalised word is more often speech."""
    start, end = match.span(str(match.lastgroup))
    words = text[start:end].split()
    if words[0][0].islower():
        return (start, end, "TERM") if len(words) <= 4 else None
    titled = 2 <= len(words) <= 8 and all(not word[0].islower() or word in ENGLISH_STOP_WORDS for word in words)
    return (start, end, "WORK_OF_ART") if titled else None


def _whole(label: str) -> _Reading:
    """What the group holds, blanks around it left out."""

    def found(text: str, match: re.Match[str], done: int) -> _Found | None:
        start, end = match.span(str(match.lastgroup))
        inner = text[start:end]
        start, end = end - len(inner.lstrip()), start + len(inner.rstrip())
        return (start, end, label) if start < end else None

    return found


def _from_start(label: str) -> _Reading:
    def found(text: str, match: re.Match[str], done: int) -> _Found | None:
        return match.start(), match.end(), label

    return found


_Reading = Callable[[str, re.Match[str], int], _Found | None]
_OTHERS: dict[str, _Reading] = {
    "number": _number,
    "hump": _inside_token,
    "underscore": _inside_token,
    "dot": _inside_token,
    "at": _inside_token,
    "scheme": _address,
    "handle": _whole("HANDLE"),
    "money": _from_start("MONEY"),
    "curly": _quoted,
    "straight": _quoted,
    "code": _whole("CODE"),
    "title": _whole("WORK_OF_ART"),
    "term": _whole("TERM"),
    "kana": _from_start("NAME"),
}
