"""The inverted index against BM25 written out in plain Python, after any history of adding and removing."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxkit.errors import ConfigError
from ctxkit.retrieval import postings
from ctxkit.retrieval.postings import BM25, InvertedIndex

WORDS = st.integers(1, 12)
TEXTS = st.lists(WORDS, max_size=15)


def array(terms: list[int]) -> np.ndarray:
    return np.array(terms, dtype=np.uint64)


def plain_bm25(texts: dict[int, list[int]], query: list[int], weights: BM25) -> dict[int, float]:
    """Robertson and Zaragoza's formula with Lucene's idf, over the sum of idf, term by term."""
    if not texts:
        return {}
    n, average = len(texts), max(1.0, sum(map(len, texts.values())) / len(texts))
    idf = {}
    for term in set(query):
        df = sum(term in text for text in texts.values())
        idf[term] = math.log(1 + (n - df + 0.5) / (df + 0.5))
    bound = sum(idf[term] for term in query)
    scores = {}
    for key, text in texts.items():
        counts = Counter(text)
        norm = weights.k1 * (1 - weights.b + weights.b * len(text) / average)
        score = sum(idf[term] * counts[term] / (counts[term] + norm) for term in query if counts[term])
        if score > 0:
            scores[key] = score / bound
    return scores


HISTORIES = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.dictionaries(st.integers(0, 25), TEXTS, max_size=6)),
        st.tuples(st.just("remove"), st.lists(st.integers(0, 25), max_size=6)),
    ),
    max_size=10,
)


def replay(history: list[tuple[str, object]]) -> tuple[InvertedIndex, dict[int, list[int]]]:
    index, texts = InvertedIndex(), {}
    for kind, what in history:
        if kind == "add":
            index.add(list(what), [array(text) for text in what.values()])
            texts.update(what)
        else:
            index.remove(np.array(what, dtype=np.int64))
            for key in what:
                texts.pop(key, None)
    return index, texts


@settings(max_examples=200)
@given(
    HISTORIES,
    st.lists(st.integers(1, 14), min_size=1, max_size=6),
    st.integers(1, 30),
    st.builds(BM25, k1=st.floats(0, 3), b=st.floats(0, 1)),
)
def test_any_history_scores_as_the_formula_says(
    history: list[tuple[str, object]], query: list[int], k: int, weights: BM25
) -> None:
    index, texts = replay(history)
    assert index.keys().tolist() == sorted(texts)
    keys, scores = index.search(array(query), k, weights)
    truth = plain_bm25(texts, query, weights)
    assert len(keys) == min(k, len(truth))
    for key, score in zip(keys.tolist(), scores.tolist(), strict=True):
        assert score == pytest.approx(truth[key], rel=1e-9)
    left_out = [score for key, score in truth.items() if key not in set(keys.tolist())]
    assert all(score <= scores[-1] + 1e-12 for score in left_out)


@settings(max_examples=200)
@given(HISTORIES, st.lists(st.integers(1, 14), min_size=1, max_size=6), st.integers(1, 30))
def test_a_history_leaves_no_trace_in_the_scores(history: list[tuple[str, object]], query: list[int], k: int) -> None:
    index, texts = replay(history)
    fresh = InvertedIndex()
    fresh.add(sorted(texts), [array(texts[key]) for key in sorted(texts)])
    for mine, other in zip(index.search(array(query), k, BM25()), fresh.search(array(query), k, BM25()), strict=True):
        assert mine.tolist() == other.tolist()


@settings(max_examples=200)
@given(HISTORIES, st.lists(st.integers(1, 14), min_size=1, max_size=6))
def test_arrays_hold_the_whole_index(history: list[tuple[str, object]], query: list[int]) -> None:
    index, _ = replay(history)
    before = index.search(array(query), 50, BM25())
    copy = InvertedIndex.from_arrays(index.to_arrays())
    for found in (index.search(array(query), 50, BM25()), copy.search(array(query), 50, BM25())):
        assert [part.tolist() for part in found] == [part.tolist() for part in before]
    copy.add([999], [array([1, 2])])
    assert copy.keys().tolist()[-1] == 999


@settings(max_examples=200)
@given(HISTORIES, st.lists(st.integers(0, 30), max_size=10), st.lists(WORDS, min_size=1, max_size=4))
def test_allowed_keys_are_a_filter_and_change_no_score(
    history: list[tuple[str, object]], allowed: list[int], query: list[int]
) -> None:
    index, _ = replay(history)
    everything = dict(zip(*(part.tolist() for part in index.search(array(query), 99, BM25())), strict=True))
    keys, scores = index.search(array(query), 99, BM25(), keys=np.array(allowed, dtype=np.int64))
    found = dict(zip(keys.tolist(), scores.tolist(), strict=True))
    assert found == {key: score for key, score in everything.items() if key in set(allowed)}


def test_ties_go_by_key_at_every_depth() -> None:
    index = InvertedIndex()
    keys = np.random.default_rng(1).permutation(100).tolist()
    index.add(keys, [array([7, 8])] * 100)
    for k in (1, 5, 99, 100, 200):
        assert index.search(array([7]), k, BM25())[0].tolist() == list(range(min(k, 100)))


def test_scores_are_below_one_even_for_a_text_of_one_word() -> None:
    index = InvertedIndex()
    index.add([1, 2], [array([5] * 10_000), array([6])])
    _, scores = index.search(array([5]), 2, BM25())
    assert 0.9 < scores[0] < 1


def test_unknown_words_lower_a_score() -> None:
    index = InvertedIndex()
    index.add([1, 2], [array([5, 6]), array([7])])
    known = index.search(array([5]), 1, BM25())[1][0]
    assert index.search(array([5, 99]), 1, BM25())[1][0] < known


def test_one_by_one_costs_n_log_n(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts the postings that merging moves, not seconds."""
    moved = 0
    merge = postings._merged

    def counting(left: postings.Postings, right: postings.Postings) -> postings.Postings:
        nonlocal moved
        moved += len(left) + len(right)
        return merge(left, right)

    monkeypatch.setattr(postings, "_merged", counting)
    costs = []
    for count in (500, 1000, 2000):
        moved, index = 0, InvertedIndex()
        for key in range(count):
            index.add([key], [array([key % 50, key % 7 + 60, 100])])
        costs.append(moved)
        assert len(index._runs) <= 2 + math.log2(count)
        assert moved <= 3 * count * (2 + math.log2(count))
    assert costs[2] <= 2.5 * costs[1] <= 2.5 * 2.5 * costs[0]


