"""Law 8 for the graph chunker, over texts of several blocks."""

from __future__ import annotations

import pytest

from ctxkit.chunking import SemanticGraphChunker
from ctxkit.evaluation.benchmarks.chunking import SHAPES, growth
from ctxkit.tokens import get_counter

CHUNKER = SemanticGraphChunker(max_tokens=256, counter=get_counter("cl100k_base"), block_size=16_384)


@pytest.mark.parametrize("shape", SHAPES)
def test_twice_the_text_takes_twice_the_time(shape: str) -> None:
    ratios = []
    for _ in range(4):  # a busy machine may spoil a measurement, quadratic work spoils them all
        ratios.append(growth(CHUNKER, SHAPES[shape], 40_000, rounds=2))
        if ratios[-1] <= 2.5:
            return
    pytest.fail(f"time(2n) / time(n) = {ratios}")
