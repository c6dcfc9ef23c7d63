"""The helpers of the tests about time: what is too slow fails, what is not passes, on a machine of any speed."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests import timing
from tests.timing import at_most, doubling, slowness


def spend(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def work(power: float, overhead: float = 0.0) -> Callable[[int], Callable[[], object]]:
    """Work of a size that takes a known time: a thousandth of a second for each hundred, to a power."""
    return lambda size: lambda: spend(0.001 * (overhead + (size / 100) ** power))


def test_linear_work_passes_and_quadratic_work_does_not() -> None:
    doubling(work(1.0), 500)
    doubling(work(0.0), 500)
    with pytest.raises(pytest.fail.Exception, match="times as much"):
        doubling(work(2.0), 500, tries=2)


def test_quadratic_work_beside_as_much_linear_work_shows() -> None:
    with pytest.raises(pytest.fail.Exception):
        doubling(lambda size: lambda: (work(1.0)(size)(), spend(0.005 * (size / 500) ** 2)), 500, tries=2)


def test_one_disturbed_run_does_not_fail_linear_work() -> None:
    disturbed = iter([0.05] * 4)
    doubling(lambda size: lambda: spend(size / 100_000 + (next(disturbed, 0.0) if size == 1_000 else 0.0)), 500)


def test_a_limit_is_kept() -> None:
    with at_most(5):
        pass
    with at_most(0.01):
        time.sleep(0.05)  # waiting is not processor time
    with pytest.raises(AssertionError, match="at most"), at_most(0.01):
        spend(0.03 * slowness())
    with pytest.raises(AssertionError, match="at most"), at_most(0.01, time.perf_counter):
        time.sleep(0.03 * slowness())


def test_a_slower_machine_has_longer_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert slowness() >= 1
    monkeypatch.setattr(timing, "slowness", lambda: 10.0)
    with at_most(0.01):
        spend(0.03)


def test_an_error_in_the_block_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError), at_most(1):
        raise ZeroDivisionError
