"""The compression benchmark runs; words and titles alone beat the first sentences by far, and within the budget."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctxkit.errors import ConfigError
from ctxkit.evaluation.benchmarks import compression
from ctxkit.evaluation.benchmarks._compression_sets import SETS, kept, load
from ctxkit.evaluation.benchmarks._compression_speed import speed
from ctxkit.testing import HashEmbedder


@pytest.mark.data
def test_words_and_titles_beat_the_first_sentences(data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CTXKIT_PEERS", str(tmp_path))  # peers are measured by the command
    sizes = {"hotpotqa": 12, "xquad_zh": 8}
    report = compression.run(data, sizes=sizes, embedder=HashEmbedder(64), timing=False)
    rows = {(row["set"], row["system"]): row for row in report.rows}
    for name in sizes:
        for ratio in (3, 5, 10):
            words = rows[name, "ctxkit, words alone"]
            assert words[f"gold@{ratio}"] > rows[name, "truncation"][f"gold@{ratio}"]
            assert words["tokens@5"] <= 100.0
    assert "no peers" in report.data
    assert report.bars == []


@pytest.mark.data
@pytest.mark.parametrize("name", sorted(SETS))
def test_gold_is_in_its_candidate_and_all_of_it_is_kept_by_keeping_all(name: str, data: Path) -> None:
    for question in load(data, name, limit=2):
        by_id = {candidate.chunk.id: candidate for candidate in question.candidates}
        count, found = kept(question, {key: one.spans for key, one in by_id.items()})
        assert count == found > 0
        assert kept(question, {})[1] == 0.0
        assert all(span.slice(by_id[key].chunk.text, offset=by_id[key].chunk.span.start).strip()
                   for key, spans in question.gold.items() for span in spans)  # fmt: skip


@pytest.mark.data
def test_the_timing_is_of_a_hundred_thousand_tokens(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctxkit.evaluation.benchmarks._compression_speed.TOKENS", 3_000)
    monkeypatch.setattr("ctxkit.evaluation.benchmarks._compression_speed.ROUNDS", 1)
    times = speed(data, HashEmbedder(64))
    assert 3_000 <= times["tokens"] < 4_000
    assert times["warm ms"] > 0


def test_without_the_data(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="CTXKIT_DATA"):
        load(tmp_path, "hotpotqa")
    with pytest.raises(ConfigError, match="hotpotqa"):
        load(tmp_path, "nothing")
