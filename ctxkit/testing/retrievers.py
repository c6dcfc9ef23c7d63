"""What every `Retriever` must do."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ctxkit.documents import Document, Query
from ctxkit.errors import ConfigError
from ctxkit.protocols import Retriever

__all__ = ["RetrieverConformance"]

_DOCUMENTS = (
    Document(
        id="keys",
        text="Rotate the signing key every month. The old key stays valid for a day.",
        source="ops/keys.md",
        title="Keys",
        metadata={"team": "security", "level": 2},
    ),
    Document(
        id="fruit",
        text="Bananas grow in warm places. They are picked green and ripen on the way.",
        source="food/fruit.md",
        title="Fruit",
        metadata={"team": "kitchen", "level": 1},
    ),
    Document(
        id="tea",
        text="Green tea is steeped below boiling. Warm the pot first.",
        source="food/tea.md",
        title="Tea",
        metadata={"team": "kitchen", "level": 2},
    ),
    Document(id="chinese", text="钥匙每月轮换一次。旧钥匙还有效一天。", source="ops/钥匙.md", title="钥匙"),
)


class RetrieverConformance:
    """What every `Retriever` must do. Override `make_retriever`: over these documents, stored by its own means."""

    def make_retriever(self, documents: Sequence[Document]) -> Retriever:
        raise NotImplementedError

    @pytest.fixture
    def retriever(self) -> Retriever:
        return self.make_retriever(_DOCUMENTS)

    def test_it_is_a_retriever(self, retriever: Retriever) -> None:
        assert isinstance(retriever, Retriever)

    def test_the_obvious_answer_comes_first(self, retriever: Retriever) -> None:
        assert retriever.retrieve(Query("when to rotate the signing key"), 3)[0].chunk.document_id == "keys"
        assert retriever.retrieve(Query("where do bananas grow"), 3)[0].chunk.document_id == "fruit"

    @pytest.mark.parametrize("k", [1, 2, 100])
    def test_at_most_k_best_first_in_range(self, retriever: Retriever, k: int) -> None:
        found = retriever.retrieve(Query("warm green tea"), k)
        assert 1 <= len(found) <= k, f"asked for at most {k}, found {len(found)}"
        finals = [candidate.scores["final"] for candidate in found]
        assert finals == sorted(finals, reverse=True), f"the best comes first, but the scores are {finals}"
        assert all(0 <= score <= 1 for score in finals), f"final scores are in [0, 1], but these are {finals}"

    def test_no_candidate_comes_twice(self, retriever: Retriever) -> None:
        found = retriever.retrieve(Query("warm green key bananas"), 100)
        ids = [candidate.chunk.id for candidate in found]
        assert len(set(ids)) == len(ids), f"a candidate came twice: {ids}"

    def test_every_candidate_is_a_piece_of_its_document(self, retriever: Retriever) -> None:
        texts = {document.id: document.text for document in _DOCUMENTS}
        for candidate in retriever.retrieve(Query("the old key and a warm pot"), 100):
            there = candidate.chunk.span.slice(texts[candidate.chunk.document_id])
            assert candidate.text == there, (
                f"law 3, every token has a source: {candidate.chunk.id} says {candidate.text!r}, its document {there!r}"
            )

    def test_a_candidate_says_where_it_comes_from(self, retriever: Retriever) -> None:
        best = retriever.retrieve(Query("rotate the signing key"), 1)[0]
        assert best.chunk.metadata["source"] == best.sources[0].source == "ops/keys.md"

    def test_the_same_question_has_the_same_answer(self, retriever: Retriever) -> None:
        query = Query("warm green key")
        assert retriever.retrieve(query, 10) == retriever.retrieve(query, 10), (
            "law 6, the same in gives the same out: two calls differ"
        )

    @pytest.mark.parametrize(
        ("filters", "allowed"),
        [
            ({"team": "kitchen"}, {"fruit", "tea"}),
            ({"team": ["kitchen", "security"], "level": 2}, {"keys", "tea"}),
            ({"source": "ops/*"}, {"keys", "chinese"}),
            ({"document_id": "tea"}, {"tea"}),
            ({"team": "nobody"}, set()),
        ],
    )
    def test_filters_hold(self, retriever: Retriever, filters: dict[str, object], allowed: set[str]) -> None:
        found = retriever.retrieve(Query("warm green key rotate", filters=filters), 100)
        documents = {candidate.chunk.document_id for candidate in found}
        assert documents <= allowed, (
            f"the filter {filters} lets {sorted(allowed)} through, but found {sorted(documents)}"
        )

    @pytest.mark.parametrize("text", ["", " \n\t", "\u3000"])
    def test_a_question_of_white_space_finds_nothing(self, retriever: Retriever, text: str) -> None:
        assert retriever.retrieve(Query(text), 5) == []

    @pytest.mark.parametrize("text", ["\x00", "\ud800 key", "<|im_start|>", "' OR 1=1 --", "key " * 5000, "👨‍👩‍👧"])
    def test_any_question_is_answered(self, retriever: Retriever, text: str) -> None:
        for candidate in retriever.retrieve(Query(text), 5):
            assert 0 <= candidate.score <= 1

    @pytest.mark.parametrize("k", [0, -1])
    def test_k_must_be_positive(self, retriever: Retriever, k: int) -> None:
        with pytest.raises(ConfigError):
            retriever.retrieve(Query("key"), k)

    def test_of_nothing_nothing_is_found(self) -> None:
        assert self.make_retriever([]).retrieve(Query("key"), 5) == []
