"""Dates in questions: what is written is what is found, counted from the day that is given, whatever else is said."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from ctxkit.errors import ConfigError
from ctxkit.recall import DateRange, dates_in
from tests.strategies import texts

MONTHS = [
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]

days = st.dates(date(1950, 1, 1), date(2090, 12, 31))


def one(text: str, today: date) -> DateRange:
    (found,) = dates_in(text, today)
    return found


def whole(found: DateRange) -> tuple[date, date]:
    return found.start, found.end


@given(days, days, st.sampled_from(range(7)))
def test_a_full_date_is_that_day_whenever_it_is_asked(day: date, today: date, form: int) -> None:
    month = MONTHS[day.month - 1]
    written = [
        f"on {day.day} {month} {day.year}",
        f"on the {day.day}th of {month}, {day.year}",
        f"{month} {day.day}, {day.year}",
        f"{month[:3]} {day.day} {day.year}",
        day.isoformat(),
        f"{day.year}年{day.month}月{day.day}日",
        f"{day.day} {month.upper()}, {day.year}",
    ][form]
    found = one(f"What was said ({written})?", today)
    assert whole(found) == (day, day + timedelta(1))


@given(days, days)
def test_a_month_of_a_year_is_all_its_days(day: date, today: date) -> None:
    for written in (f"in {MONTHS[day.month - 1]} {day.year}", f"{day.year}年{day.month}月", f"{day:%Y-%m}"):
        found = one(f"{written} …", today)
        assert found.start == day.replace(day=1)
        assert found.start <= day < found.end
        assert found.end.day == 1
        assert (found.end - found.start).days <= 31


@given(days, st.integers(1, 12), st.sampled_from(("in", "last", "during")))
def test_a_month_without_a_year_has_begun_and_is_the_last_such(today: date, month: int, word: str) -> None:
    found = one(f"What happened {word} {MONTHS[month - 1]}?", today)
    assert found.start.month == month
    assert found.start <= today
    assert (today - found.start).days <= (366 + 31 if word == "last" else 366)


@given(days, days)
def test_a_day_without_a_year_is_the_last_such(day: date, today: date) -> None:
    found = one(f"on {day.day} {MONTHS[day.month - 1]}?", today)
    assert (found.start.month, found.start.day) == (day.month, day.day)
    assert found.start <= today
    assert (today - found.start).days < 366 * (8 if (day.month, day.day) == (2, 29) else 1) + 1


@given(days, st.integers(0, 400))
def test_what_is_counted_back_is_there(today: date, count: int) -> None:
    assert whole(one(f"{count} days ago", today))[0] == today - timedelta(count)
    week = one(f"{count} weeks ago", today)
    assert week.start <= today - timedelta(7 * count) < week.end
    assert (week.end - week.start).days == 7
    if count <= 99:
        assert whole(one(f"{count}天前", today))[0] == today - timedelta(count)
    assume(count < 150)
    assert one(f"{count} months ago", today).start.month == (today.month - 1 - count) % 12 + 1
    assert one(f"{count} years ago", today).start == date(today.year - count, 1, 1)


@given(days, st.integers(0, 6))
def test_a_weekday_is_the_last_one(today: date, number: int) -> None:
    last = one(f"What did I say last {DAYS[number]}?", today)
    assert last.start.weekday() == number
    assert 1 <= (today - last.start).days <= 7
    plain = one(f"on {DAYS[number]}", today)
    assert plain.start.weekday() == number
    assert 0 <= (today - plain.start).days <= 6
    ahead = one(f"next {DAYS[number]}", today)
    assert 1 <= (ahead.start - today).days <= 7


@given(days, days)
def test_since_and_before_are_open(day: date, today: date) -> None:
    written = f"{day.day} {MONTHS[day.month - 1]} {day.year}"
    assert whole(one(f"since {written}", today)) == (day, date.max)
    assert whole(one(f"before {written}", today)) == (date.min, day)
    assert whole(one(f"after {written}", today)) == (day + timedelta(1), date.max)
    assert whole(one(f"until {written}", today)) == (date.min, day + timedelta(1))
    assert whole(one(f"two weeks before {written}", today)) == (day - timedelta(14), day)


@given(texts, st.dates())
@example("9999 years ago", date(2024, 1, 1))
@example("30 February 2023 and the 31st of June", date(2024, 1, 1))
@example("tomorrow, next year, 后年", date.max)
@example("yesterday, last weekend, 大前年, a week before 1 January 1950", date.min)
def test_any_text_on_any_day_has_sound_ranges(text: str, today: date) -> None:
    found = dates_in(text, today)
    assert found == dates_in(text, today)
    for each in found:
        assert each.start <= each.end
        assert each.text in text
        assert each.distance(each.start) == 0 or each.start == each.end


@given(days, st.dates(date(1900, 1, 1), date(2200, 1, 1)))
def test_distance_counts_days_to_the_range(day: date, moment: date) -> None:
    found = one(day.isoformat(), day)
    assert found.distance(moment) == abs((moment - day).days)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("last May", date(2023, 5, 1), date(2023, 6, 1)),
        ("in 2023", date(2023, 1, 1), date(2024, 1, 1)),
        ("yesterday", date(2024, 2, 14), date(2024, 2, 15)),
        ("during the summer", date(2023, 6, 1), date(2023, 9, 1)),
        ("summer of 2022", date(2022, 6, 1), date(2022, 9, 1)),
        ("last weekend", date(2024, 2, 10), date(2024, 2, 12)),
        ("the last weekend before April 10, 2023", date(2023, 4, 3), date(2023, 4, 10)),
        ("a couple of days ago", date(2024, 2, 13), date(2024, 2, 14)),
        ("the past two months", date(2023, 12, 15), date(2024, 2, 16)),
        ("去年五月", date(2023, 5, 1), date(2023, 6, 1)),
        ("五月七号说了什么", date(2023, 5, 7), date(2023, 5, 8)),
        ("上周五", date(2024, 2, 9), date(2024, 2, 10)),
        ("三十一天前", date(2024, 1, 15), date(2024, 1, 16)),
        ("去年夏天", date(2023, 6, 1), date(2023, 9, 1)),
        ("上个月", date(2024, 1, 1), date(2024, 2, 1)),
        ("前年", date(2022, 1, 1), date(2023, 1, 1)),
    ],
)
def test_what_people_write(text: str, start: date, end: date) -> None:
    assert whole(one(text, date(2024, 2, 15))) == (start, end)  # a Thursday


@pytest.mark.parametrize(
    "text",
    [
        "May I ask?",
        "It may be so",
        "They march on",
        "Will April come?",
        "a second chance",
        "model 2023x",
        "version 1.2.3",
    ],
)
def test_what_is_no_date(text: str) -> None:
    assert dates_in(text, date(2024, 2, 15)) == ()


def test_the_day_is_that_of_the_time_zone() -> None:
    late = datetime(2024, 2, 15, 23, 30, tzinfo=UTC)
    assert one("today", late).start == date(2024, 2, 15)
    assert one("today", late.astimezone(datetime.strptime("+0200", "%z").tzinfo)).start == date(2024, 2, 16)


def test_what_is_no_day_is_refused() -> None:
    with pytest.raises(ConfigError):
        dates_in("yesterday", "2024-02-15")  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        dates_in(None, date(2024, 2, 15))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("ſeven days ago", "seven days ago"),
        ("fıve days ago", "five days ago"),
        ("last ſummer", "last summer"),
        ("ſpring 2023", "spring 2023"),
        ("on ſunday", "on sunday"),
        ("ſince May 2023", "since May 2023"),
        ("last wee\u212a", "last week"),
    ],
)
def test_letters_that_are_another_case_of_ascii_ones_are_read_as_these(text: str, plain: str) -> None:
    """A pattern without case takes them for s, i and k; the words that are shown stay those of the question."""
    (found,), (same,) = dates_in(text, date(2024, 2, 15)), dates_in(plain, date(2024, 2, 15))
    assert (found.text, found.start, found.end) == (text, same.start, same.end)
