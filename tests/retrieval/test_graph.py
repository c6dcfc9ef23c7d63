"""The graph signal: two hops, what it is worth, what it says, and that it follows the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxkit.documents import Chunk, Document, Query, Span
from ctxkit.engine import ContextEngine
from ctxkit.errors import ConfigError
from ctxkit.graph.building import document_graph
from ctxkit.graph.light import LightExtractor
from ctxkit.graph.tagging import tag
from ctxkit.prompts import Budget
from ctxkit.protocols import Retriever
from ctxkit.retrieval import Graph, Hybrid, Neighbourhood
from ctxkit.retrieval.phrases import hashed, name_phrases
from ctxkit.storage import Store, index_text
from ctxkit.testing import HashEmbedder, RetrieverConformance, StageConformance
from tests.strategies import stored_texts

EMBEDDER = HashEmbedder(64)

HOPS = {
    "film": ("Red Harbour", "Red Harbour is a film of 1961 that was directed by Ilse Brandt in Lisbon."),
    "director": ("Ilse Brandt", "Ilse Brandt was born in Tromsø and studied painting before she turned to the cinema."),
    "town": ("Tromsø", "Tromsø lies north of the Arctic Circle. Its university opened in 1972."),
    "tea": ("Tea", "Green tea is brewed below the boiling point, black tea at it."),
    "keys": ("Keys", "The signing key is rotated on the first day of each month."),
    "harbour": ("Harbours", "A harbour shelters ships from wind and waves, and a film of oil does it no good."),
}
QUESTION = "Where was the person born who directed Red Harbour?"


def put(store: Store, documents: Sequence[Document], *, cuts: dict[str, list[int]] | None = None) -> None:
    """Store documents with what the light extractor finds, whole or cut at given places."""
    items = []
    for document in documents:
        edges = [0, *(cuts or {}).get(document.id, []), len(document.text)]
        spans = [Span(start, end) for start, end in pairwise(edges)]
        items.append((document, [Chunk.of(document, span, max(1, span.length // 5)) for span in spans]))
    for document, chunks in tag(items, LightExtractor()):
        vectors = EMBEDDER.embed([index_text(document.title, (), chunk.text) for chunk in chunks])
        store.documents.put(
            document,
            chunks,
            recipe="test",
            fingerprint=EMBEDDER.fingerprint,
            vectors=vectors,
            graph=document_graph(document.text, chunks),
        )


def documents(names: Sequence[str] = tuple(HOPS)) -> list[Document]:
    return [Document(id=name, text=HOPS[name][1], title=HOPS[name][0], source=f"{name}.md") for name in names]


@pytest.fixture
def filled() -> Iterator[Store]:
    with Store.open("sqlite://") as store:
        put(store, documents())
        yield store


def order(retriever: Retriever, text: str = QUESTION, k: int = 6, **query: object) -> list[str]:
    found = retriever.retrieve(Query(text, **query), k)  # type: ignore[arg-type]
    return [candidate.chunk.document_id for candidate in found]


class TestHybridWithGraph(RetrieverConformance):
    def make_retriever(self, documents: Sequence[Document]) -> Retriever:
        store = Store.open("sqlite://")
        put(store, documents)
        return Hybrid(store, EMBEDDER)


class TestNeighbourhood(StageConformance):
    def make_stage(self) -> Neighbourhood:
        return Neighbourhood(Store.open("sqlite://"))


class TestNeighbourhoodOverAFilledStore(StageConformance):
    """The given candidates are not of this store, so that nothing may be added to them."""

    @pytest.fixture(autouse=True)
    def _use(self, filled: Store) -> None:
        self._store = filled

    def make_stage(self) -> Neighbourhood:
        return Neighbourhood(self._store)


# ------------------------------------------------------------------------------------------------ what it finds


def test_the_second_hop_is_found_by_a_name_that_the_question_does_not_have(filled: Store) -> None:
    plain = Hybrid(filled, None, weights={"lexical": 1})
    assert order(plain).index("film") < order(plain).index("harbour")
    found = Hybrid(filled, None).retrieve(Query(QUESTION), 6)
    ids = [candidate.chunk.document_id for candidate in found]
    assert ids[:2] == ["film", "director"]
    assert found[1].via[0] == "Ilse Brandt"
    assert "town" in ids  # no word of the question is in it: two hops away


def test_via_says_names_as_the_chunk_writes_them(filled: Store) -> None:
    for candidate in Hybrid(filled, EMBEDDER).retrieve(Query(QUESTION), 6):
        for name in candidate.via:
            assert name in candidate.chunk.text or name == candidate.chunk.metadata["title"]


def test_scores_are_in_range_and_kept_apart(filled: Store) -> None:
    found = Hybrid(filled, EMBEDDER).retrieve(Query(QUESTION), 6)
    assert all(set(candidate.scores) == {"dense", "lexical", "graph", "final"} for candidate in found)
    assert all(0 <= score <= 1 for candidate in found for score in candidate.scores.values())
    assert max(candidate.scores["graph"] for candidate in found) == 1.0


def test_names_alone_and_hits_alone(filled: Store) -> None:
    keys = filled.documents.keys()
    names = Graph(filled, hits=0).walk("Ilse Brandt", keys[:0], np.zeros(0))
    assert names is not None
    chunks = filled.documents.chunks(names.best(2))
    assert {chunk.document_id for chunk in chunks.values()} == {"film", "director"}
    hits = Graph(filled, names_weight=0).walk("nothing", keys[:1], np.ones(1))
    assert hits is not None
    assert hits.best(1).tolist() == keys[:1].tolist()
    nowhere = Graph(filled, hits=0).walk("nothing", keys, np.ones(len(keys)))
    assert nowhere is not None
    assert nowhere.best(5).tolist() == []
    assert nowhere.scores.tolist() == [0.0] * len(keys)


# --------------------------------------------------------------------------------------------- without a graph


def test_without_entities_nothing_changes_and_the_trace_says_so() -> None:
    with Store.open("sqlite://") as store:
        engine = ContextEngine(store, embedder=None, extractor=None)
        engine.ingest_documents([Document.from_text("green tea is warm", source="tea.md")])
        if store.graph.exists():
            pytest.skip("the engine finds entities by itself")
        hybrid = Hybrid(store, None)
        assert hybrid.retrieve(Query("tea"), 3) == Hybrid(store, None, weights={"lexical": 1}).retrieve(Query("tea"), 3)
        assert "not used" in hybrid.describe()["graph"]
        assert "graph: not used: no stored document" in engine.assemble("tea", budget=Budget(2_000)).explain()


def test_without_entities_no_text_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open("sqlite://") as store:
        store.documents.put(*_bare("d", "green tea"), recipe="test")
        graph = Graph(store)
        monkeypatch.setattr(store.documents, "chunks", lambda keys: pytest.fail("the graph read chunks"))
        assert graph.walk("tea", store.documents.keys(), np.ones(1)) is None
        monkeypatch.undo()
        put(store, documents(["film"]))
        found = graph.walk("Red Harbour", store.documents.keys(), np.ones(2))
        assert found is not None
        assert len(found.keys) == 2  # what was there before is read when the first entity comes


def _bare(name: str, text: str) -> tuple[Document, list[Chunk]]:
    document = Document(id=name, text=text, source=name)
    return document, [Chunk.of(document, Span(0, len(text)), 3)]


def test_explain_and_trace_name_the_entities(filled: Store) -> None:
    engine = ContextEngine(filled, embedder=None)
    prompt = engine.assemble(QUESTION, budget=Budget(4_000))
    (record,) = [record for record in prompt.trace.records if record.stage == "retrieval"]
    assert any("Ilse Brandt" in names for names in record.notes["via"].values())
    assert "director.md:0-" in prompt.explain()
    assert " via Ilse Brandt" in prompt.explain()
    assert "6 chunks" in record.notes["graph"]


# ------------------------------------------------------------------------------------- following, tenants, filters


def test_it_follows_the_store(filled: Store) -> None:
    hybrid = Hybrid(filled, None)
    assert order(hybrid)[:2] == ["film", "director"]
    filled.documents.delete(["director"])
    assert "director" not in order(hybrid)
    put(filled, documents(["director"]))
    assert order(hybrid)[:2] == ["film", "director"]
    changed = Document(id="film", text="Red Harbour is a film by Otto Lind.", title="Red Harbour", source="film.md")
    put(filled, [changed, Document(id="lind", text="Otto Lind was born in Graz.", title="Otto Lind", source="lind.md")])
    assert order(hybrid)[:2] == ["film", "lind"]


def test_a_new_index_from_the_copy_answers_alike(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store:
        put(store, documents())
        first = Hybrid(store, EMBEDDER).retrieve(Query(QUESTION), 6)
    with Store.open(sqlite_url) as store:
        assert store.path is not None
        assert list(store.path.with_name(f"{store.path.name}.index").glob("graph-*"))
        assert Hybrid(store, EMBEDDER).retrieve(Query(QUESTION), 6) == first


def test_it_works_on_both_databases(new_store_url: Callable[[], str]) -> None:
    with Store.open(new_store_url()) as store:
        put(store, documents())
        assert order(Hybrid(store, EMBEDDER))[:2] == ["film", "director"]


def test_tenants_never_meet(filled: Store) -> None:
    other = filled.for_tenant("other")
    put(other, documents(["tea", "town"]))
    assert set(order(Hybrid(other, EMBEDDER), tenant="other")) <= {"tea", "town"}
    graph = Graph(other).index.graph()
    assert graph is not None
    assert "ilse brandt" not in graph.names
    with pytest.raises(ConfigError):
        order(Hybrid(other, EMBEDDER))


def test_filters_hold_though_the_walk_leads_elsewhere(filled: Store) -> None:
    assert order(Hybrid(filled, None), filters={"document_id": ["director", "tea"]})[0] == "director"
    assert set(order(Hybrid(filled, None), filters={"document_id": ["director", "tea"]})) <= {"director", "tea"}


@pytest.fixture(scope="module")
def shared() -> Iterator[Store]:
    """One database for all examples, a tenant for each: what one leaves behind, the next must not see."""
    with Store.open("sqlite://") as store:
        yield store


_NUMBERS = count()


@settings(deadline=None, max_examples=25)
@given(texts=st.lists(stored_texts, max_size=4), question=stored_texts, k=st.integers(1, 4))
def test_whatever_is_stored_and_asked(shared: Store, texts: list[str], question: str, k: int) -> None:
    store = shared.for_tenant(f"tenant {next(_NUMBERS)}")
    put(store, [Document(id=f"d{i}", text=text, title=text[:20], source=f"{i}") for i, text in enumerate(texts)])
    put(store, documents(["film"]))
    hybrid, query = Hybrid(store, EMBEDDER), Query(question, tenant=store.tenant)
    found = hybrid.retrieve(query, k)
    assert len(found) <= k
    finals = [candidate.score for candidate in found]
    assert finals == sorted(finals, reverse=True)
    assert all(0 <= score <= 1 for candidate in found for score in candidate.scores.values())
    assert hybrid.retrieve(query, k) == found
    raised = Neighbourhood(store, graph=hybrid.graph)(query, found)
    assert [candidate.score for candidate in raised] == sorted((each.score for each in raised), reverse=True)
    assert {candidate.chunk.id for candidate in found} <= {candidate.chunk.id for candidate in raised}


# ------------------------------------------------------------------------------------------------- neighbourhood

TALK = ["Ada: Where did you go? ", "Bob: To the lake. ", "Ada: It rained here. ", "Bob: Tea, please. "]


def _talk(store: Store) -> None:
    text = "".join(TALK)
    cuts = np.cumsum([len(turn) for turn in TALK])[:-1].tolist()
    put(store, [Document(id="talk", text=text, source="talk.md")], cuts={"talk": cuts})


@pytest.mark.parametrize("with_graph", [True, False])
def test_what_stands_beside_a_hit_is_raised_and_added(with_graph: bool) -> None:
    with Store.open("sqlite://") as store:
        if with_graph:
            _talk(store)
        else:
            text, start, chunks = "".join(TALK), 0, []
            document = Document(id="talk", text=text, source="talk.md")
            for turn in TALK:
                chunks.append(Chunk.of(document, Span(start, start + len(turn)), 5))
                start += len(turn)
            store.documents.put(document, chunks, recipe="test")
        query = Query("where did you go")
        first = Hybrid(store, None, weights={"lexical": 1}).retrieve(query, 1)
        assert [candidate.text for candidate in first] == [TALK[0]]
        around = Neighbourhood(store, shared=0)(query, first)
        assert [candidate.text for candidate in around] == TALK[:2]
        assert around[1].score == pytest.approx(0.3 * around[0].score)
        assert [candidate.text for candidate in Neighbourhood(store, beside=0, shared=0)(query, first)] == TALK[:1]


def test_who_is_asked_about_speaks_for_himself() -> None:
    with Store.open("sqlite://") as store:
        _talk(store)
        put(store, documents(["film"]))  # without any entity there is no graph
        hybrid = Hybrid(store, None)
        query = Query("What did Bob say of the lake, where did you go?")
        found = hybrid.retrieve(query, 4)
        plain = {each.chunk.id: each.score for each in Neighbourhood(store, about=0)(query, found)}
        raised = Neighbourhood(store, about=0.5)(query, found)
        ratio = {each.text.partition(":")[0]: each.score / plain[each.chunk.id] for each in raised}
        assert ratio["Bob"] == pytest.approx(1.5 * ratio["Ada"])
        nobody = Query("where did you go")
        found = hybrid.retrieve(nobody, 4)
        assert Neighbourhood(store)(nobody, found) == Neighbourhood(store, about=0)(nobody, found)


def test_what_shares_a_rare_name_is_added_with_the_name(filled: Store) -> None:
    first = Hybrid(filled, None, weights={"lexical": 1}).retrieve(Query("a film of 1961"), 1)
    assert [candidate.chunk.document_id for candidate in first] == ["film"]
    around = Neighbourhood(filled, beside=0, shared=0.5)(Query("a film of 1961"), first)
    assert [candidate.chunk.document_id for candidate in around] == ["film", "director"]
    assert around[1].via == ("Ilse Brandt",)
    only = Query("a film of 1961", filters={"document_id": ["film", "tea"]})
    assert len(Neighbourhood(filled, beside=0, shared=0.5)(only, first)) == 1


@pytest.mark.parametrize(
    "parameters", [{"beside": -1}, {"shared": -0.1}, {"about": -0.1}, {"best": -1}, {"added": 1.5}]
)
def test_a_neighbourhood_without_sense_is_refused(filled: Store, parameters: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Neighbourhood(filled, **parameters)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "parameters",
    [
        {"damping": 1},
        {"damping": -0.1},
        {"hits": -1},
        {"focus": -1},
        {"hit_share": 2},
        {"names_weight": -1},
        {"subject": -1},
    ],
)
def test_a_walk_without_sense_is_refused(filled: Store, parameters: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Graph(filled, **parameters)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------- phrases


def test_phrases_do_not_cross_sentences() -> None:
    found = list(name_phrases("They met in Paris. London was next, St. Louis after it."))
    assert "Paris. London" not in found
    assert {"Paris", "London", "St. Louis"} <= set(found)


@given(stored_texts)
def test_phrases_are_pieces_of_the_text(text: str) -> None:
    for phrase in name_phrases(text):
        assert phrase in text
        assert 0 <= hashed(phrase) < 1 << 64


def test_phrases_are_linear() -> None:
    assert len(list(name_phrases("Word " * 10_000))) <= 6 * 10_000


@pytest.mark.parametrize("graph", [0, "x", True, []])
def test_what_is_no_graph_is_refused_by_the_neighbourhood(graph: object) -> None:
    with Store.open("sqlite://") as store, pytest.raises(ConfigError, match="graph"):
        Neighbourhood(store, graph=graph)  # type: ignore[arg-type]


def test_another_tenants_graph_is_refused_by_the_neighbourhood(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with Store.open(url, tenant="ann") as mine, Store.open(url, tenant="bob") as other:
        with pytest.raises(ConfigError, match="another tenant"):
            Neighbourhood(mine, graph=Graph(other))
        assert Neighbourhood(mine, graph=Graph(mine)).graph is not None
