"""Any form a timestamp comes in, as one aware datetime in UTC."""

from __future__ import annotations

import math
import numbers
import re
from datetime import UTC, date, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from ctxkit.errors import ConfigError

__all__ = ["NaivePolicy", "parse_timestamp"]

NaivePolicy = Literal["utc", "reject"]

_NUMBER = re.compile(r"[+-]?\d{9,}(\.\d*)?|[+-]?\d+\.\d+")
_REMEDY = "Give an ISO 8601 text with a zone, an aware datetime, or seconds since 1970."


def parse_timestamp(value: Any, *, naive: NaivePolicy = "utc", subject: str = "") -> datetime | None:
    """The moment that `value` names, aware and in UTC; None for None and blank text.

    Args:
        value: an aware or naive datetime; a date (midnight UTC); seconds since 1970 as int, float or digits; ISO 8601
            text (`Z`, an offset, no zone, or a date alone); an RFC 5322 date (`Tue, 15 Nov 1994 08:12:31 GMT`).
            A number too large for seconds is read as milli-, micro- or nanoseconds: from 1e11 (year 5138 in seconds,
            1973 in milliseconds), 1e14 and 1e17 on. A date before 1973 in milliseconds would be misread: use seconds.
        naive: what a time of day without a zone means: `utc`, or `reject` to raise.
        subject: whose stamp it is, for the error.

    Raises:
        ConfigError: the value is of no known form, out of range, or naive where that is rejected.

    Example:
        >>> parse_timestamp("2024-05-01T12:00:00Z") == parse_timestamp(1714564800)
        True
    """
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    try:
        moment = _moment(value)
    except (ValueError, OverflowError, OSError, TypeError) as error:
        raise ConfigError(f"not a timestamp: {str(value)[:80]!r}", subject=subject, remedy=_REMEDY) from error
    if moment.tzinfo is None:
        if naive == "reject":
            raise ConfigError(f"the timestamp {value} has no time zone", subject=subject, remedy=_REMEDY)
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ConfigError(f"the timestamp {value} is out of range", subject=subject, remedy=_REMEDY) from error


def _moment(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return _epoch(float(value))
    if not isinstance(value, str):
        raise TypeError(type(value).__name__)
    text = value.strip()
    if _NUMBER.fullmatch(text):
        return _epoch(float(text))
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        return parsedate_to_datetime(text)
    # A day has no time of day that a zone could shift: it is not what `naive` is about.
    return moment.replace(tzinfo=UTC) if len(text) <= len("2024-05-01") and ":" not in text else moment


def _epoch(number: float) -> datetime:
    if not math.isfinite(number):
        raise ValueError("not finite")
    for limit, per_second in ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3)):
        if abs(number) >= limit:
            number /= per_second
            break
    return datetime.fromtimestamp(number, tz=UTC)
