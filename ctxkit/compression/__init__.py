"""Candidates in fewer tokens: what matters to the question is kept as spans, nothing is rewritten."""

from ctxkit.compression.entropy import EntropyCompressor
from ctxkit.compression.entropy_scores import TokenScorer, TokenScores
from ctxkit.compression.sentence import SentenceCompressor

__all__ = ["EntropyCompressor", "SentenceCompressor", "TokenScorer", "TokenScores"]
