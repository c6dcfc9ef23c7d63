"""Memory: what there is, and why it ran out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.kvcache.available import MemoryState, _group_limit, memory_state
from ctxkit.kvcache.diagnosis import CAUSES, diagnose, in_words

MB = 10**6


def state(free: int, held: int, used: int | None = None) -> MemoryState:
    used = held if used is None else used
    return MemoryState(total=10_000 * MB, free=free * MB, held=held * MB, used=used * MB)


RESTING = state(8_000, 1_000)


@pytest.mark.parametrize(
    ("cause", "phase", "cache", "peak", "before", "after", "caches"),
    [
        ("prefill peak", "prefill", 100, 5_000, state(4_000, 1_000), state(3_900, 1_100), 0),
        ("cache growth", "decode", 5_000, 100, state(4_000, 1_000), state(50, 4_900), 0),
        ("cache growth", "prefill", 5_000, 100, state(4_000, 1_000), state(50, 4_900), 0),
        ("other processes", "prefill", 3_000, 500, state(4_000, 1_000), state(100, 1_200), 0),
        ("leak", "prefill", 1_000, 200, state(500, 8_000), state(0, 8_500), 0),
        ("cache growth", "prefill", 1_000, 200, state(500, 8_000), state(0, 8_500), 7_000),
        ("fragmentation", "decode", 1_000, 200, state(1_300, 4_000), state(100, 5_200, 4_100), 3_000),
    ],
)
def test_the_cause_is_named(
    cause: str, phase: str, cache: int, peak: int, before: MemoryState, after: MemoryState, caches: int
) -> None:
    found = diagnose(
        phase=phase,
        planned_cache=cache * MB,
        planned_peak=peak * MB,
        before=before,
        after=after,
        resting=RESTING,
        caches=caches * MB,
    )
    assert found.cause == cause
    assert cause in str(found) and found.remedy == CAUSES[cause]
    assert found.to_json()["before"]["free"] == before.free


SIZES = st.integers(0, 10_000)


@given(st.sampled_from(["prefill", "decode"]), SIZES, SIZES, st.tuples(SIZES, SIZES), st.tuples(SIZES, SIZES), SIZES)
def test_there_is_always_one_cause(
    phase: str, cache: int, peak: int, before: tuple[int, int], after: tuple[int, int], caches: int
) -> None:
    found = diagnose(
        phase=phase,
        planned_cache=cache,
        planned_peak=peak,
        before=state(*before),
        after=state(*after),
        resting=RESTING,
        caches=caches,
    )
    assert found.cause in CAUSES
    assert found.missing > 0
    assert min(found.taken_by_others, found.scattered, found.unexplained) >= 0


def test_what_this_process_takes_is_seen() -> None:
    pytest.importorskip("psutil")
    before = memory_state()
    taken = bytearray(b"x" * (200 * MB))
    after = memory_state()
    assert after.held - before.held > 150 * MB
    assert 0 < after.free <= after.total
    assert len(taken) == 200 * MB


@pytest.mark.skipif(sys.platform == "win32", reason="there are no limits of an address space")
def test_a_limit_of_the_address_space_counts() -> None:
    pytest.importorskip("psutil")
    code = (
        "import resource, psutil; from ctxkit.kvcache.available import memory_state\n"
        "limit = psutil.Process().memory_info().vms + 300_000_000\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "found = memory_state(); assert 0 < found.free <= 300_000_000, found; assert found.total <= limit, found"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_container_has_what_its_group_leaves(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 500\ninactive_file 150\n")
    assert _group_limit(tmp_path) == (1000, 450)
    (tmp_path / "memory.max").write_text("max\n")
    assert _group_limit(tmp_path) == (float("inf"), float("inf"))
    assert _group_limit(tmp_path / "none") == (float("inf"), float("inf"))


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1_500, "1.5 kB"), (2_000_000_000, "2.0 GB"), (3e15, "3,000.0 TB")],
)
def test_bytes_in_words(count: float, text: str) -> None:
    assert in_words(count) == text
