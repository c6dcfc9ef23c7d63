"""Threads and dtype are measured, and what somebody set stays."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ctxkit.errors import ConfigError
from ctxkit.models import tuning
from ctxkit.models.tuning import choose_dtype, choose_threads, set_threads

torch = pytest.importorskip("torch")


def test_a_cpu_gets_a_dtype_that_it_has() -> None:
    assert choose_dtype("cpu") in ("float32", "bfloat16")
    assert choose_dtype("cuda") == "auto"


def test_the_environment_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert choose_threads(lambda: None) == torch.get_num_threads()
    monkeypatch.setenv("CTXKIT_THREADS", "1")
    before = torch.get_num_threads()
    assert set_threads("auto", lambda: None) == 1
    torch.set_num_threads(before)


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="there is one core")
def test_the_faster_number_is_taken_and_the_setting_put_back() -> None:
    code = """
import time, torch
from ctxkit.models import tuning
from ctxkit.models.tuning import choose_threads
torch.set_num_threads(2)
slow_with = None
def forward():
    time.sleep(0.02 if torch.get_num_threads() == slow_with else 0.001)
for slow_with, best in ((2, 1), (1, 2)):
    assert choose_threads(forward) == best, slow_with
assert torch.get_num_threads() == 2
"""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("wrong", ["many", 0, -1, 1.5, True, 100_000, 10**12])
def test_wrong_numbers_are_refused(wrong: object) -> None:
    with pytest.raises(ConfigError):
        set_threads(wrong, time.time)  # type: ignore[arg-type]


def test_a_number_is_set() -> None:
    before = torch.get_num_threads()
    try:
        assert set_threads(1, time.time) == 1 == torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


def test_what_was_measured_once_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine that is busy at another time must not round in another way."""
    monkeypatch.setenv("CTXKIT_CACHE", str(tmp_path))
    times = iter([[3.0, 1.0], [1.0, 3.0]])
    monkeypatch.setattr(tuning, "_interleaved", lambda calls: next(times))
    choose = choose_dtype.__wrapped__
    assert [choose("cpu"), choose("cpu")] == ["bfloat16"] * 2
    (noted,) = (tmp_path / "tuning").iterdir()
    for damaged in ("{", "[]", '{"dtype": "int3"}'):
        times = iter([[1.0, 3.0]])
        noted.write_text(damaged)
        assert [choose("cpu"), choose("cpu")] == ["float32"] * 2
    monkeypatch.setenv("CTXKIT_CACHE", "/dev/null/nowhere")
    times = iter([[3.0, 1.0]])
    assert choose("cpu") == "bfloat16"
