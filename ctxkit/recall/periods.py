"""Days, months, seasons and years as half-open ranges of days, named or counted from today."""

from __future__ import annotations

from datetime import date, timedelta

__all__ = [
    "Period",
    "add_months",
    "day",
    "last_days",
    "last_of",
    "month",
    "near_month",
    "season",
    "weekday",
    "weekend",
    "year",
]

Period = tuple[date, date]
"""The first day, and the day after the last one. Everything here raises `ValueError` or `OverflowError` outside of the
years 1 to 9999."""


def day(moment: date) -> Period:
    return moment, moment + timedelta(1)


def month(number_of_year: int, number: int) -> Period:
    start = date(number_of_year, number, 1)
    return start, add_months(start, 1)


def year(number: int) -> Period:
    return date(number, 1, 1), date(number + 1, 1, 1)


def add_months(moment: date, count: int) -> date:
    """The day of the same number, or the month's last one.

    Example:
        >>> add_months(date(2024, 3, 31), -1)
        datetime.date(2024, 2, 29)
    """
    whole = moment.year * 12 + moment.month - 1 + count
    first = date(whole // 12, whole % 12 + 1, 1)
    following = date((whole + 1) // 12, (whole + 1) % 12 + 1, 1)
    return first.replace(day=min(moment.day, (following - first).days))


def last_of(number: int, in_month: int, today: date) -> Period | None:
    """The last day of this number and month that is not after today; None where there is no such day."""
    for back in range(9):  # 29 February may be eight years away
        try:
            found = date(today.year - back, number, in_month)
        except ValueError:
            continue
        if found <= today:
            return day(found)
    return None


def near_month(number: int, today: date, which: str = "") -> Period:
    """A month without a year: the last one that has begun, the one of this year, or the next."""
    if which in ("next", "coming"):
        return month(today.year + (number <= today.month), number)
    if which == "this":
        return month(today.year, number)
    behind = number >= today.month if which in ("last", "past", "previous") else number > today.month
    return month(today.year - behind, number)


def season(first: int, today: date, which: str = "") -> Period:
    """Three months from the month `first`: the last season that has begun, this year's, or the next."""

    def of(number: int) -> Period:
        start = date(number, first, 1)
        return start, add_months(start, 3)

    if which in ("next", "coming"):
        return of(today.year) if of(today.year)[0] > today else of(today.year + 1)
    if which == "this":
        return of(today.year)
    found = of(today.year) if of(today.year)[0] <= today else of(today.year - 1)
    if which in ("last", "past", "previous") and found[1] > today:
        return of(found[0].year - 1)
    return found


def weekday(number: int, today: date, which: str = "") -> Period:
    """Monday is 0: the last one before today, this week's, or the next after today; today itself where nothing is said.

    Example:
        >>> weekday(0, date(2024, 5, 1))[0]
        datetime.date(2024, 4, 29)
    """
    if which in ("next", "coming"):
        return day(today + timedelta((number - today.weekday() - 1) % 7 + 1))
    if which == "this":
        return day(today + timedelta(number - today.weekday()))
    back = (today.weekday() - number) % 7
    return day(today - timedelta(back or 7 if which else back))


def weekend(today: date) -> Period:
    """Saturday and Sunday of a day's week."""
    saturday = today + timedelta(5 - today.weekday())
    return saturday, saturday + timedelta(2)


def last_days(unit: str, count: int, today: date) -> Period:
    """So many days, weeks, months or years up to today."""
    end = today + timedelta(1)
    if unit in ("day", "week", "weekend"):
        return today - timedelta(count * (1 if unit == "day" else 7)), end
    return add_months(today, -count * (1 if unit == "month" else 12)), end
