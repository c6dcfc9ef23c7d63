"""Dates in Chinese questions: 去年五月, 上周五, 三天前, 2023年5月7日."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, timedelta

from ctxkit.recall.periods import (
    Period,
    add_months,
    day,
    last_days,
    last_of,
    month,
    near_month,
    season,
    weekend,
    year,
)

__all__ = ["RULES"]

Found = dict[str, str]

_DIGITS = {character: number for number, character in enumerate("零一二三四五六七八九")} | {"两": 2, "〇": 0}
_YEARS = {"大前年": -3, "前年": -2, "去年": -1, "今年": 0, "明年": 1, "后年": 2}
_DAYS = {"大前天": -3, "前天": -2, "昨天": -1, "昨晚": -1, "今天": 0, "今晚": 0, "明天": 1, "后天": 2}
_SEASONS = {"春": 3, "夏": 6, "秋": 9, "冬": 12}
_WEEKDAYS = {character: number for number, character in enumerate("一二三四五六日")} | {"天": 6}

_NUMBER = "(?:[0-9０-９]{1,3}|[一二两三四五六七八九]?十[一二三四五六七八九]?|[一二两三四五六七八九])"
_OF_YEAR = rf"(?:(?P<year>\d{{4}}) ?年|(?P<which>{'|'.join(_YEARS)}))的?"


def number(text: str) -> int:
    """A number up to 99 in Chinese characters, or in digits.

    Example:
        >>> [number(text) for text in ("两", "十", "十二", "三十一", "7")]
        [2, 10, 12, 31, 7]
    """
    if text.isdecimal():
        return int(text)
    tens, ten, ones = text.partition("十")
    if not ten:
        return _DIGITS[text]
    return 10 * (_DIGITS[tens] if tens else 1) + (_DIGITS[ones] if ones else 0)


def _year_of(found: Found, today: date) -> int | None:
    if "year" in found:
        return int(found["year"])
    return today.year + _YEARS[found["which"]] if "which" in found else None


def _full(found: Found, today: date) -> Period | None:
    of_year, of_month, of_day = _year_of(found, today), number(found["month"]), number(found["day"])
    return last_of(of_month, of_day, today) if of_year is None else day(date(of_year, of_month, of_day))


def _month(found: Found, today: date) -> Period:
    of_year, of_month = _year_of(found, today), number(found["month"])
    return near_month(of_month, today) if of_year is None else month(of_year, of_month)


def _season(found: Found, today: date) -> Period:
    of_year = _year_of(found, today)
    first = _SEASONS[found["season"]]
    return season(first, today) if of_year is None else season(first, date(of_year, 12, 31), "this")


def _steps(text: str) -> int:
    """上 is one back, 上上 two, 下 one ahead."""
    return text.count("下") - text.count("上")


def _week(found: Found, today: date) -> Period:
    there = today + timedelta(7 * _steps(found.get("step", "")))
    monday = there - timedelta(there.weekday())
    if found.get("weekend"):
        return weekend(there)
    if "weekday" in found:
        of_week = monday + timedelta(_WEEKDAYS[found["weekday"]])
        # Without 上 or 下 it is the last one, as 周五 in a question about the past is.
        plain = not found.get("step") and not found.get("this")
        return day(of_week - timedelta(7) if plain and of_week > today else of_week)
    return monday, monday + timedelta(7)


def _ago(found: Found, today: date) -> Period:
    count, unit = number(found["count"]), found["unit"]
    if unit in "天日":
        return day(today - timedelta(count))
    if unit in ("周", "星期", "礼拜"):
        return today - timedelta(7 * count + 3), today - timedelta(7 * count - 4)
    if unit == "月":
        there = add_months(today, -count)
        return month(there.year, there.month)
    return year(today.year - count)


def _past(found: Found, today: date) -> Period:
    units = {"天": "day", "日": "day", "月": "month", "年": "year"}
    return last_days(units.get(found["unit"], "week"), number(found["count"]), today)


def _relative_month(found: Found, today: date) -> Period:
    there = add_months(today.replace(day=1), _steps(found["step"]))
    return month(there.year, there.month)


_UNIT = r"个?(?P<unit>天|日|周|星期|礼拜|月|年)"
_WEEK = "(?:周|星期|礼拜)"

RULES: tuple[tuple[re.Pattern[str], Callable[[Found, date], Period | None]], ...] = tuple(
    (re.compile(pattern), meaning)
    for pattern, meaning in (
        (rf"(?:{_OF_YEAR})?(?P<month>{_NUMBER}) ?月 ?(?P<day>{_NUMBER}) ?[日号]", _full),
        (rf"{_OF_YEAR}(?P<month>{_NUMBER}) ?月(?!前)", _month),
        (rf"{_OF_YEAR}(?P<season>[春夏秋冬])[天季]?", _season),
        (rf"(?P<count>{_NUMBER}) ?{_UNIT}(?:之|以)?前", _ago),
        (rf"(?:过去|最近|近)的?(?P<count>{_NUMBER}) ?{_UNIT}", _past),
        (r"(?P<step>上{1,3}|下{1,3})个?月", _relative_month),
        (r"(?P<step>)(?:这个?|本|当)月", _relative_month),
        (rf"(?P<step>上{{1,3}}|下{{1,3}})个?{_WEEK}(?:(?P<weekend>末)|(?P<weekday>[一二三四五六日天]))?", _week),
        (rf"(?P<this>[这本])个?{_WEEK}(?:(?P<weekend>末)|(?P<weekday>[一二三四五六日天]))?", _week),
        (rf"{_WEEK}(?:(?P<weekend>末)|(?P<weekday>[一二三四五六日天]))", _week),
        (
            rf"(?P<name>{'|'.join(_DAYS)})",
            lambda found, today: day(today + timedelta(_DAYS[found["name"]])),
        ),
        (r"(?P<year>\d{4}) ?年", lambda found, today: year(int(found["year"]))),
        (
            rf"(?P<which>{'|'.join(_YEARS)})",
            lambda found, today: year(today.year + _YEARS[found["which"]]),
        ),
        (rf"(?<![\d个一二三四五六七八九十])(?P<month>{_NUMBER})月(?:份|(?=[^前]|$))", _month),
    )
)