def test_removed_texts_are_swept_out() -> None:
    index = InvertedIndex()
    index.add(list(range(100)), [array([key, 500]) for key in range(100)])
    index.remove(np.arange(60))
    assert len(index._keys) == len(index) == 40
    assert sum(map(len, index._runs)) == 80


def test_wrong_input_is_named() -> None:
    index = InvertedIndex()
    with pytest.raises(ConfigError):
        index.add([1, 1], [array([1]), array([2])])
    with pytest.raises(ConfigError):
        index.add([1], [])
    with pytest.raises(ConfigError, match="k is 0"):
        index.search(array([1]), 0, BM25())
    for wrong in ({"k1": -1.0}, {"b": 1.5}, {"k1": math.nan}):
        with pytest.raises(ConfigError):
            BM25(**wrong)


@pytest.mark.parametrize("missing", ["keys", "lengths", "terms", "offsets", "rows", "counts"])
def test_arrays_of_no_index_are_refused(missing: str) -> None:
    index = InvertedIndex()
    index.add([1, 2], [array([1, 2]), array([2])])
    arrays = index.to_arrays()
    with pytest.raises(KeyError):
        InvertedIndex.from_arrays({name: value for name, value in arrays.items() if name != missing})
    with pytest.raises(ValueError):
        InvertedIndex.from_arrays({**arrays, missing: arrays[missing][:-1]})


def test_an_empty_index_finds_nothing() -> None:
    index = InvertedIndex()
    assert index.search(array([1]), 5, BM25())[0].tolist() == []
    index.add([1], [array([])])
    assert index.search(array([1]), 5, BM25())[0].tolist() == []
    assert index.search(array([]), 5, BM25())[0].tolist() == []


def test_a_question_that_is_asked_again_sees_what_has_changed() -> None:
    index, terms = InvertedIndex(), np.array([7], dtype=np.uint64)
    for key in (1, 2, 3):
        index.add([key], [terms])
        assert sorted(index.search(terms, 10, BM25())[0].tolist()) == list(range(1, key + 1))
    index.remove(np.array([2]))
    assert sorted(index.search(terms, 10, BM25())[0].tolist()) == [1, 3]
    assert index.search(terms, 1, BM25(k1=0.0))[1] > index.search(terms, 1, BM25())[1]
