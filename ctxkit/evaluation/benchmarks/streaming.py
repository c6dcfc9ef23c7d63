"""Streaming: the memory, the throughput and the chunks of a text that arrives in pieces, beside the whole of it."""

from __future__ import annotations

import gzip
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from ctxkit.chunking import RecursiveChunker, SemanticGraphChunker, StreamableChunker, StreamingChunker
from ctxkit.documents import Chunk, Document
from ctxkit.errors import ConfigError
from ctxkit.evaluation.report import Bar, Report

__all__ = ["measure", "run"]

PIECE = 65_536
CHUNKERS = ("recursive", "graph")


def run(data: Path, *, megabytes: int = 32, rounds: int = 3, chunkers: Iterable[str] = CHUNKERS) -> Report:
    """War and Peace, repeated, cut as a stream and as a whole; some minutes.

    Every run is a process of its own: memory growth is its peak resident set less what it had before the text came.
    Timings are processor time, the two ways take turns, and the median ratio counts. The text is unpacked as it is
    read, so that neither way holds a copy which it does not need.

    Args:
        megabytes: of text, in millions of characters.
        rounds: how often each is measured.
    """
    path = data / "gutenberg" / "war_and_peace_2600-0.txt.gz"
    if not path.is_file():
        raise ConfigError("the data file is not here", subject=str(path), remedy="Set CTXKIT_DATA to the data folder.")
    report = Report("streaming", f"War and Peace repeated to {megabytes} million characters, in pieces of {PIECE:,}")
    for name in chunkers:
        runs: dict[str, list[dict[str, Any]]] = {"whole": [], "stream": []}
        for _ in range(rounds):
            for way, measured in runs.items():
                measured.append(_in_a_process(path, name, way, megabytes * 1_000_000))
        growth = {way: median(one["growth_mb"] for one in measured) for way, measured in runs.items()}
        ratio = median(
            whole["seconds"] / stream["seconds"] for whole, stream in zip(runs["whole"], runs["stream"], strict=True)
        )
        for way, measured in runs.items():
            report.rows.append(
                {
                    "chunker": name,
                    "way": way,
                    "chunks": measured[0]["chunks"],
                    "memory growth MB": round(growth[way], 1),
                    "MB a second": round(megabytes / median(one["seconds"] for one in measured), 2),
                    "digest of all chunks": measured[0]["digest"][:12],
                }
            )
        digests = {one["digest"] for measured in runs.values() for one in measured}
        report.bars += [
            Bar.at_most(f"{name}: memory growth MB", growth["stream"], 64),
            Bar.at_least(f"{name}: times less than whole", growth["whole"] / max(growth["stream"], 0.1), 10),
            Bar.at_least(f"{name}: throughput, stream : whole", ratio, 1.0),
            Bar(f"{name}: different results", len(digests) - 1, "== 0", len(digests) == 1),
        ]
    return report


def _in_a_process(path: Path, name: str, way: str, size: int) -> dict[str, Any]:
    code = "import sys; from ctxkit.evaluation.benchmarks.streaming import measure; measure(*sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), name, way, str(size)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ConfigError("a measurement failed", subject=done.stderr[-2_000:], remedy="Run it again alone.")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measure(path: str, name: str, way: str, size: str) -> None:
    """One run, in a process of its own; prints what it measured as JSON."""
    import resource
    import time

    chunker: StreamableChunker = RecursiveChunker() if name == "recursive" else SemanticGraphChunker()
    head = Document.from_text("", source="book.txt")
    for chunk in chunker.chunk(replace(head, text="Anna met Pierre. He left. " * 200)):  # what is loaded once
        del chunk
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    pieces = _pieces(Path(path), int(size))
    if way == "stream":
        chunks: Iterable[Chunk] = StreamingChunker(chunker=chunker).stream(pieces, head)
    else:
        chunks = list(chunker.chunk(replace(head, text="".join(pieces))))
    count, digest = 0, hashlib.sha256()
    for chunk in chunks:
        count += 1
        digest.update(f"{chunk.span}{chunk.token_count}{chunk.heading_path}{chunk.context}{chunk.text}".encode())
    seconds = time.process_time() - started
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    values = {"chunks": count, "digest": digest.hexdigest(), "seconds": seconds, "growth_mb": (after - before) / unit}
    sys.stdout.write(json.dumps(values))


def _pieces(path: Path, size: int) -> Iterator[str]:
    """The book again and again, until there are `size` characters."""
    left = size
    while left:
        with gzip.open(path, "rt", encoding="utf-8") as book:
            while left and (piece := book.read(min(PIECE, left))):
                left -= len(piece)
                yield piece
