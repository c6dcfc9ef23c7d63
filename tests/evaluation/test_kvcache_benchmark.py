"""The cache's benchmark: its parts, and the numbers that it compares by."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctxkit.errors import ConfigError
from ctxkit.evaluation import report as reports
from ctxkit.evaluation.benchmarks import kvcache
from ctxkit.evaluation.report import Bar, Report


def test_an_unknown_part_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="speed") as caught:
        kvcache.run(tmp_path, parts=["speed"])
    assert "quality" in caught.value.remedy


def test_parts_are_of_one_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        "quality": Report("a", "x", rows=[{"system": "s", "KL": 1}], bars=[Bar.at_most("k", 1, 2)]),
        "decode": Report("b", "y", rows=[{"system": "t", "time": 2}]),
    }
    monkeypatch.setattr(
        kvcache,
        "import_module",
        lambda name: type("Part", (), {"run": lambda data, full: found[name.rpartition("_")[2]]}),
    )
    report = kvcache.run(tmp_path, parts=["quality", "decode"])
    assert [row["part"] for row in report.rows] == ["quality", "decode"]
    assert {tuple(row) for row in report.rows} == {("part", "system", "KL", "time")}
    assert [bar.key for bar in report.bars] == ["k"]


def test_an_option_that_a_benchmark_lacks_is_refused(data: Path) -> None:
    with pytest.raises(ConfigError, match="no option 'parts'"):
        reports.run("chunking", {"parts": ["x"]})


def test_divergence_of_the_truth_from_itself_is_none() -> None:
    torch = pytest.importorskip("torch")
    from ctxkit.evaluation.benchmarks._kv_quality import compare

    truth = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]).log()
    assert all(abs(divergence) < 1e-6 and same == 1 for divergence, same in compare(truth, truth + 3))
    (divergence, same), _ = compare(truth, torch.tensor([[0.25, 0.5, 0.25], [0.1, 0.1, 0.8]]).log())
    assert divergence == pytest.approx(0.25 * 0.6931, abs=1e-4)
    assert same == 0
