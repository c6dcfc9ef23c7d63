"""Runs the command in this process, through the same `main` that the console script calls."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Result]


@pytest.fixture
def ctxkit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """`ctxkit("search", "x")` in an empty folder, with the default store and without a model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CTXKIT_STORE", raising=False)

    def run(*arguments: object, stdin: bytes = b"") -> Result:
        from ctxkit.cli.main import main

        monkeypatch.setattr(sys, "argv", ["ctxkit", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(bool(stop.code))
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder of real text: what this project says of itself."""
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "keys.md").write_text(
        "# Keys\n\n## Rotation\n\nTo rotate a signing key, run `rotate` and restart the service. "
        "The old key stays valid for a day.\n\n## Loss\n\nA key that leaked must be revoked at once.\n"
    )
    (folder / "budget.md").write_text("# Budgets\n\nA budget is counted in tokens of the target model.\n")
    (folder / "中文.md").write_text("# 密钥\n\n密钥每个月轮换一次。旧密钥还有一天有效。\n", encoding="utf-8")
    return folder
