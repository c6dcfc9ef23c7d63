"""`ctxkit compress`: what it prints, by JSON, in colour, from standard input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ctxkit.cli.main import app
from ctxkit.errors import ConfigError, ReadingError

TEXT = (
    "The vault is in the cellar. Bananas grow in warm places. The signing key is rotated every month. "
    "Nobody likes the rain. The canteen opens at noon."
)
PLAIN = ["--embedder", "none"]
runner = CliRunner()


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "notes.txt"
    path.write_text(TEXT, encoding="utf-8")
    return str(path)


def test_json_has_the_text_and_its_spans(file: str) -> None:
    done = runner.invoke(app, ["compress", file, "-q", "When is the key rotated?", "--target", "11", "--json", *PLAIN])
    assert done.exit_code == 0
    value = json.loads(done.stdout)
    assert set(value) == {"text", "spans", "tokens_in", "tokens_out", "seconds"}
    (span,) = value["spans"]
    assert TEXT[span["start"] : span["end"]] == "The signing key is rotated every month."
    assert value["tokens_out"] <= 11 < value["tokens_in"]


def test_show_prints_all_of_the_text(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["compress", file, "-q", "When is the key rotated?", "--target", "11", "--show", *PLAIN]
    monkeypatch.setenv("NO_COLOR", "1")
    plain = runner.invoke(app, arguments).stdout
    assert plain.replace("[-", "").replace("-]", "").strip() == TEXT
    assert "[-The vault" in plain
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = runner.invoke(app, arguments, color=True).stdout
    assert "\x1b[32mThe signing key is rotated every month." in coloured


def test_standard_input_and_ratio() -> None:
    done = runner.invoke(app, ["compress", "-", "-q", "key", "--ratio", "2", "--json", *PLAIN], input=TEXT)
    value = json.loads(done.stdout)
    assert value["tokens_out"] <= value["tokens_in"] / 2


def test_a_target_larger_than_the_text_changes_nothing(file: str) -> None:
    done = runner.invoke(app, ["compress", file, "-q", "key", "--target", "5000", "--json", *PLAIN])
    value = json.loads(done.stdout)
    assert value["text"] == TEXT
    assert value["spans"] == [{"start": 0, "end": len(TEXT)}]


def test_a_floor_may_leave_nothing_and_says_so(file: str) -> None:
    done = runner.invoke(app, ["compress", file, "-q", "volcano statistics", "--floor", "0.9", *PLAIN])
    assert done.exit_code == 0
    assert done.stdout.strip() == ""
    assert "nothing is kept" in done.stderr
    as_json = runner.invoke(app, ["compress", file, "-q", "volcano statistics", "--floor", "0.9", "--json", *PLAIN])
    assert json.loads(as_json.stdout)["text"] == ""
    assert as_json.stderr == done.stderr.splitlines(keepends=True)[-1]


@pytest.mark.parametrize("wrong", [["--target", "0"], ["--ratio", "1"], ["--target", "9", "--ratio", "2"]])
def test_wrong_use(file: str, wrong: list[str]) -> None:
    done = runner.invoke(app, ["compress", file, "-q", "key", *wrong, *PLAIN])
    assert isinstance(done.exception, ConfigError)


@pytest.mark.parametrize("arguments", [["--ratio", "50"]])
def test_a_text_of_which_no_word_fits_stays_whole_and_it_is_said(file: str, arguments: list[str]) -> None:
    done = runner.invoke(app, ["compress", file, "-q", "key", *arguments, *PLAIN])
    assert done.exit_code == 0
    assert done.stdout.strip() == TEXT
    assert "not even a word fits into" in done.stderr
    fitting = runner.invoke(app, ["compress", file, "-q", "key", "--target", "11", *PLAIN])
    assert "fits into" not in fitting.stderr


@pytest.mark.parametrize("content", ["", "  \n"])
def test_a_file_without_text_says_what_to_do(tmp_path: Path, content: str) -> None:
    path = tmp_path / "empty.txt"
    path.write_text(content)
    for file in (str(path), "-"):
        done = runner.invoke(app, ["compress", file, "-q", "x", *PLAIN], input=content)
        assert isinstance(done.exception, ReadingError)
        assert "text in it" in done.exception.remedy
