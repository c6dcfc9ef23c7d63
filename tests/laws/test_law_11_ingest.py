"""Law 11: a crash loses nothing. An ingest of 200 files is killed at 20 random moments, on both databases."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from ctxkit.documents import Span, merge_spans
from ctxkit.engine import ContextEngine
from ctxkit.graph.light import LightExtractor
from ctxkit.storage import Store

FILES = 200
KILLS = 20
# Has everything imported and forks an ingest for each line: starting Python takes longer than the ingest.
NURSERY = """
import os, sys
from ctxkit.documents import Document
from ctxkit.engine import ContextEngine
from ctxkit.graph.light import LightExtractor
with ContextEngine.open("sqlite://", embedder="hash", extractor=LightExtractor()) as engine:
    engine.ingest_documents([Document.from_text("Ada met Charles.", source="a.md")])
try:
    import psycopg
except ImportError:
    pass

def ingest(url, folder):
    with ContextEngine.open(url, embedder="hash", extractor=LightExtractor()) as engine:
        os.write(1, b"%d\\n" % os.getpid())
        engine.ingest(folder)

for line in sys.stdin:
    url, folder = line.split()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            ingest(url, folder)
            code = 0
        finally:
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Nursery:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", NURSERY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self, url: str, folder: Path) -> int:
        """An ingest whose store is open; its process id."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{url} {folder}\n")
        self.process.stdin.flush()
        return int(self.line())

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    started = Nursery()
    yield started
    started.process.communicate(timeout=30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 files of one to four chunks, each of which names two people."""
    folder = tmp_path_factory.mktemp("files")
    rng = random.Random(11)
    words = ["key", "rotate", "budget", "prompt", "token", "span", "store", "model", "chunk", "answer"]
    for number in range(FILES):
        paragraphs = [" ".join(rng.choices(words, k=120)).capitalize() + "." for _ in range(rng.randint(1, 3))]
        (folder / f"note-{number:03}.md").write_text(
            f"# Note {number}\n\nToday Ada Lovelace met Charles Babbage.\n\n" + "\n\n".join(paragraphs) + "\n"
        )
    return folder


def whole_documents(store: Store) -> int:
    """How many documents there are; fails when one of them is not whole."""
    documents = store.documents
    stored = documents.chunks(documents.keys())
    by_document: dict[str, list[Span]] = {}
    for chunk in stored.values():
        by_document.setdefault(chunk.document_id, []).append(chunk.span)
    listed = documents.list()
    for info in listed:
        spans = by_document.pop(info.id)
        assert len(spans) == len(set(spans)) == info.chunk_count, "a chunk is there twice, or is missing"
        text = documents.get(info.id).text
        covered = merge_spans(spans)
        left = "".join(text[a.end : b.start] for a, b in pairwise(covered))
        assert not (text[: covered[0].start] + left + text[covered[-1].end :]).strip(), "a document has a gap"
    assert not by_document, "there are chunks without a document"
    keys, vectors = documents.vectors("hash-64")
    assert sorted(keys.tolist()) == sorted(stored) and len(vectors) == len(stored), "chunks and vectors differ"
    in_graph = sorted(key for part in store.graph.load() for key in part.keys.tolist())
    assert in_graph == sorted(stored), "chunks and the graph differ"
    return len(listed)


@pytest.mark.timeout(600)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_an_ingest_killed_at_any_moment_is_completed_by_the_next(
    new_store_url: Callable[[], str], nursery: Nursery, folder: Path
) -> None:
    url = new_store_url()
    began = time.perf_counter()
    nursery.start(url, folder)
    assert nursery.line() == "0"
    duration = time.perf_counter() - began
    with Store.open(url) as store:
        assert whole_documents(store) == FILES
        expected = sorted((info.source, info.chunk_count) for info in store.documents.list())
    rng = random.Random(2026)
    interrupted = 0
    for _ in range(KILLS):
        url = new_store_url()
        pid = nursery.start(url, folder)
        time.sleep(rng.uniform(0.0, duration * 0.8))
        # One that has ended is gone for good: the nursery has waited for it.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        assert nursery.line() in {"0", str(-signal.SIGKILL)}
        with Store.open(url) as store:
            done = whole_documents(store)
        interrupted += 0 < done < FILES
        with ContextEngine.open(url, embedder="hash", extractor=LightExtractor()) as engine:
            report = engine.ingest(folder)
            assert not report.failed
            # A commit that the killed process had sent may still land between the two looks at the store.
            assert done <= report.unchanged <= done + 1, "what was finished is not done again"
            assert report.unchanged + report.added == FILES
            assert whole_documents(engine.store) == FILES
            assert sorted((info.source, info.chunk_count) for info in engine.store.documents.list()) == expected
    assert interrupted >= KILLS // 4, "the kills hardly ever hit the middle of the work; the test shows nothing"
