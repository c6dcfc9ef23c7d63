"""Law 11: a crash loses nothing. An ingest of 200 files is killed at 20 random moments, on both databases."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from ctxkit.documents import Span, merge_spans
from ctxkit.engine import ContextEngine
from ctxkit.graph.light import LightExtractor
from ctxkit.storage import Store

FILES = 200
KILLS = 20
CHILD = """
import sys
from ctxkit.engine import ContextEngine
from ctxkit.graph.light import LightExtractor
with ContextEngine.open(sys.argv[1], embedder="hash", extractor=LightExtractor()) as engine:
    print("started", flush=True)
    engine.ingest(sys.argv[2])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 files of one to twelve chunks, each of which names two people."""
    folder = tmp_path_factory.mktemp("files")
    rng = random.Random(11)
    words = ["key", "rotate", "budget", "prompt", "token", "span", "store", "model", "chunk", "answer"]
    for number in range(FILES):
        paragraphs = [" ".join(rng.choices(words, k=120)).capitalize() + "." for _ in range(rng.randint(1, 20))]
        (folder / f"note-{number:03}.md").write_text(
            f"# Note {number}\n\nToday Ada Lovelace met Charles Babbage.\n\n" + "\n\n".join(paragraphs) + "\n"
        )
    return folder


def start(url: str, folder: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen([sys.executable, "-c", CHILD, url, str(folder)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child.stdout as output:
        assert output.readline() == "started\n"
    return child


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
def test_an_ingest_killed_at_any_moment_is_completed_by_the_next(new_store_url, folder: Path) -> None:
    url = new_store_url()
    began = time.perf_counter()
    assert start(url, folder).wait() == 0
    duration = time.perf_counter() - began
    with Store.open(url) as store:
        assert whole_documents(store) == FILES
        expected = sorted((info.source, info.chunk_count) for info in store.documents.list())
    rng = random.Random(2026)
    interrupted = 0
    for _ in range(KILLS):
        url = new_store_url()
        child = start(url, folder)
        time.sleep(rng.uniform(0.0, duration * 0.8))
        child.send_signal(signal.SIGKILL)
        child.wait()
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
