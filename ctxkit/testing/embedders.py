"""A fast embedder for tests, and what every embedder and vector index must do."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ctxkit.protocols import Embedder, VectorIndex

__all__ = ["EmbedderConformance", "HashEmbedder", "VectorIndexConformance"]


class HashEmbedder:
    """Feature hashing of words: no model, no download, the same vectors on every machine.

    Texts that share words are near. Good enough to test a pipeline, and to run one without the `local` extra.

    Args:
        dimension: of the vectors.

    Source: Weinberger et al., "Feature Hashing for Large Scale Multitask Learning", ICML 2009.
    """

    def __init__(self, dimension: int = 64) -> None:
        self.dimension = dimension
        self.fingerprint = f"hash-{dimension}"

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            for word in re.findall(r"\w+", text.lower()) or [text]:
                digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
                number = int.from_bytes(digest, "little")
                vectors[row, number % self.dimension] += 1.0 if number >> 63 else -1.0
            if not vectors[row].any():
                vectors[row, 0] = 1.0
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


class EmbedderConformance:
    """What every `Embedder` must do. Override `make_embedder`."""

    def make_embedder(self) -> Embedder:
        raise NotImplementedError

    def test_it_is_an_embedder(self) -> None:
        assert isinstance(self.make_embedder(), Embedder)

    def test_shape_type_and_norm(self) -> None:
        embedder = self.make_embedder()
        vectors = embedder.embed(["The cat sat.", "猫坐着。", "", " ", "<|endoftext|>"])
        assert vectors.shape == (5, embedder.dimension)
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-4)

    def test_no_texts(self) -> None:
        embedder = self.make_embedder()
        assert embedder.embed([]).shape == (0, embedder.dimension)

    def test_a_text_has_one_vector_wherever_it_stands(self) -> None:
        embedder = self.make_embedder()
        alone = embedder.embed(["a small text"])[0]
        among = embedder.embed(["something much longer than the other one, to force padding", "a small text"])[1]
        np.testing.assert_allclose(alone, among, atol=1e-5)

    def test_like_is_nearer_than_unlike(self) -> None:
        query, like, unlike = self.make_embedder().embed(
            [
                "how do I rotate the signing key",
                "rotate the signing key every month",
                "bananas grow in warm places",
            ]
        )
        assert query @ like > query @ unlike


class VectorIndexConformance:
    """What every `VectorIndex` must do. Override `make_index`."""

    def make_index(self, dimension: int) -> VectorIndex:
        raise NotImplementedError

    def _vectors(self, count: int, dimension: int = 16) -> NDArray[np.float32]:
        vectors = np.random.default_rng(7).standard_normal((count, dimension)).astype(np.float32)
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)

    def test_exact_neighbours(self) -> None:
        vectors = self._vectors(200)
        keys = np.arange(1000, 1200, dtype=np.int64)
        index = self.make_index(16)
        index.add(keys, vectors)
        found, scores = index.search(vectors[17], 5)
        truth = keys[np.argsort(-(vectors @ vectors[17]), kind="stable")[:5]]
        assert found.tolist() == truth.tolist()
        assert scores[0] >= scores[1] >= scores[4]
        np.testing.assert_allclose(scores[0], 1.0, atol=1e-3)

    def test_removed_keys_are_not_found(self) -> None:
        vectors = self._vectors(20)
        keys = np.arange(20, dtype=np.int64)
        index = self.make_index(16)
        index.add(keys, vectors)
        index.remove(np.array([3, 4], dtype=np.int64))
        found, _ = index.search(vectors[3], 20)
        assert len(found) == 18
        assert not {3, 4} & set(found.tolist())

    def test_fewer_than_k_and_none(self) -> None:
        index = self.make_index(16)
        assert len(index.search(self._vectors(1)[0], 5)[0]) == 0
        index.add(np.array([9], dtype=np.int64), self._vectors(1))
        assert index.search(self._vectors(1)[0], 5)[0].tolist() == [9]
