"""Texts with their named entities, annotated by people: English (WNUT 2017) and Chinese (Weibo)."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ctxkit.documents import Span
from ctxkit.errors import ConfigError

__all__ = ["ENTITY_SETS", "EntitySet", "weibo_ner", "wnut17"]


@dataclass(frozen=True, slots=True)
class EntitySet:
    """Texts and, for each, where its names stand, in order."""

    name: str
    texts: tuple[str, ...]
    spans: tuple[tuple[Span, ...], ...]


def wnut17(data: Path, part: str = "test") -> EntitySet:
    """WNUT 2017, emerging entities in noisy English: `test`, `dev` or `train`. Words are joined by spaces.

    Source: Derczynski and others, "Results of the WNUT2017 Shared Task on Novel and Emerging Entity Recognition".
    """
    files = {"test": "emerging.test.annotated", "dev": "emerging.dev.conll", "train": "wnut17train.conll.gz"}
    return _read("wnut17", data / "wnut17" / _chosen(files, part), joint=" ", wanted=lambda label: True)


def weibo_ner(data: Path, part: str = "test") -> EntitySet:
    """Weibo, second version: names of persons, organisations and places (`.NAM`); nominal mentions are left out.

    Source: Peng and Dredze, "Named Entity Recognition for Chinese Social Media with Jointly Trained Embeddings", 2015.
    """
    endings = {"test": "test", "dev": "dev", "train": "train.gz"}
    path = data / "weibo_ner" / f"weiboNER_2nd_conll.{_chosen(endings, part)}"
    return _read("weibo_ner", path, joint="", wanted=lambda label: label.endswith(".NAM"))


ENTITY_SETS: Mapping[str, Callable[[Path], EntitySet]] = {"wnut17": wnut17, "weibo_ner": weibo_ner}
"""The sets by name."""


def _chosen(parts: Mapping[str, str], part: str) -> str:
    if part not in parts:
        raise ConfigError("there is no part of this name", subject=part, remedy=f"Known: {', '.join(parts)}.")
    return parts[part]


def _read(name: str, path: Path, *, joint: str, wanted: Callable[[str], bool]) -> EntitySet:
    if not path.is_file():
        raise ConfigError("the data file is not here", subject=str(path), remedy="Set CTXKIT_DATA to the data folder.")
    raw = path.read_bytes()
    table = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8")
    texts: list[str] = []
    spans: list[tuple[Span, ...]] = []
    for rows in _blocks(table.splitlines()):
        # Weibo's first column is the character and its place in its word.
        tokens = [(word[:1] if not joint else word, tag) for word, tag in rows]
        text, found = _annotated(tokens, joint, wanted)
        texts.append(text)
        spans.append(tuple(found))
    return EntitySet(name, tuple(texts), tuple(spans))


def _blocks(lines: Iterable[str]) -> Iterator[list[tuple[str, str]]]:
    rows: list[tuple[str, str]] = []
    for line in [*lines, ""]:
        columns = line.split("\t")
        if len(columns) > 1 and columns[0]:
            rows.append((columns[0], columns[1].strip()))
        elif rows:
            yield rows
            rows = []


def _annotated(tokens: list[tuple[str, str]], joint: str, wanted: Callable[[str], bool]) -> tuple[str, list[Span]]:
    text = ""
    found: list[Span] = []
    label = ""
    for word, tag in tokens:
        start = len(text) + (len(joint) if text else 0)
        text = f"{text}{joint}{word}" if text else word
        prefix, _, kind = tag.partition("-")
        if not kind or not wanted(kind):
            label = ""
        elif prefix == "I" and kind == label and found:
            found[-1] = Span(found[-1].start, len(text))
        else:
            found.append(Span(start, len(text)))
            label = kind
    return text, found
