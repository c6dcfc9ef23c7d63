"""State of the Union addresses, 1945 to 2006: dated speeches in which the same topics return."""

from __future__ import annotations

import re
import zipfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ctxkit.errors import ConfigError
from ctxkit.retrieval.phrases import name_phrases
from ctxkit.stop_words import ENGLISH_STOP_WORDS

__all__ = ["Speech", "Topic", "speeches", "topics"]

_DATE = re.compile(r"\b([A-Z][a-z]+ \d{1,2}, (?:19|20)\d\d)\b")
_SHORTEST = 40
"""Characters of a paragraph: what is shorter is a salutation or applause."""


@dataclass(frozen=True, slots=True)
class Speech:
    name: str
    given_at: datetime
    paragraphs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    """A name that returns over the years.

    Args:
        newest, first: paragraphs, as (speech, place), of the last and of the first speech that says it.
    """

    name: str
    newest: frozenset[tuple[int, int]]
    first: frozenset[tuple[int, int]]


def speeches(data: Path) -> list[Speech]:
    """The addresses by their date. Raises `ConfigError` without the data.

    Source: NLTK's corpus package `state_union`, public domain.
    """
    path = data / "state_union" / "state_union.zip"
    if not path.is_file():
        raise ConfigError("the data file is not here", subject=str(path), remedy="Set CTXKIT_DATA to the data folder.")
    found = []
    with zipfile.ZipFile(path) as archive:
        for name in sorted(archive.namelist()):
            if not name.endswith(".txt"):
                continue
            text = archive.read(name).decode("utf-8", "replace")
            stem = Path(name).stem
            dated = _DATE.search(text[:600])
            given = datetime.strptime(dated[1], "%B %d, %Y") if dated else datetime(int(stem[:4]), 1, 20)
            paragraphs = tuple(line.strip() for line in text.splitlines() if len(line.strip()) >= _SHORTEST)
            found.append(Speech(stem, given.replace(tzinfo=UTC), paragraphs))
    return sorted(found, key=lambda speech: (speech.given_at, speech.name))


def topics(said: Sequence[Speech], *, least: int = 3, most: float = 0.5) -> list[Topic]:
    """Names of two words or more that stand in at least `least` speeches over ten years, and in at most a part of all.

    A name is what is written with capitals; one that stands in most speeches ("United States") is no topic.
    """
    places: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for at, speech in enumerate(said):
        for place, paragraph in enumerate(speech.paragraphs):
            for name in dict.fromkeys(name_phrases(paragraph)):
                if " " in name and name.replace(" ", "").isalpha() and not name.isupper():
                    places[name].append((at, place))
    found = []
    for name, where in sorted(places.items()):
        held = sorted({at for at, _ in where})
        years = (said[held[-1]].given_at - said[held[0]].given_at).days / 365.25
        if least <= len(held) <= most * len(said) and years >= 10 and _stands_alone(name):
            newest, first = (frozenset(one for one in where if one[0] == held[end]) for end in (-1, 0))
            found.append(Topic(name, newest, first))
    return found


def _stands_alone(name: str) -> bool:
    """Whether it neither begins nor ends with a stop word, as what begins a sentence does."""
    words = name.casefold().split()
    return len(words[-1]) > 1 and not {words[0], words[-1]} & ENGLISH_STOP_WORDS and words[0] not in ("tonight", "last")
