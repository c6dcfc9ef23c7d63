"""Documents, chunks and processes for the tests of the store."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from numpy.typing import NDArray

from ctxkit.documents import Chunk, Document, Entity, Span

shared = settings(
    max_examples=max(10, settings().max_examples // 5), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
"""For properties of a database: an example writes to a disk, so there are fewer of them than of pure functions."""


def document(text: str = "One sentence. Another one.", **fields: Any) -> Document:
    return Document.from_text(text, **{"source": "notes/a.md", **fields})


def pieces(document: Document, size: int = 10) -> list[Chunk]:
    """Chunks of `size` characters, each with its headings and an entity: its first character."""
    return [
        Chunk.of(
            document,
            span,
            token_count=max(1, span.length // 4),
            heading_path=("Top", f"Part {span.start}"),
            entities=(Entity(document.text[span.start], "FIRST", Span(span.start, span.start + 1)),),
        )
        for span in (Span(at, min(at + size, len(document.text))) for at in range(0, len(document.text), size))
    ]


def unit_vectors(count: int, dimension: int = 8, seed: int = 7) -> NDArray[np.float32]:
    vectors = np.random.default_rng(seed).standard_normal((count, dimension))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


_WORKER = """
import contextlib, io, json, sys, traceback
from ctxkit.storage import Store
from ctxkit.documents import Chunk, Document, Span
from ctxkit.errors import ConflictError
from ctxkit.messages import Message
import alembic.command
Store.open("sqlite://").close()

def go():
    print("ready", file=answers, flush=True)
    sys.stdin.readline()

answers = sys.stdout
for line in sys.stdin:
    task = json.loads(line)
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            exec(task["code"], globals() | task["names"])
        print(json.dumps({"said": said.getvalue()}), file=answers, flush=True)
    except BaseException:
        print(json.dumps({"error": traceback.format_exc()}), file=answers, flush=True)
"""


class Workers:
    """Processes that run the same code at the same moment; they start once, since importing takes a while."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._processes = [
            subprocess.Popen([sys.executable, "-c", _WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(count)
        ]

    def together(self, code: str, **names: Any) -> list[str]:
        """Run `code`, with `names` and `me`, its worker's number; it waits for the others at `go()`. What each says."""
        for me, process in enumerate(self._processes):
            self._send(process, json.dumps({"code": textwrap.dedent(code), "names": {**names, "me": me}}))
        for process in self._processes:
            answer = self._receive(process)
            assert answer == "ready", answer
        for process in self._processes:
            self._send(process, "go")
        answers = [json.loads(self._receive(process)) for process in self._processes]
        for answer in answers:
            assert "error" not in answer, answer["error"]
        return [answer["said"] for answer in answers]

    def stop(self) -> None:
        for process in self._processes:
            process.communicate(timeout=30)

    def _send(self, process: subprocess.Popen[str], line: str) -> None:
        assert process.stdin is not None
        process.stdin.write(line + "\n")
        process.stdin.flush()

    def _receive(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline().strip()
