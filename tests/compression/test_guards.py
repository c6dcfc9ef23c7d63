"""What compression must not tear out: numbers with units, dates, negations, names, code, ids; in linear time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given

from ctxkit.compression.guards import is_negation, name_spans, names_in, protected_spans
from ctxkit.documents import merge_spans
from tests.strategies import texts
from tests.timing import doubling


def guarded(text: str, query: str = "", **options: list[str]) -> list[str]:
    return [span.slice(text) for span in protected_spans(text, query, **options)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("He paid $1,200.50 for 3.5 kg, that is -5 °C.", ["$1,200.50", "3.5 kg", "-5 °C"]),
        ("On 3 May 2021 and 2021-05-03, by Friday.", ["3 May 2021", "2021-05-03", "Friday"]),
        ("Shot in May 2006; the 3rd of March, Sept. 2001.", ["May 2006", "3rd of March", "Sept. 2001"]),
        (
            "October 30, 1964: 12 people on May 5, 3 more at 19:30: May it be.",
            ["October 30, 1964", "12 people", "May 5", "3", "19:30"],
        ),
        ("From May 12.5 to Apr 20205, and 7.31 May.", ["12.5", "Apr", "20205", "7.31"]),
        ("May I? No, never; it isn’t, and can't be. Not now.", ["No", "never", "isn’t", "can't", "Not"]),
        ("Twenty-one days or half of two.", ["Twenty-one days", "half", "two"]),
        ("Call obj.method() or getUserName in /usr/lib, v1.2.", ["obj.method()", "getUserName", "/usr/lib", "v1.2"]),
        ("See `x = 1`, key_v2 and https://a.b/c?d=1.", ["`x = 1`", "key_v2", "https://a.b/c?d=1"]),
        ("Write to foo@bar.org about B-52 or COVID-19.", ["foo@bar.org", "B-52", "COVID-19"]),
        ("他没有付三千元，只付了20%。", ["没有", "三千元", "20%"]),
        ("于1911年5月3日不到。", ["1911年5月3日不"]),
        ("Go.\n```\nfree text\n```\nStop.", ["```\nfree text\n```"]),
        ("Plain words of no note, well-known.", ["no"]),
        ("", []),
    ],
)
def test_what_is_guarded(text: str, expected: list[str]) -> None:
    assert guarded(text) == expected


def test_the_names_of_the_question_and_those_given() -> None:
    text = "The mayor of oslo met Ada's friend in the cellar. 她在北京大学。"
    assert guarded(text, "Who is Ada, mayor of Oslo?") == ["oslo", "Ada's"]
    assert guarded(text, "who?", entities=["cellar", "北京大学"]) == ["cellar", "北京大学"]
    assert guarded(text, "“北京”在哪里？") == ["北京"]
    assert names_in("Ada 什么时候去 Oslo？") == ["Ada", "Oslo"]
    assert names_in("Is it for an old friend of Jean's?") == ["Jean"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Planes land at Los Angeles International Airport daily.", ["Los Angeles International Airport"]),
        ("Yesterday it rained. The rain was cold.", []),
        ("He met Mr. Lawrence, the Duke of the North and Jean-Luc van der Berg.",
         ["Mr. Lawrence", "Duke of the North", "Jean-Luc van der Berg"]),
        ("She won the Filmfare Award for Best Director as J. R. Smith.",
         ["Filmfare Award for Best Director", "J. R. Smith"]),
        ("他签署了《枫丹白露法令》，废止了新教。", ["《枫丹白露法令》"]),
        ("They read “the long way” there.", ["“the long way”"]),
        ("", []),
    ],
)  # fmt: skip
def test_the_names_of_the_text_itself(text: str, expected: list[str]) -> None:
    assert [span.slice(text) for span in name_spans(text)] == expected


@pytest.mark.parametrize(
    ("word", "denies"), [("not", True), ("Isn't", True), ("没", True), ("note", False), ("", False)]
)
def test_negations(word: str, denies: bool) -> None:
    assert is_negation(word) is denies


@given(texts)
def test_spans_of_names_are_sorted_disjoint_and_inside(text: str) -> None:
    spans = name_spans(text)
    assert list(merge_spans(spans)) == spans
    assert all(0 <= span.start < span.end <= len(text) for span in spans)


@given(texts, texts)
def test_spans_are_sorted_disjoint_and_inside(text: str, query: str) -> None:
    spans = protected_spans(text, query)
    assert list(merge_spans(spans)) == spans
    assert all(0 <= span.start < span.end <= len(text) for span in spans)


@pytest.mark.parametrize("piece", ["a.b", "1,", "a_", "x@", "x.y@", "http://", "-", "`", "Word and 3 things. ", "没有"])
def test_time_grows_with_the_text(piece: str) -> None:
    def guarding(size: int) -> Callable[[], object]:
        text = piece * (size // len(piece))
        return lambda: (protected_spans(text, "Foo “Bar"), name_spans(text))

    doubling(guarding, 8_000)
