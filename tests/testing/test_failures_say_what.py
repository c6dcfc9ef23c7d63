"""A stage that breaks a law is told which law, on which text, with the values: in pytest's own output."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

CHUNKER = """
from dataclasses import dataclass
from ctxkit.documents import Chunk, Span
from ctxkit.testing import ChunkerConformance
from ctxkit.tokens import get_counter

COUNT = get_counter().count

@dataclass
class Naive:
    max_tokens: int

    def chunk(self, document):
        text = document.text
        {body}

class TestNaive(ChunkerConformance):
    def make_chunker(self, max_tokens):
        return Naive(max_tokens)
"""

EVERY_40 = """
        for start in range(0, len(text), 40):
            span = Span(start, min(start + 40, len(text)))
            if span.slice(text).strip():
                yield Chunk.of(document, span, COUNT(span.slice(text)))
"""
BY_WORDS = """
        for word in text.split():
            start = text.find(word)
            yield Chunk.of(document, Span(start, start + len(word)), 1)
"""
THE_FIRST = """
        if text.strip():
            yield Chunk.of(document, Span(0, 5), COUNT(text[:5]))
"""


def run(folder: Path, source: str) -> str:
    """What pytest prints of the tests in `source`, which fail."""
    (folder / "test_it.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "test_it.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Error" not in done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            EVERY_40,
            [
                "law 1, chunks lose nothing: chunk 0 at 0-40 has 11 tokens, 8 is the most",
                "of 432 characters at 8 tokens a chunk",
                "assert 11 <= 8",
                "a cut at 40 goes through '| one | two |' at 34-47, whose 5 tokens fit",
            ],
        ),
        (
            BY_WORDS,
            ["law 1, chunks lose nothing: chunks begin one after the other: chunk ", "says 1 tokens, o200k_base"],
        ),
        (THE_FIRST, ["law 1, chunks lose nothing: no chunk holds characters 5 to 432: 'entence. And another"]),
    ],
    ids=["too long", "out of order", "text lost"],
)
def test_a_naive_chunker_is_told_the_law_and_the_numbers(tmp_path: Path, body: str, expected: list[str]) -> None:
    told = run(tmp_path, CHUNKER.format(body=body.strip()))
    assert [part for part in expected if part not in told] == [], told


def test_values_are_shown_where_no_message_is(tmp_path: Path) -> None:
    told = run(
        tmp_path,
        textwrap.dedent("""
            import numpy as np
            from ctxkit.testing import EmbedderConformance, HashEmbedder

            class Narrow(HashEmbedder):
                def embed(self, texts):
                    return super().embed(texts)[:, :32]

            class TestNarrow(EmbedderConformance):
                def make_embedder(self):
                    return Narrow()
        """),
    )
    assert "assert (5, 32) == (5, 64)" in told


def test_a_stage_is_told_what_it_invented(tmp_path: Path) -> None:
    told = run(
        tmp_path,
        textwrap.dedent("""
            from ctxkit.testing import StageConformance

            class TestNaive(StageConformance):
                def make_stage(self):
                    return lambda query, given: [one.scored(final=one.score * 20) for one in given]
        """),
    )
    assert "has the final score 20.0, not in [0, 1]" in told


def test_without_pytest_nothing_is_changed() -> None:
    code = "import sys, ctxkit.testing; ctxkit.testing.HashEmbedder; assert 'pytest' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
