"""Topics: what they cover, where they begin, and that they take linear time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.chunking import TopicSegmenter
from ctxkit.documents import Document
from ctxkit.errors import ConfigError
from ctxkit.evaluation.benchmarks.segmentation import pk, window_diff
from tests.strategies import texts
from tests.timing import doubling

CATS = "A cat that purrs sleeps beside other cats. Kittens drink milk.\n\n"
RUST = "Rust compiles traits into tables. Borrowing rules out races.\n\n"
TAX = "The treasury taxes income and imports. Parliament votes budgets.\n\n"


def starts(text: str, **parameters: float) -> list[int]:
    segmenter = TopicSegmenter(**parameters)  # type: ignore[arg-type]
    return [span.start for span in segmenter.segments(Document.from_text(text))]


@given(texts, st.sampled_from([0.0, 5.0, 60.0]), st.sampled_from([1, 300, 200_000]))
def test_topics_cover_the_text_without_a_gap(text: str, price: float, longest: int) -> None:
    spans = TopicSegmenter(price=price, longest=longest).segments(Document.from_text(text))
    assert bool(spans) == bool(text.strip())
    if spans:
        assert spans[0].start == 0
        assert spans[-1].end == len(text)
        assert all(left.end == right.start and left.length for left, right in pairwise(spans))


def test_a_topic_begins_where_the_words_change() -> None:
    text = CATS * 30 + RUST * 30 + TAX * 30
    found = starts(text)
    assert len(found) == 3
    for start, true in zip(found, (0, 30 * len(CATS), 30 * (len(CATS) + len(RUST))), strict=True):
        assert abs(start - true) <= 200


def test_a_text_of_one_topic_stays_whole() -> None:
    assert starts(CATS * 90) == [0]


def test_a_higher_price_never_gives_more_topics() -> None:
    text = (CATS * 4 + RUST * 4) * 5
    counts = [len(starts(text, price=price)) for price in (0.0, 5.0, 20.0, 60.0, 1e6)]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 1 < counts[1]


def test_one_endless_line_is_cut_at_sentences() -> None:
    text = (CATS * 30 + RUST * 30).replace("\n\n", " ")
    found = starts(text)
    assert len(found) == 2
    assert text[found[1] - 2 : found[1]] == ". "


def test_no_topic_is_longer_than_the_longest() -> None:
    text = CATS * 200
    spans = TopicSegmenter(longest=1_000).segments(Document.from_text(text))
    assert max(span.length for span in spans) <= 1_000


def test_time_grows_with_the_text() -> None:
    segmenter = TopicSegmenter(longest=5_000)

    def cutting(size: int) -> Callable[[], object]:
        document = Document.from_text((CATS + RUST + TAX) * size)
        return lambda: segmenter.segments(document)

    doubling(cutting, 500)


@pytest.mark.parametrize("wrong", [{"price": -1}, {"concentration": 0}, {"longest": 0}, {"price": float("nan")}])
def test_a_wrong_option_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        TopicSegmenter(**wrong)  # type: ignore[arg-type]


@given(st.sets(st.integers(1, 29)), st.sets(st.integers(1, 29)))
def test_segmentation_errors_are_nought_for_the_reference_and_at_most_one(left: set[int], right: set[int]) -> None:
    reference, found = sorted(left), sorted(right)
    assert pk(reference, reference, 30) == window_diff(reference, reference, 30) == 0.0
    assert 0.0 <= pk(reference, found, 30) <= window_diff(reference, found, 30) <= 1.0
