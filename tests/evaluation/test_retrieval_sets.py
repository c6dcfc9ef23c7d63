"""The retrieval sets are what their sources say they are; the retrieval benchmark runs over them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctxkit.errors import ConfigError
from ctxkit.evaluation import datasets
from ctxkit.evaluation.benchmarks import retrieval
from ctxkit.testing import HashEmbedder

pytestmark = pytest.mark.data


@pytest.mark.parametrize(
    ("name", "documents", "queries", "judgements"),
    [
        ("scifact", 5183, 300, 339),
        ("cmrc2018", 256, 1002, 1002),
        ("xquad_en", 240, 1190, 1190),
        ("xquad_zh", 240, 1190, 1190),
        ("musique", 1603, 100, 200),
        ("hotpotqa", 992, 100, 200),
        ("chunking_eval", 5, 472, 472),
    ],
)
def test_sizes_and_judgements(data: Path, name: str, documents: int, queries: int, judgements: int) -> None:
    judged = datasets.load(data, name)
    assert (len(judged.documents), len(judged.queries)) == (documents, queries)
    assert sum(map(len, judged.relevant.values())) == judgements
    known = {document.id for document in judged.documents}
    assert len(known) == documents
    assert judged.relevant.keys() == judged.queries.keys()
    assert all(set(relevant) <= known for relevant in judged.relevant.values())
    assert all(document.text.strip() for document in judged.documents)


def test_excerpts_are_where_they_say(data: Path) -> None:
    judged = datasets.chunking_eval(data)
    texts = {document.id: document.text for document in judged.documents}
    spans = [
        (document, span)
        for excerpts in judged.excerpts.values()
        for document, found in excerpts.items()
        for span in found
    ]
    assert len(spans) == 790
    assert "cutting credit card late fees" in spans[0][1].slice(texts[spans[0][0]])
    assert all(0 <= span.start < span.end <= len(texts[document]) for document, span in spans)


def test_the_benchmark_runs_every_system(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CTXKIT_CACHE", str(tmp_path / "cache"))
    report = retrieval.run(
        data,
        full=True,
        sets="xquad_en",
        embedder=HashEmbedder(256),
        folder=tmp_path,
        limit=20,
        locomo=False,
        latency=False,
    )
    *systems, change = report.rows
    rows = {row["system"]: row["xquad_en"] for row in systems}
    assert set(rows) == set(retrieval.SYSTEMS)
    assert change["low"] <= change["gain"] <= change["high"]
    assert rows["BM25"] >= 0.9
    assert all(0 < value <= 1 for value in rows.values())
    assert report.data == "xquad_en (240 documents, 20 queries)"
    assert report.bars == []


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"marsmail.*scifact"):
        datasets.load(tmp_path, "marsmail")
    for name in datasets.LOADERS:
        with pytest.raises(ConfigError, match="CTXKIT_DATA"):
            datasets.load(tmp_path, name)
