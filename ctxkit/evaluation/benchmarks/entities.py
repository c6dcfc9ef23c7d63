"""Entities: exact spans on WNUT 2017 and Weibo, throughput beside a bare spaCy pipeline, memory on one giant line."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from ctxkit.documents import Entity, Span
from ctxkit.errors import ConfigError
from ctxkit.evaluation.benchmarks.chunking import story_of_the_stone, war_and_peace
from ctxkit.evaluation.entity_sets import ENTITY_SETS, EntitySet
from ctxkit.evaluation.report import Bar, Report
from ctxkit.graph import JiebaExtractor, LightExtractor, SpacyExtractor
from ctxkit.graph.spacy_extractor import loaded_model
from ctxkit.graph.windows import windows
from ctxkit.protocols import EntityExtractor

__all__ = ["run", "span_scores"]

# What people annotated as a name; dates, numbers and addresses are no names in these sets.
NAMES = frozenset("NAME PERSON ORG GPE LOC FAC NORP PRODUCT WORK_OF_ART EVENT LAW HANDLE".split())  # noqa: SIM905
_EXTRACTORS: Mapping[str, tuple[Callable[[], EntityExtractor], tuple[str, ...]]] = {
    "light": (LightExtractor, ("wnut17", "weibo_ner")),
    "spacy": (SpacyExtractor, ("wnut17",)),
    "chinese": (JiebaExtractor, ("weibo_ner",)),
}


# Parts of the giant line: what jieba reads run by run and spaCy in windows shows itself in less than all of it.
_PART = {"light": 1, "chinese": 30, "spacy": 40}


def run(
    data: Path, *, limit: int | None = None, characters: int = 60_000, rounds: int = 5, line: int = 10_000_000
) -> Report:
    """Precision, recall and F1 of names whose spans are exact, whatever their label; a few minutes on two cores.

    `throughput` is processor time of a bare `nlp.pipe` over the same windows, in ours, the median of interleaved
    rounds. `MB/s` is of UTF-8 and processor time, for orientation. `peak MB` is what Python allocates at most over
    one line of 10 MB (1 MB for jieba, 0.25 MB for spaCy), text and entities included, after something short.

    Args:
        limit: only the first texts of each set.
        characters: of War and Peace, for the throughput of spaCy.
        line: bytes of the giant line.
    """
    sets = {name: load(data) for name, load in ENTITY_SETS.items()}
    report = Report("entities", "names with exact spans, of any label: WNUT 2017 test, Weibo test (.NAM)")
    book, novel = war_and_peace(data).text, story_of_the_stone(data).text
    samples = {"light": book, "spacy": book[:characters], "chinese": novel[: 2 * characters]}
    for name, (make, languages) in _EXTRACTORS.items():
        for language in languages:
            row: dict[str, Any] = {"extractor": name, "set": language}
            report.rows.append(row | _scored(make(), sets[language], limit))
        seconds = _seconds(lambda make=make, name=name: _spend(make(), samples[name]))  # type: ignore[misc]
        size = line // _PART[name]
        report.rows[-1] |= {
            "MB/s": round(len(samples[name].encode()) / 1e6 / seconds, 3),
            "peak MB": round(_peak(name, size, "chinese" if name == "chinese" else "english", data), 1),
        }
    share = _throughput(book[:characters], rounds)
    next(row for row in report.rows if row["extractor"] == "spacy")["throughput"] = round(share, 3)
    report.bars.append(Bar.at_least("throughput of bare nlp.pipe", share, 0.95))
    return report


def span_scores(found: Sequence[Sequence[Span]], gold: Sequence[Sequence[Span]]) -> tuple[float, float, float]:
    """Precision, recall and F1 over all texts, of exact spans, in percent."""
    right = sum(len({*ours} & {*theirs}) for ours, theirs in zip(found, gold, strict=True))
    precision = right / max(1, sum(map(len, found)))
    recall = right / max(1, sum(map(len, gold)))
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    return 100 * precision, 100 * recall, 100 * f1


def _scored(extractor: EntityExtractor, gold: EntitySet, limit: int | None) -> dict[str, float]:
    found = [
        [entity.span for entity in entities if entity.label in NAMES]
        for entities in extractor.extract(gold.texts[:limit])
    ]
    scores = span_scores(found, gold.spans[:limit])
    return {key: round(score, 1) for key, score in zip(("precision", "recall", "F1"), scores, strict=True)}


def _spend(extractor: EntityExtractor, text: str) -> Sequence[Entity]:
    return next(iter(extractor.extract([text])))


def _seconds(work: Callable[[], Any]) -> float:
    started = time.process_time()
    work()
    return max(1e-9, time.process_time() - started)


def _throughput(text: str, rounds: int) -> float:
    """The processor time of the bare pipeline in that of our extractor: 1 where ours costs nothing."""
    extractor = SpacyExtractor()
    nlp = loaded_model(extractor.model)
    parts = [span.slice(text) for span in windows(text, extractor.window, extractor.overlap)]

    def bare() -> int:
        return sum(len(doc.ents) for doc in nlp.pipe(parts, batch_size=extractor.batch_size))

    def ours() -> int:
        return len(_spend(extractor, text))

    bare(), ours()
    order = itertools.cycle([(bare, ours), (ours, bare)])  # neither is always the one that finds the caches warm
    ratios = []
    for first, second in itertools.islice(order, rounds):
        times = {work: _seconds(work) for work in (first, second)}
        ratios.append(times[bare] / times[ours])
    return median(ratios)


_MEASURE = """
import sys, tracemalloc
from pathlib import Path
from ctxkit.evaluation.benchmarks.chunking import story_of_the_stone, war_and_peace
from ctxkit.evaluation.benchmarks.entities import _EXTRACTORS
name, size, language, data = sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
extractor = _EXTRACTORS[name][0]()
unit = (story_of_the_stone if language == "chinese" else war_and_peace)(data).text[:1_000_000]
unit = " ".join(unit.split())
next(iter(extractor.extract([unit[:60_000]])))
tracemalloc.start()
found = next(iter(extractor.extract([(unit * (size // len(unit) + 1))[:size]])))
print(tracemalloc.get_traced_memory()[1] / 1e6)
"""


def _peak(name: str, size: int, language: str, data: Path) -> float:
    """How many MB Python allocates at most over one line of `size` characters."""
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, name, str(size), language, str(data)], capture_output=True, text=True
    )
    if done.returncode:
        raise ConfigError(
            "the measuring process failed",
            subject=name,
            remedy=done.stderr.strip().splitlines()[-1] if done.stderr else "Run it again with more memory.",
        )
    return float(done.stdout.split()[-1])
