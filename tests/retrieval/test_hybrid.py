"""The hybrid retriever: signals kept apart, joining, weights, ties, and real Chinese text."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxkit.documents import Document, Query, Span
from ctxkit.errors import ConfigError
from ctxkit.evaluation.datasets import cmrc2018
from ctxkit.retrieval import BM25, Analyzer, Hybrid, Lexical, max_normalised, min_max, reciprocal_rank, z_score
from ctxkit.storage import Store
from ctxkit.testing import HashEmbedder
from tests.retrieval.filling import fill, put, put_spans
from tests.strategies import stored_texts

EMBEDDER = HashEmbedder(64)


@pytest.fixture
def memory() -> Iterator[Store]:
    with Store.open("sqlite://") as opened:
        yield opened


def test_signals_are_kept_apart(store: Store) -> None:
    fill(store, ["the signing key", "warm green tea", "a key and some tea"], embedder=EMBEDDER)
    for found in Hybrid(store, EMBEDDER).retrieve(Query("signing key"), 10):
        assert set(found.scores) == {"dense", "lexical", "final"}
        assert all(0 <= score <= 1 for score in found.scores.values())
    best, *_ = Hybrid(store, EMBEDDER).retrieve(Query("signing key"), 10)
    assert best.chunk.document_id == "d0"
    assert best.scores["final"] == 1.0
    cosine = float(EMBEDDER.embed(["signing key"])[0] @ EMBEDDER.embed(["the signing key"])[0])
    assert best.scores["dense"] == pytest.approx(cosine, abs=1e-5)
    words = Lexical(store).retrieve(Query("signing key"), 1)[0].scores["lexical"]
    assert best.scores["lexical"] == pytest.approx(words)


def test_every_candidate_has_both_scores_however_short_the_lists(store: Store) -> None:
    """With lists of one, the best of each signal is scored by the other as well."""
    texts = ["key key key", "alpha beta gamma delta key", "epsilon zeta"]
    fill(store, texts, embedder=EMBEDDER)
    question = "key alpha"
    deep = {each.chunk.id: each.scores for each in Hybrid(store, EMBEDDER, depth=100).retrieve(Query(question), 3)}
    shallow = Hybrid(store, EMBEDDER, depth=1)
    keys, scores = shallow.rank(Query(question), 1)
    for position, chunk in enumerate(store.documents.chunks(keys).values()):
        for signal in ("dense", "lexical", "final"):
            assert scores[signal][position] == pytest.approx(deep[chunk.id][signal], abs=1e-6)


def test_without_an_embedder_words_decide(store: Store) -> None:
    fill(store, ["the signing key", "warm green tea"])
    (found,) = Hybrid(store, None).retrieve(Query("key"), 10)
    assert found.chunk.document_id == "d0"
    assert set(found.scores) == {"lexical", "final"}


def test_weights_choose_between_the_signals(memory: Store) -> None:
    fill(memory, ["key lock door", "key key key key", "door window"], embedder=EMBEDDER)
    query = Query("key lock")
    words = [each.chunk.id for each in Lexical(memory).retrieve(query, 5)]
    only_words = Hybrid(memory, EMBEDDER, weights={"lexical": 2.0}).retrieve(query, 5)
    assert [each.chunk.id for each in only_words][: len(words)] == words
    only_dense = Hybrid(memory, EMBEDDER, weights={"dense": 1.0}).retrieve(query, 5)
    assert [each.scores["dense"] for each in only_dense] == sorted(
        (each.scores["dense"] for each in only_dense), reverse=True
    )


@pytest.mark.parametrize(
    "fusion", [max_normalised, min_max, z_score, reciprocal_rank, partial(reciprocal_rank, constant=10)]
)
def test_every_fusion_can_be_plugged_in(memory: Store, fusion: object) -> None:
    fill(memory, ["the signing key", "warm green tea", "keys"], embedder=EMBEDDER)
    found = Hybrid(memory, EMBEDDER, fusion=fusion).retrieve(Query("signing key"), 3)
    assert found[0].chunk.document_id == "d0"
    assert all(0 <= each.score <= 1 for each in found)


def test_neighbours_are_one_candidate_and_the_list_is_filled_up(store: Store) -> None:
    text = "Keys rotate. " * 10
    cuts = list(range(13, 13 * 10, 13))
    put(store, Document(id="long", text=text, source="long.md"), cuts, embedder=EMBEDDER)
    put_spans(
        store,
        Document(id="sliding", text="Keys turn. Keys turn. Keys turn.", source="sliding.md"),
        [Span(0, 20), Span(11, 32)],
        embedder=EMBEDDER,
    )
    fill(store, ["Keys are old.", "Keys are new.", "Keys   are new."], embedder=EMBEDDER)
    found = Hybrid(store, EMBEDDER, max_joined_tokens=1_000).retrieve(Query("keys rotate"), 4)
    assert sorted(each.chunk.document_id for each in found) == ["d0", "d1", "long", "sliding"]
    assert {each.text for each in found if each.chunk.document_id == "long"} == {text}
    apart = Hybrid(store, EMBEDDER, join=False).retrieve(Query("keys rotate"), 20)
    assert len(apart) == 15
    overlapping = Hybrid(store, EMBEDDER).retrieve(Query("keys rotate"), 20)
    assert sorted(each.chunk.document_id for each in overlapping) == ["d0", "d1", "long", "sliding"]
    assert {each.text for each in overlapping if each.chunk.document_id == "long"} == {"Keys rotate. "}
    small = Hybrid(store, EMBEDDER, max_joined_tokens=4).retrieve(Query("keys rotate"), 20)
    assert max(each.chunk.token_count for each in small if each.chunk.document_id == "long") <= 4


def test_chunks_with_a_blank_line_between_them_are_neighbours(store: Store) -> None:
    text = "Keys rotate.\n\nOld keys stay.\n\nNew keys come."
    spans = [Span(0, 12), Span(14, 28), Span(30, 44)]
    put_spans(store, Document(id="d", text=text, source="d.md"), spans, embedder=EMBEDDER)
    (whole,) = Hybrid(store, EMBEDDER, max_joined_tokens=None).retrieve(Query("keys"), 5)
    assert whole.text == text


def test_more_may_be_asked_for_than_the_depth(memory: Store) -> None:
    fill(memory, [f"key number {number}" for number in range(60)], embedder=EMBEDDER)
    retriever = Hybrid(memory, EMBEDDER, depth=1)
    assert len(retriever.retrieve(Query("key"), 50)) == 50
    assert len(retriever.retrieve(Query("key"), 1000)) == 60


def test_ties_come_in_the_order_of_keys_at_any_depth(memory: Store) -> None:
    for number in range(30):
        put(memory, Document(id=f"d{number:02}", text=f"key{'!' * number}", source=""), embedder=EMBEDDER)
    retriever = Hybrid(memory, EMBEDDER, join=False)
    everything = [each.chunk.document_id for each in retriever.retrieve(Query("key"), 30)]
    assert everything == sorted(everything)
    for k in (1, 3, 29):
        assert [each.chunk.document_id for each in retriever.retrieve(Query("key"), k)] == everything[:k]


@pytest.fixture(scope="module")
def tenants() -> Iterator[Iterator[Store]]:
    """Empty stores for examples: new tenants of one store in memory."""
    with Store.open("sqlite://") as opened:
        yield (opened.for_tenant(f"tenant {number}") for number in itertools.count())


@settings(max_examples=200)
@given(contents=st.lists(stored_texts, max_size=6), question=stored_texts, k=st.integers(1, 8))
def test_any_texts_and_any_question(tenants: Iterator[Store], contents: list[str], question: str, k: int) -> None:
    opened = next(tenants)
    fill(opened, contents, embedder=EMBEDDER)
    query = Query(question, tenant=opened.tenant)
    found = Hybrid(opened, EMBEDDER).retrieve(query, k)
    assert len(found) <= k
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
    for each in found:
        assert all(0 <= score <= 1 for score in each.scores.values())
        assert each.text == each.chunk.span.slice(contents[int(each.chunk.document_id[1:])])
    assert Hybrid(opened, EMBEDDER).retrieve(query, k) == found


def test_wrong_parameters_are_named_when_it_is_made(memory: Store) -> None:
    for wrong in (
        {"depth": 0},
        {"weights": {"dense": -1.0, "lexical": 1.0}},
        {"weights": {"dense": 0.0, "lexical": 0.0}},
        {"weights": {"graph": 1.0}},
        {"max_joined_tokens": -1},
        {"fusion": partial(reciprocal_rank, constant=-1)},
        {"fusion": lambda signals, weights: np.zeros(7)},
    ):
        with pytest.raises(ConfigError):
            Hybrid(memory, EMBEDDER, **wrong)
    fill(memory, ["key"], embedder=EMBEDDER)
    undefined = Hybrid(memory, EMBEDDER, fusion=lambda signals, weights: signals[0] * np.nan)
    with pytest.raises(ConfigError, match="finite"):
        undefined.retrieve(Query("key"), 1)


@pytest.mark.data
def test_chinese_is_found_by_bigrams(data: Path, memory: Store) -> None:
    """CMRC 2018: 1,002 questions over 256 paragraphs; without bigrams a paragraph would be a handful of long words."""
    chinese = cmrc2018(data)
    for document in chinese.documents:
        put(memory, document)
    retriever = Lexical(memory)
    first = within_five = 0
    for identifier, question in chinese.queries.items():
        found = [each.chunk.document_id for each in retriever.retrieve(Query(question), 5)]
        (wanted,) = chinese.relevant[identifier]
        first += found[:1] == [wanted]
        within_five += wanted in found
    assert first / len(chinese.queries) > 0.96
    assert within_five / len(chinese.queries) > 0.98


def test_german_stems_and_other_weights(memory: Store) -> None:
    fill(memory, ["Die Häuser am Fluss", "Ein Baum"])
    german = Lexical(memory, analyzer=Analyzer(language="german"), weights=BM25(k1=0.9, b=0.4))
    assert [each.chunk.document_id for each in german.retrieve(Query("Häusern"), 5)] == ["d0"]
    assert Lexical(memory, analyzer=Analyzer(language=None)).retrieve(Query("Häusern"), 5) == []


def test_titles_and_headings_are_searched(memory: Store) -> None:
    put(memory, Document(id="t", text="Every month.", title="Rotation of keys", source="t.md"), embedder=EMBEDDER)
    (found,) = Hybrid(memory, EMBEDDER).retrieve(Query("rotation"), 5)
    assert found.scores["lexical"] > 0.2
    assert np.isclose(found.score, 1.0)
