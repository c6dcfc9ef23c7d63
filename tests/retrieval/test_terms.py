"""Index terms: stems, stop words, bigrams."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from ctxkit.errors import ConfigError
from ctxkit.retrieval import terms
from ctxkit.retrieval.terms import Analyzer
from tests.strategies import texts


@given(texts)
def test_any_text_has_terms_and_always_the_same(text: str) -> None:
    first = Analyzer().terms(text)
    assert first.dtype == np.uint64
    assert first.tolist() == Analyzer().terms(text).tolist()
    assert set(Analyzer().query_terms(text).tolist()) <= set(first.tolist())


def test_forms_of_a_word_are_one_term() -> None:
    analyzer = Analyzer()
    assert len(set(analyzer.terms("rotate rotating rotated Rotates ROTATE").tolist())) == 1
    assert len(set(Analyzer(language=None).terms("rotate rotating").tolist())) == 2
    assert len(set(Analyzer(language="german").terms("Häuser Häusern").tolist())) == 1
    assert len(set(Analyzer(language="russian").terms("книга книги книгу").tolist())) == 1


def test_chinese_goes_by_bigrams_in_any_language() -> None:
    analyzer = Analyzer()
    assert len(analyzer.terms("钥匙每月轮换")) == 5
    assert set(analyzer.terms("每月").tolist()) < set(analyzer.terms("钥匙每月轮换").tolist())


def test_stop_words_leave_a_question_unless_it_has_nothing_else() -> None:
    analyzer = Analyzer()
    assert analyzer.query_terms("what is the key").tolist() == analyzer.terms("key").tolist()
    assert analyzer.query_terms("to be or not to be").tolist() == analyzer.terms("to be or not to be").tolist()
    assert len(Analyzer(language="german").query_terms("what is the key")) == 4


def test_a_full_memory_is_emptied_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terms, "_CACHE_SIZE", 3)
    analyzer = Analyzer()
    text = "one two three four five six seven"
    assert analyzer.terms(text).tolist() == analyzer.terms(text).tolist() == Analyzer().terms(text).tolist()
    analyzer.terms("eight")
    assert len(analyzer._terms) == 1


def test_the_name_tells_what_the_terms_depend_on() -> None:
    names = {Analyzer().name, Analyzer(language="german").name, Analyzer(language=None).name}
    assert len(names) == 3


def test_an_unknown_language_is_named() -> None:
    with pytest.raises(ConfigError, match=r"klingon.*english"):
        Analyzer(language="klingon")
