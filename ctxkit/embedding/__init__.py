"""Texts to vectors, and the nearest of them: encoders and vector indexes."""

from __future__ import annotations

from ctxkit.embedding.in_context import ChunkEmbedder, InContext, embed_chunks
from ctxkit.embedding.indexes import FaissIndex, FlatIndex, load_index, open_index
from ctxkit.embedding.sentence_transformer import SentenceTransformerEmbedder, minilm
from ctxkit.embedding.tiered import TieredIndex, load_tiered

__all__ = [
    "ChunkEmbedder",
    "FaissIndex",
    "FlatIndex",
    "InContext",
    "SentenceTransformerEmbedder",
    "TieredIndex",
    "embed_chunks",
    "load_index",
    "load_tiered",
    "minilm",
    "open_index",
]
