"""Threads and dtype of a local model, measured on this machine as busy as it is."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

from ctxkit.checking import check_whole
from ctxkit.documents import content_hash
from ctxkit.errors import ConfigError
from ctxkit.kvcache.atomic import write_whole
from ctxkit.settings import cache_dir, require

__all__ = ["choose_dtype", "choose_threads", "read_something", "set_threads"]

_TOKENS = 64
_ROUNDS = 3
_MOST_THREADS = 1024
_MARGIN = 1.3
"""How many times faster half precision must be before it is worth its rounding."""


@lru_cache(maxsize=8)
def choose_dtype(device: str, hidden: int = 1024) -> str:
    """`float32` or `bfloat16` for a CPU, `auto` (as the weights are) elsewhere; measured once for each machine.

    Multiplies matrices as a prefill does. On CPUs without instructions for it bfloat16 is some five times slower. What
    is found is noted in ctxkit's cache: a machine that is busy at another time must not round in another way, which
    would change answers and find none of the keys and values that are stored.
    """
    if device != "cpu":
        return "auto"
    torch: Any = require("torch", extra="local", subject="dtype")
    facts = [_processor(), str(torch.__version__), hidden]
    noted = cache_dir() / "tuning" / f"{content_hash(facts)}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(noted.read_bytes())["dtype"]
        if known in ("float32", "bfloat16"):
            return str(known)
    found = _measured_dtype(torch, hidden)
    with contextlib.suppress(OSError):  # else it is measured again next time
        noted.parent.mkdir(parents=True, exist_ok=True)
        write_whole(noted, json.dumps({"facts": facts, "dtype": found}).encode())
    return found


def _processor() -> str:
    """What the processor calls itself."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _measured_dtype(torch: Any, hidden: int) -> str:
    rows, square = torch.ones(_TOKENS, hidden), torch.ones(hidden, hidden)
    pairs = {kind: (rows.to(kind), square.to(kind)) for kind in (torch.float32, torch.bfloat16)}
    times = _interleaved([lambda one=one: one[0] @ one[1] for one in pairs.values()])  # type: ignore[misc]
    return "bfloat16" if times[0] > _MARGIN * times[1] else "float32"


def choose_threads(forward: Callable[[], Any]) -> int:
    """The number of threads, of 1, half of the cores and all of them, with which `forward` was fastest.

    What is set by the environment (`OMP_NUM_THREADS`) or by `torch.set_num_threads` below the number of cores stays.
    The setting is the process's and is put back.
    """
    torch: Any = require("torch", extra="local", subject="threads")
    before = int(torch.get_num_threads())
    cores = os.cpu_count() or 1
    if "OMP_NUM_THREADS" in os.environ or before == 1:
        return before
    counts = sorted({1, max(1, min(before, cores) // 2), before})

    def run(count: int) -> None:
        torch.set_num_threads(count)
        forward()

    try:
        times = _interleaved([lambda count=count: run(count) for count in counts])  # type: ignore[misc]
    finally:
        torch.set_num_threads(before)
    return min(zip(times, counts, strict=True))[1]


def set_threads(threads: int | str, forward: Callable[[], Any]) -> int:
    """Set the process's threads to a number, or to what `choose_threads` finds; the number.

    Errors: `ConfigError` for anything else.
    """
    torch: Any = require("torch", extra="local", subject="threads")
    if threads == "auto":
        threads = os.environ.get("CTXKIT_THREADS") or choose_threads(forward)
    try:
        threads = int(threads) if isinstance(threads, str) else threads
    except ValueError:
        raise ConfigError(f"threads is {threads!r}", remedy="Give a whole number, or 'auto' to measure.") from None
    check_whole(threads, "threads", minimum=1)
    if threads > _MOST_THREADS:  # torch starts them all, and dies of too many
        raise ConfigError(
            f"threads is {threads}", remedy=f"Give at most {_MOST_THREADS}; more than there are cores are slower."
        )
    torch.set_num_threads(threads)
    return threads


def read_something(model: Any) -> None:
    """A prefill of 64 tokens, for measuring."""
    torch: Any = require("torch", extra="local", subject="threads")
    with torch.inference_mode():
        model(input_ids=torch.zeros(1, _TOKENS, dtype=torch.long), use_cache=False)


def _interleaved(calls: list[Callable[[], Any]]) -> list[float]:
    """The median seconds of each call; what else the machine does meets all of them alike."""
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(_ROUNDS):
        for taken, call in zip(times, calls, strict=True):
            before = time.perf_counter()
            call()
            taken.append(time.perf_counter() - before)
    return [median(taken) for taken in times]
