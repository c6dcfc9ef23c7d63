"""Law 8. Time grows with the input, not faster: `time(2n) <= 2.5 * time(n)` for the chunkers."""

from __future__ import annotations

import pytest

from ctxkit.chunking import RecursiveChunker, SentenceChunker
from ctxkit.evaluation.benchmarks.chunking import SHAPES, growth
from ctxkit.protocols import Chunker
from ctxkit.tokens import get_counter

COUNTER = get_counter("cl100k_base")
CHUNKERS: dict[str, Chunker] = {
    "recursive": RecursiveChunker(max_tokens=256, counter=COUNTER),
    "recursive with overlap": RecursiveChunker(max_tokens=256, overlap=64, counter=COUNTER),
    "sentence": SentenceChunker(max_tokens=256, counter=COUNTER),
    "sentence with overlap": SentenceChunker(max_tokens=256, overlap=64, counter=COUNTER),
}
SIZE = 200_000


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("chunker", CHUNKERS)
def test_twice_the_text_takes_twice_the_time(chunker: str, shape: str) -> None:
    ratios = []
    for _ in range(4):  # a busy machine may spoil a measurement, quadratic work spoils them all
        ratios.append(growth(CHUNKERS[chunker], SHAPES[shape], SIZE, rounds=3))
        if ratios[-1] <= 2.5:
            return
    pytest.fail(f"time(2n) / time(n) = {ratios}")
