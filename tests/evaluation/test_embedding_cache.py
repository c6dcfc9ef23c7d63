"""The benchmark of the embedding cache runs every system and keeps what it embedded."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctxkit.evaluation import report as reports
from ctxkit.evaluation.benchmarks import embedding_cache
from ctxkit.testing import HashEmbedder


@pytest.mark.data
def test_the_benchmark_runs_every_system(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CTXKIT_DATA", str(data))
    monkeypatch.setenv("CTXKIT_CACHE", str(tmp_path))
    options = {"sizes": "600", "embedder": HashEmbedder(64), "rounds": 2}
    report = reports.run("embedding-cache", options)
    rows = {row["system"]: row for row in report.rows}
    assert tuple(rows) == embedding_cache.SYSTEMS
    assert rows["faiss flat float32"]["bytes/float32"] == 1
    assert rows["ctxkit tiered, 5 % hot"]["bytes/float32"] < 0.3
    assert all(row["same top 10"] > 0.7 for row in rows.values())
    assert all(row["time 600, k 10"] > 0 for row in rows.values())
    assert {bar.key for bar in report.bars} >= {"bytes_5_percent_hot", "scifact_ndcg10_loss", "latency_600"}
    assert list((tmp_path / "bench").glob("vectors-*.db"))
    assert reports.run("embedding_cache", options).rows[0]["nDCG@10"] == report.rows[0]["nDCG@10"]


def test_names_have_dashes() -> None:
    assert "embedding-cache" in reports.names()
    assert "faiss" in reports.summary("embedding-cache")
