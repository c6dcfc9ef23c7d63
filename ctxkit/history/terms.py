"""What a message says, as terms: names and numbers above plain words, stop words left out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from math import log

from ctxkit.history.repair import Entry
from ctxkit.history.timeline import Timeline
from ctxkit.stop_words import ENGLISH_STOP_WORDS
from ctxkit.text import words

__all__ = ["Kind", "Terms", "entry_text", "rarity", "terms_of", "timeline_terms"]

_TOKEN = re.compile(r"[^\W_]+(?:[.,:'’/-][^\W_]+)*")
_SENTENCE_ENDS = '.?!:"'
_WITHOUT_SPACES = re.compile("[\u0e00-\u0eff\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff]")


class Kind(IntEnum):
    """What a term is, the more telling the higher; a term has the highest kind that it has anywhere in the dialogue."""

    WORD = 0
    NAME = 1
    """Written with a capital inside of a sentence."""
    NUMBER = 2
    """Any term with a digit."""


Terms = Mapping[str, Kind]


def terms_of(text: str) -> dict[str, Kind]:
    """The terms of a text, in order of their first place. Linear.

    Example:
        >>> {term: kind.name for term, kind in terms_of("Please fly me to Rome at 7:30").items()}
        {'please': 'WORD', 'fly': 'WORD', 'rome': 'NAME', '7:30': 'NUMBER'}
    """
    found: dict[str, Kind] = {}
    for match in _TOKEN.finditer(text):
        raw = match.group()
        term = raw.casefold()
        if _WITHOUT_SPACES.search(raw):
            for part in words(raw):
                found.setdefault(part, Kind.WORD)
            continue
        if term in ENGLISH_STOP_WORDS or re.split("['’]", term, maxsplit=1)[0] in ENGLISH_STOP_WORDS:
            continue
        kind = Kind.WORD
        if any(map(str.isdigit, raw)):
            kind = Kind.NUMBER
        elif raw[0].isupper() and not _starts_sentence(text, match.start()):
            kind = Kind.NAME
        found[term] = max(found.get(term, Kind.WORD), kind)
    return found


def _starts_sentence(text: str, position: int) -> bool:
    before = text[max(0, position - 4) : position].rstrip()
    return not before or before[-1] in _SENTENCE_ENDS


def entry_text(entry: Entry) -> str:
    """What a message and the results of its calls say."""
    if not entry.message.tool_calls:
        return entry.message.visible
    calls = [f"{call.name} {call.arguments}" for call in entry.message.tool_calls]
    return "\n".join([entry.message.visible, *calls, *(result.visible for result in entry.results.values())])


def timeline_terms(timeline: Timeline, places: Iterable[int]) -> dict[int, Terms]:
    """The terms of entries by place; looked up once for each entry."""
    known: dict[int, tuple[Entry, Terms]] = timeline.facts.setdefault("terms", {})
    found: dict[int, Terms] = {}
    for place in places:
        entry = timeline.entries[place]
        seen = known.get(place)
        if seen is None or seen[0] is not entry:
            seen = known[place] = (entry, terms_of(entry_text(entry)))
        found[place] = seen[1]
    return found


def rarity(terms: Sequence[Terms]) -> dict[str, float]:
    """How much a term tells, by how few of the entries have it: log(1 + n / df).

    Source: Spärck Jones, "A statistical interpretation of term specificity", Journal of Documentation 1972.
    """
    frequencies: Counter[str] = Counter()
    for each in terms:
        frequencies.update(each.keys())
    return {term: log(1 + len(terms) / frequency) for term, frequency in frequencies.items()}
