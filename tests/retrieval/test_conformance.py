"""The three retrievers keep the protocol's rules on both databases; the real embedder too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from ctxkit.documents import Document
from ctxkit.embedding import minilm
from ctxkit.protocols import Retriever
from ctxkit.retrieval import Dense, Hybrid, Lexical
from ctxkit.storage import Store
from ctxkit.testing import HashEmbedder, RetrieverConformance
from tests.retrieval.filling import put

EMBEDDER = HashEmbedder(256)


class OnBothDatabases(RetrieverConformance):
    def wrap(self, store: Store) -> Retriever:
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _closing(self, new_store_url: Callable[[], str]) -> Iterator[None]:
        self._new_url, self._opened = new_store_url, []
        yield
        for store in self._opened:
            store.close()

    def make_retriever(self, documents: Sequence[Document]) -> Retriever:
        store = Store.open(self._new_url())
        self._opened.append(store)
        for document in documents:
            put(store, document, embedder=EMBEDDER)
        return self.wrap(store)


class TestLexical(OnBothDatabases):
    def wrap(self, store: Store) -> Retriever:
        return Lexical(store)


class TestDense(OnBothDatabases):
    def wrap(self, store: Store) -> Retriever:
        return Dense(store, EMBEDDER)


class TestHybrid(OnBothDatabases):
    def wrap(self, store: Store) -> Retriever:
        return Hybrid(store, EMBEDDER)


class TestHybridWithoutEmbedder(OnBothDatabases):
    def wrap(self, store: Store) -> Retriever:
        return Hybrid(store, None)


@pytest.fixture(scope="module")
def stores() -> Iterator[dict[int, Store]]:
    """One store for each number of documents: the model embeds them once."""
    stores: dict[int, Store] = {}
    yield stores
    for store in stores.values():
        store.close()


@pytest.mark.model
class TestHybridWithMiniLM(RetrieverConformance):
    @pytest.fixture(autouse=True)
    def _use(self, stores: dict[int, Store]) -> None:
        self._stores = stores

    def make_retriever(self, documents: Sequence[Document]) -> Retriever:
        store = self._stores.get(len(documents))
        if store is None:
            store = self._stores[len(documents)] = Store.open("sqlite://")
            for document in documents:
                put(store, document, embedder=minilm())
        return Hybrid(store, minilm())
