"""Time in tests: limits that fit the machine, and growth that a busy machine does not hide.

A limit in seconds is written for the machine that the limits were measured on, and stretched on a slower one. Where
nothing waits, time is processor time: what other processes take does not count.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import pytest

_USUAL = 0.0085
"""Processor seconds of `_work` on the machine that the limits were measured on."""

_LEAST = 0.005
"""Processor seconds below which a run is repeated: what a clock and an interrupt add must not matter."""


def _work() -> int:
    total, table = 0, {}
    for number in range(100_000):
        table[number & 1023] = total
        total += number * number % 7
    return total


@cache
def slowness() -> float:
    """How many times slower this machine runs Python than the one the limits were measured on; at least 1."""
    return max(1.0, min(_seconds(_work) for _ in range(10)) / _USUAL)


@contextmanager
def at_most(seconds: float, clock: Callable[[], float] = time.process_time) -> Iterator[None]:
    """Fail where the block takes longer than `seconds`, stretched by `slowness`.

    A limit is there to find what hangs or grows with the square, not to measure: take ten times what the block needs,
    or a bar that is promised. Give `clock=time.perf_counter` where the block waits for something.
    """
    limit = seconds * slowness()
    started = clock()
    yield
    taken = clock() - started
    assert taken <= limit, (
        f"{taken:.3g} s, and at most {limit:.3g} s are allowed ({seconds:g} s × {limit / seconds:.2g})"
    )


def doubling(
    prepare: Callable[[int], Callable[[], object]], size: int, *, most: float = 2.5, runs: int = 2, tries: int = 5
) -> None:
    """Fail where work of twice the size takes more than `most` times as long; a square takes four times as long.

    Args:
        prepare: Makes the work of a size; only the work is timed.
        size: The smaller size. What is not linear must show: a square that is half of the work at `size` does.
        most: The greatest ratio of the two times that is accepted.
        runs: How often each is run before the ratio is looked at.
        tries: How often that is done over. A computation takes its own time and what the machine adds, so the fastest
            of all runs counts: noise is given more runs to go away in, and growth stays.
    """
    prepare(max(1, size // 10))()  # imports, caches, compiled expressions
    works = prepare(size), prepare(2 * size)
    repeat = 1 + int(_LEAST / max(_seconds(works[0]), 1e-6))
    best = [float("inf"), float("inf")]
    collecting = gc.isenabled()
    gc.disable()  # as timeit: what it takes depends on all that is alive
    try:
        for _ in range(tries):
            for _ in range(runs):
                for at, work in enumerate(works):
                    best[at] = min(best[at], _seconds(work, repeat))
            if best[1] <= most * best[0]:
                return
    finally:
        if collecting:
            gc.enable()
    shown = [f"{seconds / repeat:.3g} s" for seconds in best]
    pytest.fail(f"size {size}: {shown[0]}, twice the size: {shown[1]}, which is {best[1] / best[0]:.2f} times as much")


def _seconds(work: Callable[[], object], repeat: int = 1) -> float:
    started = time.process_time()
    for _ in range(repeat):
        work()
    return time.process_time() - started
