"""The compression benchmark runs, and words and titles alone beat the simple choices by far."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctxkit.errors import ConfigError
from ctxkit.evaluation.benchmarks import compression
from ctxkit.testing import HashEmbedder

pytestmark = pytest.mark.data


def test_words_and_titles_beat_the_simple_choices(data: Path) -> None:
    report = compression.run(data, limit=20, embedder=HashEmbedder(256))
    rows = {row["system"]: row for row in report.rows}
    for ratio in compression.RATIOS:
        words = rows["ctxkit, words alone"]
        assert words[f"gold@{ratio}"] > rows["first sentences"][f"gold@{ratio}"]
        assert words[f"tokens@{ratio}"] <= 100.0
    assert report.bars == []


def test_every_gold_sentence_is_found_in_its_paragraph(data: Path) -> None:
    for question in compression.questions(data, limit=10):
        by_id = {candidate.chunk.id: candidate.chunk for candidate in question.candidates}
        assert question.gold
        for chunk, spans in question.gold.items():
            assert all(span.slice(by_id[chunk].text).strip() for span in spans)


def test_without_the_data(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="CTXKIT_DATA"):
        compression.questions(tmp_path)
