"""Cutting documents into chunks that lose nothing (law 1) and never exceed their maximum of tokens."""

from ctxkit.chunking.recursive import RecursiveChunker
from ctxkit.chunking.semantic_graph import SemanticGraphChunker
from ctxkit.chunking.sentence import SentenceChunker
from ctxkit.chunking.streaming import ChunkStream, StreamableChunker, StreamingChunker
from ctxkit.chunking.topics import TopicSegmenter

__all__ = [
    "ChunkStream",
    "RecursiveChunker",
    "SemanticGraphChunker",
    "SentenceChunker",
    "StreamableChunker",
    "StreamingChunker",
    "TopicSegmenter",
]
