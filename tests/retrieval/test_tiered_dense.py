"""Dense retrieval over the tiered index: it follows the store, survives damage, and answers alike after a restart."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from ctxkit.documents import Document, Query
from ctxkit.errors import ConfigError, EmbeddingError
from ctxkit.retrieval import Dense
from ctxkit.retrieval.dense import TieredDenseIndex
from ctxkit.storage import Store
from ctxkit.testing import HashEmbedder, RetrieverConformance
from tests.retrieval.filling import fill, put

EMBEDDER = HashEmbedder(64)
TEXTS = [
    f"note {number} about {topic} and {number * 7} more"
    for number, topic in enumerate(["keys", "tea", "bananas", "rain"] * 30)
]
KINDS: list[Literal["tiered", "int4"]] = ["tiered", "int4"]


class TestTieredDense(RetrieverConformance):
    @pytest.fixture(autouse=True)
    def _store(self, tmp_path: Path) -> Iterator[None]:
        with Store.open(f"sqlite:///{tmp_path / 'store.db'}") as store:
            self.store = store
            yield

    def make_retriever(self, documents: Sequence[Document]) -> Dense:
        for document in documents:
            put(self.store, document, embedder=HashEmbedder(256))
        return Dense(self.store, HashEmbedder(256), index_kind="tiered")


@pytest.fixture
def files(sqlite_url: str) -> Iterator[Store]:
    with Store.open(sqlite_url) as store:
        fill(store, TEXTS, embedder=EMBEDDER)
        yield store


def tiers(retriever: Dense) -> TieredDenseIndex:
    assert isinstance(retriever.index, TieredDenseIndex)
    return retriever.index


def copy_of(retriever: Dense) -> Path:
    assert retriever.index.path is not None
    return retriever.index.path


def answers(retriever: Dense) -> list[list[tuple[str, float]]]:
    return [
        [(found.chunk.document_id, found.score) for found in retriever.retrieve(Query(text), 5)] for text in TEXTS[::7]
    ]


def test_it_finds_what_the_flat_index_finds(files: Store) -> None:
    flat, tiered = answers(Dense(files, EMBEDDER)), answers(Dense(files, EMBEDDER, index_kind="tiered"))
    for exact, halves in zip(flat, tiered, strict=True):
        assert exact[0][0] == halves[0][0]
        np.testing.assert_allclose([score for _, score in exact], [score for _, score in halves], atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_it_follows_the_store(files: Store, kind: Literal["tiered", "int4"]) -> None:
    retriever = Dense(files, EMBEDDER, index_kind=kind)
    assert retriever.retrieve(Query(TEXTS[4]), 1)[0].chunk.document_id == "d4"
    files.documents.delete(["d4"])
    fill(files, ["a zebra crossing"], embedder=EMBEDDER, prefix="new")
    assert retriever.retrieve(Query("a zebra crossing"), 1)[0].chunk.document_id == "new0"
    assert "d4" not in [found.chunk.document_id for found in retriever.retrieve(Query(TEXTS[4]), 200)]
    assert (tiers(retriever).tiers.disk_bytes == 0) == (kind == "int4")


@pytest.mark.parametrize("kind", KINDS)
def test_a_restart_answers_alike_and_reads_no_vector_of_the_store(
    files: Store, kind: Literal["tiered", "int4"], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Dense(files, EMBEDDER, index_kind=kind, hot_share=0.2)
    before = answers(first)
    assert answers(first) == before
    first.index.save()
    monkeypatch.setattr(files.documents, "vectors", lambda *_: pytest.fail("the store was asked for vectors"))
    second = Dense(files, EMBEDDER, index_kind=kind, hot_share=0.2)
    assert answers(second) == before
    if kind == "tiered":
        assert tiers(second).tiers.hits > 0


def test_a_damaged_copy_is_built_again(files: Store) -> None:
    first = Dense(files, EMBEDDER, index_kind="tiered")
    right = answers(first)
    path = copy_of(first)
    content = path.read_bytes()
    for position in range(100, len(content), 1_999):
        broken = bytearray(content)
        broken[position] ^= 255
        path.unlink()  # the first retriever still reads the file that it mapped
        path.write_bytes(broken if position % 2 else content[:position])
        assert answers(Dense(files, EMBEDDER, index_kind="tiered")) == right
    assert answers(first) == right


_ANOTHER_PROCESS = """
import sys
from ctxkit.documents import Query
from ctxkit.retrieval import Dense
from ctxkit.storage import Store
from ctxkit.testing import HashEmbedder
from tests.retrieval.filling import fill
with Store.open(sys.argv[1]) as store:
    fill(store, [f"an ocean liner {number}" for number in range(60)], embedder=HashEmbedder(64), prefix="other")
    store.documents.delete(["d0"])
    retriever = Dense(store, HashEmbedder(64), index_kind="tiered")
    print(retriever.retrieve(Query("an ocean liner 7"), 1)[0].chunk.document_id)
    retriever.index.save()
"""


def test_another_process_replaces_the_copy(files: Store, sqlite_url: str) -> None:
    retriever = Dense(files, EMBEDDER, index_kind="tiered")
    assert retriever.retrieve(Query(TEXTS[0]), 1)[0].chunk.document_id == "d0"
    done = subprocess.run(
        [sys.executable, "-c", _ANOTHER_PROCESS, sqlite_url],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert done.stdout.strip() == "other7", done.stderr
    assert retriever.retrieve(Query("an ocean liner 7"), 1)[0].chunk.document_id == "other7"
    assert answers(retriever) == answers(Dense(files, EMBEDDER, index_kind="tiered"))


def test_in_memory_stores_work_too() -> None:
    with Store.open("sqlite://") as store:
        fill(store, TEXTS[:50], embedder=EMBEDDER)
        retriever = Dense(store, EMBEDDER, index_kind="tiered")
        assert retriever.retrieve(Query(TEXTS[9]), 1)[0].chunk.document_id == "d9"
        retriever.index.save()
        with pytest.raises(EmbeddingError, match="hash-32"):
            Dense(store, HashEmbedder(32), index_kind="tiered").retrieve(Query("tea"), 5)


def test_wrong_options_are_named(files: Store) -> None:
    with pytest.raises(ConfigError, match="index_kind"):
        Dense(files, EMBEDDER, index_kind="warm")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="hot_share"):
        Dense(files, EMBEDDER, index_kind="tiered", hot_share=2)


@pytest.mark.postgres
def test_postgresql_has_no_tiers(postgres_url: str) -> None:
    with Store.open(postgres_url) as store, pytest.raises(ConfigError, match="PostgreSQL"):
        Dense(store, EMBEDDER, index_kind="tiered")
