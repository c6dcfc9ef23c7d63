"""Dates in a question: "last May", "two weeks ago", "on 7 May 2023", 去年五月, as days on the calendar."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from ctxkit.checking import check_kind
from ctxkit.errors import ConfigError
from ctxkit.recall import chinese_dates
from ctxkit.recall.periods import (
    Period,
    add_months,
    day,
    last_days,
    last_of,
    month,
    near_month,
    season,
    weekday,
    weekend,
    year,
)

__all__ = ["DateRange", "dates_in"]

_LONGEST = 2_000
"""Characters of a question that are looked at."""

_MONTHS = [
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
]
_SHORT = [name[:3] for name in _MONTHS]
_DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
_NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_COUNTS = {name: number for number, name in enumerate(_NUMBERS, 1)} | {"a": 1, "an": 1, "a couple of": 2, "a few": 3}

_MONTH = rf"(?P<month>{'|'.join(_MONTHS)}|(?:{'|'.join(_SHORT)}|sept)\.?(?!\w))"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>(?:19|20)\d\d)(?!\d)"
_WEEKDAY = rf"(?P<weekday>{'|'.join(_DAYS)})"
_SEASON = rf"(?P<season>{'|'.join(_SEASONS)})"
_COUNT = rf"(?P<count>\d{{1,4}}|{'|'.join(sorted(_COUNTS, key=len, reverse=True))})"
_UNIT = r"(?P<unit>day|week|weekend|month|year)"
_WHICH = r"(?P<which>last|this|next|past|previous|coming)"
_AT = r"(?:in|on|at|during|since|before|after|until|till|by|from|to|between|of|for|around|through|early|late|mid)"


@dataclass(frozen=True, slots=True)
class DateRange:
    """Days that a question names.

    Args:
        text: the words that name them.
        start: the first day.
        end: the day after the last one.
    """

    text: str
    start: date
    end: date

    def distance(self, moment: date) -> int:
        """Days from a day to the nearest one of the range; 0 inside."""
        if moment < self.start:
            return (self.start - moment).days
        return max(0, (moment - self.end).days + 1)


_FOLDED = str.maketrans("ſ\u212aıİ", "skii")
"""Letters that a pattern without case takes for ASCII ones, and that no table here knows; one for one."""

Found = dict[str, str]
Meaning = Callable[[Found, date], Period | None]


def _month_number(name: str) -> int:
    return _SHORT.index(name[:3]) + 1


def _count(text: str) -> int:
    return int(text) if text.isdecimal() else _COUNTS[text]


def _ago(found: Found, today: date) -> Period | None:
    count, unit = _count(found["count"]), found["unit"]
    if unit == "day":
        return day(today - timedelta(count))
    if unit == "week":
        return today - timedelta(7 * count + 3), today - timedelta(7 * count - 4)
    if unit == "weekend":
        return weekend(today - timedelta(7 * count))
    if unit == "month":
        there = add_months(today, -count)
        return month(there.year, there.month)
    return year(today.year - count)


def _which(found: Found, today: date) -> Period | None:
    """The last, this or the next week, weekend, month or year."""
    step = {"this": 0, "next": 1, "coming": 1}.get(found["which"], -1)
    unit = found["unit"]
    if unit == "day":
        return day(today + timedelta(step))
    if unit == "week":
        monday = today - timedelta(today.weekday()) + timedelta(7 * step)
        return monday, monday + timedelta(7)
    if unit == "weekend":
        return weekend(today + timedelta(7 * step))
    if unit == "month":
        there = add_months(today.replace(day=1), step)
        return month(there.year, there.month)
    return year(today.year + step)


def _plain_month(found: Found, today: date) -> Period | None:
    return near_month(_month_number(found["month"]), today, found.get("which") or "")


def _plain_season(found: Found, today: date) -> Period | None:
    return season(_SEASONS[found["season"]], today, found.get("which") or "")


def _full(found: Found, today: date) -> Period | None:
    number = _month_number(found["month"])
    if found.get("year"):
        return day(date(int(found["year"]), number, int(found["day"])))
    return last_of(number, int(found["day"]), today)


_RULES: tuple[tuple[re.Pattern[str], Meaning], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), meaning)
    for pattern, meaning in (
        (
            r"(?<!\d)(?P<year>\d{4})[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})(?!\d)",
            lambda found, today: day(date(int(found["year"]), int(found["month"]), int(found["day"]))),
        ),
        (
            r"(?<![\d-])(?P<year>(?:19|20)\d\d)-(?P<month>\d{2})(?![\d-])",
            lambda found, today: month(int(found["year"]), int(found["month"])),
        ),
        (rf"\b{_DAY}(?: of)? {_MONTH}(?:,? (?:of )?{_YEAR})?\b", _full),
        (rf"\b{_MONTH} {_DAY}(?![\d:])(?:,? (?:of )?{_YEAR})?\b", _full),
        (
            rf"\b{_MONTH},? (?:of )?{_YEAR}",
            lambda found, today: month(int(found["year"]), _month_number(found["month"])),
        ),
        (
            rf"\b{_SEASON},? (?:of |in )?{_YEAR}",
            lambda found, today: season(_SEASONS[found["season"]], date(int(found["year"]), 12, 31), "this"),
        ),
        (r"\bday before yesterday\b", lambda found, today: day(today - timedelta(2))),
        (r"\byesterday\b", lambda found, today: day(today - timedelta(1))),
        (r"\b(?:today|tonight|this morning|this afternoon|this evening)\b", lambda found, today: day(today)),
        (r"\b(?:last night)\b", lambda found, today: day(today - timedelta(1))),
        (r"\btomorrow\b", lambda found, today: day(today + timedelta(1))),
        (rf"\b{_COUNT} {_UNIT}s? (?:ago|earlier|back)\b", _ago),
        (
            rf"\b(?:last|past|previous) {_COUNT} {_UNIT}s\b",
            lambda found, today: last_days(found["unit"], _count(found["count"]), today),
        ),
        (rf"\b{_WHICH} {_UNIT}\b", _which),
        (
            rf"\b(?:{_WHICH}|on|that|since|before|after|until|by) {_WEEKDAY}\b",
            lambda found, today: weekday(_DAYS.index(found["weekday"]), today, found.get("which") or ""),
        ),
        (rf"\b(?:{_WHICH}|(?:{_AT})(?: the| last| this)?) {_MONTH}(?!\w)", _plain_month),
        (rf"\b(?:{_WHICH}|(?:{_AT})(?: the)?) {_SEASON}\b", _plain_season),
        (rf"\b{_AT} (?:the year )?{_YEAR}", lambda found, today: year(int(found["year"]))),
    )
)

_OPEN = re.compile(r"\b(since|before|after|until|till|by)(?: the)?\s*$", re.IGNORECASE)
_STEP = re.compile(rf"\b(?:(?:the|last|{_COUNT})\s+)?{_UNIT}s?\s+(?P<way>before|after)\s+(?:on\s+)?$", re.IGNORECASE)
_STEP_LENGTH = 40
_LENGTHS = {"day": 1, "week": 7, "weekend": 7, "month": 31, "year": 366}


def dates_in(text: str, now: datetime | date) -> tuple[DateRange, ...]:
    """The days that a question names, in the order of the text. Looks at no clock (law 6).

    Understands days, months, years, seasons, weekdays and weekends, named or counted from `now`, in English and
    Chinese, and `since`, `before`, `after`, `until` and `by` in front of them. A month or a day without a year is the
    last one that is not after `now`; one that may be another word (`may`, `march`, `Will April come?`) counts only
    behind a word such as `in` or `last`. Seasons are those of the north. A week begins on Monday. Times of day are not
    looked at. What is no date of the calendar (30 February) names nothing. Linear, of the first 2,000 characters.

    Args:
        now: when the question is asked; its day is that of its own time zone.

    Raises:
        ConfigError: `now` is no date.

    Example:
        >>> [(str(one.start), str(one.end)) for one in dates_in("What did she say last May?", date(2024, 2, 1))]
        [('2023-05-01', '2023-06-01')]
        >>> dates_in("May I ask?", date(2024, 2, 1))
        ()
    """
    check_kind(text, str, "the question", remedy="Give a text.")
    if not isinstance(now, date):
        raise ConfigError(f"now is {now!r:.40}", remedy="Give a datetime or a date.")
    today = now.date() if isinstance(now, datetime) else now
    written = text[:_LONGEST]
    text = written.translate(_FOLDED)
    taken: list[tuple[int, int, Period]] = []
    for start, end, found in _matches(text, today):
        if all(end <= first or last <= start for first, last, _ in taken):
            taken.append((start, end, found))
    ranges: list[DateRange] = []
    ends: list[int] = []
    for start, end, found in sorted(taken):
        begin, first, last = _opened(text, start, end, found)
        while ends and ends[-1] > begin:  # "the last weekend before 10 April" is one date
            ends.pop()
            ranges.pop()
        ranges.append(DateRange(written[begin:end], first, last))
        ends.append(end)
    return tuple(ranges)


def _matches(text: str, today: date) -> Iterator[tuple[int, int, Period]]:
    """The rules' matches, those of the more telling rules first."""
    for pattern, meaning in (*_RULES, *chinese_dates.RULES):
        for match in pattern.finditer(text):
            found = {name: value.lower() for name, value in match.groupdict().items() if value is not None}
            try:
                period = meaning(found, today)
            except (ValueError, OverflowError):  # no day of the calendar
                continue
            if period is not None and period[0] < period[1]:
                yield match.start(), match.end(), period


def _opened(text: str, start: int, end: int, period: Period) -> tuple[int, date, date]:
    """The period with what `since`, `before`, `two weeks before` … make of it, behind where its words begin."""
    first, last = period
    lead = text[max(0, start - _STEP_LENGTH) : start]
    if step := _STEP.search(lead):
        reach = timedelta(_LENGTHS[step["unit"].lower()] * (_count(step["count"].lower()) if step["count"] else 1))
        begin = start - len(lead) + step.start()
        try:
            whole = (first - reach, first) if step["way"].lower() == "before" else (last, last + reach)
        except OverflowError:
            whole = period
        return begin, *whole
    head = re.match(r"(?:since|before|after|until|till|by)\b", text[start:end], re.IGNORECASE)
    opened = _OPEN.search(lead)
    word = (head.group(0) if head else opened.group(1) if opened else "").lower()
    if word == "since":
        last = date.max
    elif word == "after":
        first, last = last, date.max
    elif word == "before":
        first, last = date.min, first
    elif word:
        first = date.min
    begin = start if head or not opened else start - len(lead) + opened.start()
    return begin, first, max(last, first)
