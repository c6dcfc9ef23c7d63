"""Law 8. Time grows with the input, not faster: `time(2n) <= 2.5 * time(n)` for the chunkers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

from ctxkit.chunking import RecursiveChunker, SentenceChunker
from ctxkit.documents import Document
from ctxkit.evaluation.benchmarks.chunking import SHAPES
from ctxkit.protocols import Chunker
from ctxkit.tokens import get_counter
from tests.timing import doubling

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
    def chunking(size: int) -> Callable[[], object]:
        document = Document.from_text(SHAPES[shape](size), source="shape")
        return lambda: deque(CHUNKERS[chunker].chunk(document), maxlen=0)

    doubling(chunking, SIZE, runs=1)
