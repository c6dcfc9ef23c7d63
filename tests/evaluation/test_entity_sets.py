"""The entity sets and how spans are scored."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctxkit.documents import Span
from ctxkit.errors import ConfigError
from ctxkit.evaluation.benchmarks.entities import span_scores
from ctxkit.evaluation.entity_sets import weibo_ner, wnut17


def test_scores_of_spans() -> None:
    found = [[Span(0, 3), Span(5, 8)], [Span(0, 1)], []]
    gold = [[Span(0, 3)], [Span(0, 2)], [Span(4, 6)]]
    precision, recall, f1 = span_scores(found, gold)
    assert (precision, recall, f1) == pytest.approx((100 / 3, 100 / 3, 100 / 3))
    assert span_scores([[]], [[]]) == (0, 0, 0)


@pytest.mark.data
def test_the_annotations_are_read(data: Path) -> None:
    english, chinese = wnut17(data), weibo_ner(data)
    assert (len(english.texts), sum(map(len, english.spans))) == (1287, 1079)
    assert (len(chinese.texts), sum(map(len, chinese.spans))) == (270, 218)
    for gold in (english, chinese):
        for text, spans in zip(gold.texts, gold.spans, strict=True):
            assert list(spans) == sorted(spans)
            assert all(span.slice(text).strip() for span in spans)


def test_without_data_the_error_says_what_to_do(tmp_path: Path) -> None:
    for read in (wnut17, weibo_ner):
        with pytest.raises(ConfigError, match="CTXKIT_DATA"):
            read(tmp_path)
        with pytest.raises(ConfigError, match="Known: "):
            read(tmp_path, "no such part")
