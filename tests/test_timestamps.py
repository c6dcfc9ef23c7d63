"""Every form of a timestamp that the field's libraries crash on."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.errors import ConfigError
from ctxkit.timestamps import parse_timestamp
from tests.strategies import texts

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "value",
    [
        NOON,
        NOON.astimezone(timezone(timedelta(hours=9))),
        NOON.replace(tzinfo=None),
        1714564800,
        1714564800.0,
        "1714564800",
        "1714564800.0",
        1714564800000,
        1714564800000000,
        1714564800000000000,
        np.int64(1714564800),
        np.float64(1714564800),
        "2024-05-01T12:00:00Z",
        "2024-05-01t12:00:00z",
        " 2024-05-01 12:00 ",
        "2024-05-01T14:00:00+02:00",
        "2024-05-01T12:00:00.000Z",
        "20240501T120000Z",
        "Wed, 01 May 2024 12:00:00 GMT",
        "Wed, 01 May 2024 07:00:00 -0500",
    ],
)
def test_forms(value: object) -> None:
    found = parse_timestamp(value)
    assert found == NOON
    assert found is not None
    assert found.tzinfo is UTC


@pytest.mark.parametrize("value", [date(2024, 5, 1), "2024-05-01", "20240501"])
@pytest.mark.parametrize("naive", ["utc", "reject"])
def test_a_day_is_its_midnight(value: object, naive: str) -> None:
    assert parse_timestamp(value, naive=naive) == datetime(2024, 5, 1, tzinfo=UTC)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [None, "", "  "])
def test_none_and_blank_are_none(value: object) -> None:
    assert parse_timestamp(value) is None


@pytest.mark.parametrize("value", [0, -1.5, "-1000000000", 1])
def test_small_and_negative_numbers_are_seconds(value: float | str) -> None:
    assert parse_timestamp(value) == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=float(value))


@pytest.mark.parametrize("value", ["2024-05-01T12:00:00", datetime(2024, 5, 1), "Wed, 01 May 2024 12:00:00 -0000"])
def test_naive_times_are_rejected_on_request(value: object) -> None:
    assert parse_timestamp(value) is not None
    with pytest.raises(ConfigError, match="time zone"):
        parse_timestamp(value, naive="reject")


@pytest.mark.parametrize(
    "value",
    ["yesterday", "2024-13-01", "01/02/2024", True, float("nan"), float("inf"), 1e300, [], {}, b"2024-05-01", "12",
     datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))],
)  # fmt: skip
def test_what_is_no_timestamp(value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_timestamp(value, subject="note.md")
    assert caught.value.subject == "note.md"
    assert caught.value.remedy


@given(st.datetimes(min_value=datetime(1800, 1, 1), max_value=datetime(2200, 1, 1), timezones=st.just(UTC)))
def test_round_trips(moment: datetime) -> None:
    assert parse_timestamp(moment.isoformat()) == moment
    assert parse_timestamp(moment) == moment
    near = parse_timestamp(moment.timestamp())
    assert near is not None
    if abs(moment.timestamp()) < 1e11:
        assert abs(near - moment) < timedelta(milliseconds=1)


@given(texts)
def test_any_text_is_a_moment_or_our_error(text: str) -> None:
    try:
        found = parse_timestamp(text)
    except ConfigError:
        return
    assert found is None or found.tzinfo is UTC
