"""Every example runs, offline, and is mentioned in the documentation."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("[0-9][0-9]_*.py"))
NEED_A_MODEL = {"04_ask_a_local_model.py"}


def test_they_are_numbered_without_gaps() -> None:
    assert [int(path.name[:2]) for path in EXAMPLES] == list(range(1, len(EXAMPLES) + 1))
    assert len(EXAMPLES) >= 4
    assert {path.name for path in EXAMPLES} >= NEED_A_MODEL


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.name, marks=[pytest.mark.model] if path.name in NEED_A_MODEL else [])
        for path in EXAMPLES
    ],
)
def test_it_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip()
    assert list(tmp_path.iterdir()) == [], "an example leaves files behind"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_it_is_listed(path: Path) -> None:
    assert f"examples/{path.name}" in (ROOT / "docs" / "index.md").read_text("utf-8")
    assert (ROOT / "docs" / "index.md").read_text("utf-8").count(path.name) >= 1


@pytest.mark.model
def test_the_demo_shows_that_the_budget_held() -> None:
    """As `make demo` runs it, but with the interpreter that runs the tests."""
    if shutil.which("bash") is None:
        pytest.skip("the demo is a bash script, and bash is not here")
    import os

    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", str(ROOT / "examples" / "demo.sh")], capture_output=True, text=True, env={**os.environ, "PATH": path}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The budget held" in done.stdout
    assert "135 million parameters" in done.stdout
    answer = done.stdout.partition("--explain\n")[2].partition("\n[1] ")[0]
    assert re.search(r"tenant.*(every (key|statement)|row-level security)", answer, re.IGNORECASE | re.DOTALL), answer
    assert re.search(r"^\[\d+\] docs/(laws|concepts/storage)\.md:", done.stdout, re.MULTILINE), "the page is not cited"
    assert re.search(r"^\[\d+\] \S+:\d+-\d+ ", done.stdout, re.MULTILINE), "no citation is shown"
