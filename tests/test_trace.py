"""The trace: what stages kept, dropped, how long they took, and that a failure keeps its record."""

from __future__ import annotations

import time

import pytest

from ctxkit.documents import Source, Span
from ctxkit.trace import Dropped, Trace


def test_records_keep_the_order_in_which_stages_began() -> None:
    trace = Trace()
    with trace.stage("outer", items_in=1, tokens_in=9), trace.stage("inner") as inner:
        inner.items_out = 3
    assert [record.stage for record in trace.records] == ["outer", "inner"]
    assert (trace.records[0].items_in, trace.records[0].tokens_in) == (1, 9)
    assert trace.records[1].items_out == 3


def test_a_stage_is_timed() -> None:
    trace = Trace()
    with trace.stage("sleep"):
        time.sleep(0.02)
    for _ in range(10):  # a busy machine may hold up one of them
        with trace.stage("nothing"):
            pass
    assert trace.records[0].seconds >= 0.02
    assert 0 <= min(record.seconds for record in trace.records[1:]) < trace.records[0].seconds
    assert trace.seconds == sum(record.seconds for record in trace.records)


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_a_stage_that_fails_keeps_its_record_and_the_error_goes_on(kind: type[BaseException]) -> None:
    trace = Trace()

    def run() -> None:
        with trace.stage("bad") as record:
            record.drop("context", "chunk 1", 10, "too long")
            raise kind("no")

    with pytest.raises(kind):
        run()
    assert trace.records[0].notes["error"] == f"{kind.__name__}: no"
    assert trace.records[0].seconds > 0
    assert trace.dropped == (Dropped("context", "chunk 1", 10, "too long"),)


def test_what_was_dropped_is_gathered_over_all_stages_with_its_sources() -> None:
    trace = Trace()
    source = Source("d", "s.md", Span(0, 4))
    with trace.stage("a") as record:
        record.drop("context", "x", 1, "below the threshold", [source])
    with trace.stage("b") as record:
        record.drop("history", "y", 2, "older than the window")
    assert [(item.item, item.sources) for item in trace.dropped] == [("x", (source,)), ("y", ())]
    assert [item.name for item in trace.dropped] == ["s.md:0-4", "y"]
    assert all(item.reason for item in trace.dropped)


def test_two_traces_share_nothing() -> None:
    first, second = Trace(), Trace()
    with first.stage("a") as record:
        record.notes["k"] = 1
    assert second.records == []
    with second.stage("a") as record:
        assert record.notes == {}
        assert record.dropped == []
