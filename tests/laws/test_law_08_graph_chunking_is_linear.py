"""Law 8 for the graph chunker, over texts of several blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

from ctxkit.chunking import SemanticGraphChunker
from ctxkit.documents import Document
from ctxkit.evaluation.benchmarks.chunking import SHAPES
from ctxkit.tokens import get_counter
from tests.timing import doubling

CHUNKER = SemanticGraphChunker(max_tokens=256, counter=get_counter("cl100k_base"), block_size=16_384)


@pytest.mark.parametrize("shape", SHAPES)
def test_twice_the_text_takes_twice_the_time(shape: str) -> None:
    def chunking(size: int) -> Callable[[], object]:
        document = Document.from_text(SHAPES[shape](size), source="shape")
        return lambda: deque(CHUNKER.chunk(document), maxlen=0)

    doubling(chunking, 40_000, runs=1)
