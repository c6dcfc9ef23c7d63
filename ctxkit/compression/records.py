"""What is known of a text's sentences before any question: where they are, what they cost, their words and vectors.

Made once a chunk, at ingest or when first needed; every question after that works on these arrays alone.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ctxkit.compression.terms import plain_words, stem
from ctxkit.compression.units import BLANKS, Unit, split
from ctxkit.documents import Candidate
from ctxkit.embedded import embedded
from ctxkit.protocols import Embedder, TokenCounter
from ctxkit.stop_words import ENGLISH_STOP_WORDS

__all__ = [
    "Record",
    "context_of",
    "embed_records",
    "in_context",
    "make_record",
    "name_hashes",
    "stem_hash",
    "term_hash",
]

# One that points back: what it says is of somebody or something named before it.
_LEANS = re.compile(
    r"\W*(?:(?:he|she|it|they|his|her|hers|its|their|theirs|this|these|that|those|such|both|the latter|the former)\b"
    r"|the (?:film|movie|band|song|album|company|book|novel|series|city|town|team|club|school|company|agreement)\b)"
    r"|\s*(?:他|她|它|他们|她们|它们|这|這|该|該|此|其)",
    re.IGNORECASE,
)
_CAPITALISED = re.compile(r"\b[^\W\d_a-z][\w'’-]*")
_FIGURE = re.compile(r"\d")


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """The sentences of one candidate.

    Args:
        context: the title and the headings that every sentence is read under.
        counter: the name of what counted; `total`: tokens of the whole text.
        tokens: of each sentence, without the blanks after it: shape `(n,)`.
        terms: hashes of the stemmed words of all sentences in context, in order; `rows` tells whose each is.
        inside: whether a term is of the sentence itself, not of its context.
        names: hashes of the capitalised words; `name_rows` tells whose each is.
        leans: which sentences begin with a word that points back, such as "He".
        figures: which have a digit.
        alone: which may be chosen by themselves: all but headings and headers, unless there is nothing else.
        blank: which are white space.
        vectors: of the sentences in context, FP16 numbers in FP32, shape `(n, dimension)`; None without an embedder.
    """

    units: tuple[Unit, ...]
    context: str
    counter: str
    total: int
    tokens: NDArray[np.int32]
    terms: NDArray[np.uint32]
    rows: NDArray[np.int32]
    inside: NDArray[np.bool_]
    names: NDArray[np.uint32]
    name_rows: NDArray[np.int32]
    leans: NDArray[np.bool_]
    figures: NDArray[np.bool_]
    alone: NDArray[np.bool_]
    blank: NDArray[np.bool_]
    vectors: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.units)


def make_record(candidate: Candidate, counter: TokenCounter) -> Record:
    """Everything but the vectors. Linear in the text."""
    units = split(candidate)
    context = context_of(candidate)
    terms: list[int] = []
    rows: list[int] = []
    inside: list[bool] = []
    names: list[int] = []
    name_rows: list[int] = []
    for row, unit in enumerate(units):
        above = [term_hash(word) for word in plain_words(_above(context, units, unit))]
        own = [term_hash(word) for word in plain_words(unit.text)]
        terms.extend(above)
        terms.extend(own)
        inside.extend([False] * len(above) + [True] * len(own))
        rows.extend([row] * (len(above) + len(own)))
        found = name_hashes(unit.text)
        names.extend(found)
        name_rows.extend([row] * len(found))
    alone = [not (unit.heading or unit.header) for unit in units]
    return Record(
        units=tuple(units),
        context=context,
        counter=counter.name,
        total=counter.count(candidate.text),
        tokens=_counted(units, counter),
        terms=np.array(terms, dtype=np.uint32),
        rows=np.array(rows, dtype=np.int32),
        inside=np.array(inside, dtype=np.bool_),
        names=np.array(names, dtype=np.uint32),
        name_rows=np.array(name_rows, dtype=np.int32),
        leans=np.array([_LEANS.match(unit.text) is not None for unit in units], dtype=np.bool_),
        figures=np.array([_FIGURE.search(unit.text) is not None for unit in units], dtype=np.bool_),
        alone=np.array(alone if any(alone) else [True] * len(units), dtype=np.bool_),
        blank=np.array([unit.text.isspace() for unit in units], dtype=np.bool_),
    )


def recounted(record: Record, candidate: Candidate, counter: TokenCounter) -> Record:
    """The record with the counts of another counter."""
    total = counter.count(candidate.text)
    return replace(record, counter=counter.name, total=total, tokens=_counted(record.units, counter))


def _counted(units: Sequence[Unit], counter: TokenCounter) -> NDArray[np.int32]:
    # A blank after a sentence is part of the next word's token, or goes before a gap.
    return np.array([counter.count(unit.text.rstrip(BLANKS) or unit.text) for unit in units], dtype=np.int32)


def embed_records(records: Sequence[Record], embedder: Embedder, *, batch_size: int = 64) -> list[NDArray[np.float32]]:
    """The vectors of the sentences of each record, all of them embedded together.

    Half precision always, kept or not, so that a choice does not depend on where its vectors came from.

    Raises:
        EmbeddingError: the embedder does not return a row of finite numbers for each text.
    """
    texts = [in_context(record, unit) for record in records for unit in record.units]
    distinct = list(dict.fromkeys(texts))
    found: dict[str, NDArray[np.float32]] = {}
    for start in range(0, len(distinct), batch_size):
        batch = distinct[start : start + batch_size]
        # Rounded: a vector differs by some 1e-6 with what it is batched with.
        vectors = embedded(embedder, batch).round(5).astype(np.float16)
        found.update(zip(batch, vectors.astype(np.float32), strict=True))
    result: list[NDArray[np.float32]] = []
    position = 0
    for record in records:
        mine = [found[text] for text in texts[position : position + len(record)]]
        result.append(np.stack(mine) if mine else np.zeros((0, embedder.dimension), dtype=np.float32))
        position += len(record)
    return result


def context_of(candidate: Candidate) -> str:
    """The title and the headings above: "It was founded in 1911" says of what."""
    chunk = candidate.chunk
    above = [str(chunk.metadata.get("title") or ""), *chunk.heading_path]
    return " > ".join(dict.fromkeys(part for part in above if part))


def in_context(record: Record, unit: Unit) -> str:
    """The sentence as it is read by an embedder."""
    above = _above(record.context, record.units, unit)
    return f"{above}: {unit.text}" if above else unit.text


def _above(context: str, units: Sequence[Unit], unit: Unit) -> str:
    if unit.under is None:
        return context
    heading = units[unit.under].text.strip("# \n\r\t")
    return f"{context} > {heading}" if context and heading not in context.split(" > ") else context or heading


@lru_cache(maxsize=1 << 16)
def term_hash(word: str) -> int:
    """32 bits of a word's stem: of a question's words and a book's, two share one once in thousands of questions."""
    return stem_hash(stem(word))


def stem_hash(term: str) -> int:
    return zlib.crc32(term.encode("utf-8", "surrogatepass"))


def name_hashes(text: str) -> list[int]:
    """The capitalised words of a text that are not function words; a script without capitals has none."""
    found: list[int] = []
    for hit in _CAPITALISED.finditer(text):
        word = hit[0].lower().removesuffix("'s").removesuffix("’s")
        if len(word) > 1 and word not in ENGLISH_STOP_WORDS and word != hit[0]:
            found.append(zlib.crc32(word.encode("utf-8", "surrogatepass")))
    return found
