"""Vectors made of a chunk, its sentences and its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit import ContextEngine
from ctxkit.chunking import RecursiveChunker
from ctxkit.documents import Chunk, Document
from ctxkit.embedding import InContext, embed_chunks
from ctxkit.errors import ConfigError
from ctxkit.protocols import Embedder
from ctxkit.storage import index_text
from ctxkit.testing import EmbedderConformance, HashEmbedder
from tests.strategies import stored_texts

CHUNKER = RecursiveChunker(max_tokens=24)


class TestInContext(EmbedderConformance):
    def make_embedder(self) -> Embedder:
        return InContext(embedder="hash")


def cut(*texts: str) -> list[tuple[Document, list[Chunk]]]:
    documents = [Document.from_text(text, source=f"{number}.txt") for number, text in enumerate(texts)]
    return [(document, list(CHUNKER.chunk(document))) for document in documents]


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


@given(st.lists(stored_texts, max_size=3), st.sampled_from([0.0, 0.2, 5.0]), st.sampled_from([0.0, 1.0]))
def test_each_chunk_has_a_unit_vector_that_other_documents_do_not_change(
    texts: list[str], neighbours: float, sentences: float
) -> None:
    items = cut(*texts)
    embedder = InContext(embedder="hash", neighbours=neighbours, sentences=sentences)
    together = embed_chunks(embedder, items)
    assert together.shape == (sum(len(chunks) for _, chunks in items), 64)
    assert together.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-5)
    alone = [embed_chunks(embedder, [item]) for item in items]
    np.testing.assert_allclose(together, np.concatenate([np.zeros((0, 64)), *alone]), atol=1e-6)


@given(stored_texts)
def test_without_weights_it_is_the_embedder(text: str) -> None:
    items = cut(text)
    plain = embed_chunks(HashEmbedder(), items)
    np.testing.assert_allclose(
        embed_chunks(InContext(embedder=HashEmbedder(), sentences=0, neighbours=0), items), plain, atol=1e-6
    )


def test_the_vectors_are_those_of_the_formula() -> None:
    ((document, chunks),) = items = cut("Cats purr. Cats sleep.\n\n" * 8)
    assert len(chunks) > 2
    embed = HashEmbedder().embed
    purr, sleep = embed(["Cats purr.", "Cats sleep."])
    own = []
    for chunk in chunks:
        whole = embed([index_text(document.title, chunk.heading_path, chunk.text, chunk.context)])[0]
        parts = unit(chunk.text.count("purr") * purr + chunk.text.count("sleep") * sleep)
        own.append(unit(whole + 0.5 * parts))
    expected = unit(own[1] + 0.3 * (own[0] + own[2]))
    found = InContext(embedder="hash", sentences=0.5, neighbours=0.3).embed_chunks(items)
    np.testing.assert_allclose(found[1], expected, atol=1e-5)
    np.testing.assert_allclose(found[0], unit(own[0] + 0.3 * own[1]), atol=1e-5)


class Opposites:
    """Whole texts point one way, single sentences the other: they cancel out."""

    dimension = 2
    fingerprint = "opposites"

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([[1.0, 0.0] if text.count(".") > 1 else [-1.0, 0.0] for text in texts], dtype=np.float32)


def test_where_opposites_cancel_out_the_whole_text_counts() -> None:
    found = InContext(embedder=Opposites(), neighbours=0).embed_chunks(cut("One. Two."))
    np.testing.assert_allclose(found, [[1.0, 0.0]])


def test_other_weights_are_another_space_and_are_embedded_again(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "cats.txt").write_text("Cats purr at night. Dogs bark.\n\nRust has traits.")
    store = f"sqlite:///{tmp_path / 'store.db'}"
    with ContextEngine.open(store, embedder=InContext(embedder="hash")) as engine:
        assert engine.ingest(folder).added == 1
        assert engine.ingest(folder).unchanged == 1
        assert engine.search("Do cats purr at night?")[0].scores["dense"] > 0
    with ContextEngine.open(store, embedder=InContext(embedder="hash", neighbours=0.5)) as engine:
        assert engine.ingest(folder).updated == 1


@pytest.mark.parametrize(
    "wrong", [{"sentences": -1}, {"neighbours": float("nan")}, {"embedder": 3}, {"neighbours": 101}]
)
def test_wrong_options_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        InContext(**{"embedder": "hash", **wrong})  # type: ignore[arg-type]
