"""What the chunking evaluation counts: characters of the spans that are kept, once each."""

from __future__ import annotations

import pytest

from ctxkit.documents import Span
from ctxkit.evaluation.benchmarks._chunk_quality import System, _by_words
from ctxkit.evaluation.benchmarks._chunk_retrieval import found
from ctxkit.evaluation.datasets import RetrievalSet


def test_recall_precision_and_iou_in_characters() -> None:
    wanted = {"a": [Span(10, 20), Span(30, 40)]}
    recall, precision, iou = found([("a", Span(15, 25)), ("b", Span(10, 20))], wanted)
    assert (recall, precision, iou) == (5 / 20, 5 / 20, 5 / 35)
    assert found([], wanted) == (0.0, 0.0, 0.0)
    assert found([("a", Span(10, 20)), ("a", Span(30, 40))], wanted) == (1.0, 1.0, 1.0)


def test_another_documents_span_finds_nothing() -> None:
    assert found([("b", Span(0, 100))], {"a": [Span(0, 100)]}) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("words", ["whales sing", "whale singing"])
def test_bm25_fetches_by_the_words_that_are_indexed(words: str) -> None:
    texts = {"a": ["Trams stop here.", "Whales sing at night."], "b": ["Nothing of the kind."]}
    spans = {name: [Span(0, len(text)) for text in its] for name, its in texts.items()}
    questions = RetrievalSet("x", (), {"0": words, "1": "trams"}, {}, {})
    first = _by_words(System("any", "1", spans, texts, 0.0), questions)
    assert [rows[0] for rows in first] == [1, 0]
