"""Chunkers beside peers: what a retriever finds in their chunks, throughput, growth with the input, losslessness."""

from __future__ import annotations

import gc
import gzip
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ctxkit.chunking import RecursiveChunker, SemanticGraphChunker, SentenceChunker
from ctxkit.documents import Document
from ctxkit.errors import ConfigError
from ctxkit.evaluation.benchmarks._chunk_quality import CHOSEN, quality
from ctxkit.evaluation.benchmarks._chunk_retrieval import full_retrieval
from ctxkit.evaluation.benchmarks._chunk_short import short_corpora
from ctxkit.evaluation.benchmarks._chunk_speed import entity_cost, speed
from ctxkit.evaluation.datasets import chunking_eval
from ctxkit.evaluation.peers import tiktoken_cache
from ctxkit.evaluation.report import Bar, Report
from ctxkit.protocols import Chunker
from ctxkit.registry import create
from ctxkit.settings import require
from ctxkit.tokens import BpeCounter, get_counter

__all__ = ["SHAPES", "growth", "is_lossless", "run"]

ENCODING = "cl100k_base"
SIZE = 256
SIZES = (8, 16, 32, 64, 100, 128, 200, 256, 512, 777, 1024, 2048)

_PROSE = (
    "The committee met on Tuesday, and it did not agree. Dr. Smith spoke first; she asked for 5.3 million more. "
    "Nobody answered.\n\nLater, on the stairs, somebody laughed.\n"
)
SHAPES: dict[str, Callable[[int], str]] = {
    "one giant line": lambda size: "abcdefghij" * (size // 10),
    "only newlines": lambda size: "\n" * (size - 1) + "x",
    "one far paragraph break": lambda size: "word " * (size // 5) + "\n\n" + "word " * (size // 50),
    "normal prose": lambda size: _PROSE * (size // len(_PROSE)),
    "only spaces": lambda size: " " * (size - 1) + "x",
    "one giant grapheme": lambda size: "e" + "\u0301" * (size - 1),
    "one giant fence": lambda size: "```\n" + "x = 1\n" * (size // 6),
    "one giant table": lambda size: "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * (size // 10),
}
"""Texts of about a given number of characters. The first four are those of law 8."""


def run(
    data: Path,
    *,
    full: bool = False,
    rounds: int = 5,
    growth_size: int | None = None,
    sizes: Sequence[int] = SIZES,
    retrieve: bool = True,
    characters: int | None = None,
) -> Report:
    """Measure what a few minutes allow, or everything. Vectors stay in the cache folder.

    A first short run embeds 3,500 chunks and their sentences, a first full run some sixty thousand chunks.

    Args:
        full: every size, every peer, each embedded; the semantic chunkers, their time and their chunks; all growth.
        rounds: how often each timing is repeated; the chunkers take turns, and the median counts. All run in one
            thread, and timings are processor time, so that a busy machine does not decide.
        growth_size: characters of the shorter text of each shape; None for 400,000, and half of it in a short run.
        sizes: the maxima at which losslessness is checked; a short run takes every fourth.
        retrieve: whether chunks are embedded and searched, by meaning alone and by the whole pipeline; without it,
            Precision_Omega and BM25 alone.
        characters: of War and Peace, at three places, that the semantic chunkers are timed on; None for 24,000 in a
            full run and none in a short one.
    """
    book, novel, questions = war_and_peace(data), story_of_the_stone(data), chunking_eval(data)
    report = Report(
        "chunking",
        f"War and Peace ({len(book.text):,} characters), 红楼梦 ({len(novel.text):,}), "
        f"{len(questions.documents)} corpora with {len(questions.queries)} questions; {ENCODING}",
    )
    if not full:
        book_part = Document.from_text(book.text[: len(book.text) // 4], source=book.source)
        report.data += "; a short run: --full has all sizes, all peers, and speed"
    _throughput(report, book if full else book_part, rounds)
    _growth(report, growth_size or (400_000 if full else 200_000), rounds if full else 3, full=full)
    texts = [book, novel, *questions.documents]
    _lossless(report, texts if full else [book_part, *questions.documents], sizes if full else sizes[::4])
    embedder = create("embedder", "minilm") if retrieve or characters or full else None
    if characters is None:
        characters = 24_000 if full else 0
    if embedder is not None and characters:
        speed(report, book, embedder, characters=characters)
        entity_cost(report, questions)
    asked = embedder if retrieve else None
    quality(report, questions, asked, full=full)
    if asked is not None:
        if full:
            short_corpora(report, questions, asked)
        chunker = SemanticGraphChunker(counter=get_counter(ENCODING), preferred_tokens=CHOSEN[0], max_tokens=CHOSEN[1])
        full_retrieval(report, questions, asked, chunker, full=full)
    return report


def war_and_peace(data: Path) -> Document:
    return _book(data / "gutenberg" / "war_and_peace_2600-0.txt.gz")


def story_of_the_stone(data: Path) -> Document:
    return _book(data / "zh_novels" / "The_Story_of_the_Stone.txt.gz")


def _book(path: Path) -> Document:
    if not path.is_file():
        raise ConfigError("the data file is not here", subject=str(path), remedy="Set CTXKIT_DATA to the data folder.")
    return Document.from_text(
        gzip.decompress(path.read_bytes()).decode("utf-8").replace("\r\n", "\n"), source=path.stem
    )


# ------------------------------------------------------------------------------------------------- throughput


def _throughput(report: Report, book: Document, rounds: int) -> None:
    counter = BpeCounter(ENCODING)
    peer = langchain_splitter(SIZE)
    work: dict[str, Callable[[], int]] = {
        "langchain": lambda: len(peer.split_text(book.text)),
        "recursive": lambda: len(list(RecursiveChunker(max_tokens=SIZE, counter=counter).chunk(book))),
        "sentence": lambda: len(list(SentenceChunker(max_tokens=SIZE, counter=counter).chunk(book))),
        "graph": lambda: len(list(SemanticGraphChunker(max_tokens=SIZE, counter=counter).chunk(book))),
    }
    seconds: dict[str, list[float]] = {name: [] for name in work}
    chunks: dict[str, int] = {}
    for _ in range(max(1, rounds)):
        for name, task in work.items():
            start = time.process_time()
            chunks[name] = task()
            seconds[name].append(time.process_time() - start)
    for name in work:
        ratio = statistics.median(
            ours and peers / ours for peers, ours in zip(seconds["langchain"], seconds[name], strict=True)
        )
        report.rows.append(
            {
                "measure": "throughput",
                "chunker": name,
                "max_tokens": SIZE,
                "chunks": chunks[name],
                "mb_per_second": round(len(book.text.encode()) / statistics.median(seconds[name]) / 1e6, 2),
                "ratio": round(ratio, 2),
            }
        )
        if name == "recursive":
            report.bars.append(Bar.at_least("throughput_ratio_to_langchain", ratio, 2.0))


def langchain_splitter(size: int) -> Any:
    """LangChain's recursive splitter with tiktoken, without overlap."""
    splitters = require("langchain_text_splitters", extra="peers")
    with tiktoken_cache():
        return splitters.RecursiveCharacterTextSplitter.from_tiktoken_encoder(
            encoding_name=ENCODING, chunk_size=size, chunk_overlap=0
        )


# ----------------------------------------------------------------------------------------------------- growth


def growth(chunker: Chunker, shape: Callable[[int], str], size: int, rounds: int = 5) -> float:
    """`time(2 * size) / time(size)` in processor time: the ratio of the fastest of `rounds` runs, which alternate.

    A computation without chance takes its own time and what the machine adds: the fastest run has the least of that.
    The garbage collector waits meanwhile, as in `timeit`: what it adds depends on everything else that is alive.
    """
    short, long = (Document.from_text(shape(length), source="shape") for length in (size, 2 * size))
    best = {"short": float("inf"), "long": float("inf")}
    with _no_collector():
        for _ in range(max(1, rounds)):
            for name, document in (("short", short), ("long", long)):
                best[name] = min(best[name], _seconds(chunker, document))
    return best["long"] / best["short"]


def _seconds(chunker: Chunker, document: Document) -> float:
    start = time.process_time()
    for _ in chunker.chunk(document):
        pass
    return time.process_time() - start


@contextmanager
def _no_collector() -> Iterator[None]:
    # Collected once, and not before every run: in a process that holds much, a collection takes longer than the runs.
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _growth(report: Report, size: int, rounds: int, *, full: bool) -> None:
    counter = get_counter(ENCODING)
    chunkers: dict[str, Chunker] = {
        "recursive": RecursiveChunker(max_tokens=SIZE, counter=counter),
        "sentence": SentenceChunker(max_tokens=SIZE, counter=counter),
        "graph": SemanticGraphChunker(max_tokens=SIZE, counter=counter),
    }
    for name, chunker in chunkers.items():
        for number, (shape, make) in enumerate(SHAPES.items()):
            if number >= 4 and not full:
                break
            ratio = growth(chunker, make, size, rounds)
            report.rows.append(
                {"measure": "growth", "chunker": name, "shape": shape, "characters": size, "ratio": round(ratio, 2)}
            )
            if name in ("recursive", "graph") and number < 4:
                report.bars.append(Bar.at_most(f"growth_{name}_{shape.replace(' ', '_')}", ratio, 2.5))


# ------------------------------------------------------------------------------------------------ losslessness


def is_lossless(document: Document, chunker: Chunker, max_tokens: int, counter: Any) -> bool:
    """Whether the chunks are exact spans, in order, within the maximum, and cover every non-blank character."""
    text = document.text
    position = 0
    for chunk in chunker.chunk(document):
        start, end = chunk.span
        if chunk.text != text[start:end] or chunk.token_count > max_tokens or counter.count(chunk.text) > max_tokens:
            return False
        if start < position or text[position:start].strip():
            return False
        position = end
    return not text[position:].strip()


def _lossless(report: Report, documents: Iterable[Document], sizes: Sequence[int]) -> None:
    counter = get_counter(ENCODING)
    checked = held = 0
    for document in documents:
        for size in sizes:
            for chunker in (
                RecursiveChunker(max_tokens=size, counter=counter),
                SentenceChunker(max_tokens=size, counter=counter),
                SemanticGraphChunker(max_tokens=size, counter=counter),
            ):
                checked += 1
                held += is_lossless(document, chunker, size, counter)
    sizes_text = f"{min(sizes)}..{max(sizes)}"
    report.rows.append({"measure": "lossless", "max_tokens": sizes_text, "checked": checked, "lossless": held})
    report.bars.append(Bar.at_least("lossless", held / checked, 1.0))
