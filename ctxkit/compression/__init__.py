"""Candidates in fewer tokens: what matters to the question is kept as spans, nothing is rewritten."""

from ctxkit.compression.sentence import SentenceCompressor

__all__ = ["SentenceCompressor"]
