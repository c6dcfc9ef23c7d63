"""Law 11 of the store alone: a writer is killed at random moments; all it was told is stored is there, nothing half.

The writer replaces documents, each version with its own text, chunks, entities and vectors, and appends to a dialogue
three messages at a time. It notes what the store has acknowledged. After each SIGKILL the store opens clean, holds
every acknowledged write, and each document is of one version, whole.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ctxkit.storage import Store

KILLS = 20
NAMES = 4

# Has everything imported and forks a writer for each line: starting Python takes longer than the writing.
NURSERY = """
import itertools, os, random, sys
import numpy as np
from ctxkit.documents import Chunk, Document, Entity, Span
from ctxkit.messages import Message
from ctxkit.storage import Store
Store.open("sqlite://").close()
try:
    import psycopg
except ImportError:
    pass

def write(url, notes, first):
    note = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    store = Store.open(url)
    for version in itertools.count(first):
        name = f"d{version % NAMES}"
        size = 1 + version * 7 % 40
        text = f"{version:09} " * size
        document = Document(name, text, source=name, title=str(version), metadata={"version": version})
        spans = [Span(at, at + 10) for at in range(0, len(text), 10)]
        chunks = [Chunk.of(document, span, 1, entities=(Entity(str(version), "V", span),)) for span in spans]
        vectors = np.full((size, 16), version, dtype=np.float32)
        store.documents.put(document, chunks, recipe=str(version), fingerprint="f", vectors=vectors)
        os.write(note, f"put {name} {version}\\n".encode())
        store.sessions.append("s", [Message("user", str(version), id=f"{version}-{n}") for n in range(3)])
        os.write(note, f"append s {version}\\n".encode())

for line in sys.stdin:
    url, notes, first = line.split()
    child = os.fork()
    if child == 0:
        write(url, notes, int(first))
        os._exit(0)
    print(child, flush=True)
    os.waitpid(child, 0)
    print("gone", flush=True)
""".replace("NAMES", str(NAMES))


@pytest.fixture(scope="module")
def nursery() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", NURSERY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield process
    process.communicate(timeout=30)


def stored_versions(store: Store) -> dict[str, int]:
    """The version of each document; fails where one is not whole."""
    documents = store.documents
    found: dict[str, int] = {}
    for info in documents.list():
        document = documents.get(info.id)
        version = int(document.metadata["version"])
        keys = documents.matching_keys({"document_id": info.id})
        assert keys is not None
        chunks = documents.chunks(keys)
        assert document.title == str(version)
        assert "".join(chunk.text for chunk in chunks.values()) == document.text == f"{version:09} " * info.chunk_count
        assert all(entity.text == str(version) for chunk in chunks.values() for entity in chunk.entities)
        assert all(len(chunk.entities) == 1 for chunk in chunks.values())
        at, vectors = documents.vectors("f", keys)
        assert at.tolist() == keys.tolist()
        assert np.all(vectors == version)
        assert documents.states([info.id])[info.id].recipe == str(version)
        found[info.id] = version
    assert len(documents.keys()) == sum(info.chunk_count for info in documents.list()), "chunks without a document"
    return found


def appended(store: Store) -> int:
    """The version of the newest append; fails where one is not whole."""
    messages = store.sessions.messages("s")
    assert [message.sequence for message in messages] == list(range(1, len(messages) + 1))
    versions = [int(message.text) for message in messages]
    assert versions == sorted(versions)
    assert versions[::3] == versions[1::3] == versions[2::3]
    return versions[-1] if versions else -1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_killed_writer_leaves_every_document_whole(
    store_url: str, nursery: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert nursery.stdin is not None
    assert nursery.stdout is not None
    rng = random.Random(11)
    notes = tmp_path / "notes"
    notes.touch()
    first = 0
    moments = set()
    for _ in range(KILLS):
        nursery.stdin.write(f"{store_url} {notes} {first}\n")
        nursery.stdin.flush()
        writer = int(nursery.stdout.readline())
        already = notes.stat().st_size
        deadline = time.monotonic() + 30
        while notes.stat().st_size == already and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.2))
        os.kill(writer, signal.SIGKILL)
        assert nursery.stdout.readline() == "gone\n"

        acknowledged: dict[tuple[str, str], int] = {}
        for line in notes.read_text().splitlines():
            what, name, version = line.split()
            acknowledged[what, name] = int(version)
        with Store.open(store_url, create=False) as store:
            assert store.check() == []
            versions = stored_versions(store)
            for (what, name), version in acknowledged.items():
                assert (versions[name] if what == "put" else appended(store)) >= version, (
                    "an acknowledged write is lost"
                )
        put, append = max(versions.values()), acknowledged.get(("append", "s"), -1)
        moments.add(put > append)
        first = put + 1
    assert moments == {True, False}, "the kills should hit both between the writes and after them"
