"""Documents, chunks and processes for the tests of the store."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctxkit.documents import Chunk, Document, Entity, Span


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


def start(code: str, *arguments: Any) -> subprocess.Popen[str]:
    """A process of its own that runs `code` with `sys.argv[1:]`."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start_together(code: str, arguments: Sequence[Sequence[Any]]) -> list[str]:
    """Run `code` in one process for each argument list; each waits at `go()` for the others. Their outputs."""
    prologue = "import sys\ndef go():\n    print('ready', flush=True); sys.stdin.readline()\n"
    children = [start(prologue + textwrap.dedent(code), *each) for each in arguments]
    for child in children:
        assert child.stdout is not None
        line = child.stdout.readline()
        assert line == "ready\n", line + child.communicate()[1]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    outputs = []
    for child in children:
        output, errors = child.communicate(timeout=120)
        assert child.returncode == 0, errors
        outputs.append(output)
    return outputs
