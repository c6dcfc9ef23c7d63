"""Candidates in fewer tokens: what matters to the question is kept as spans, nothing is rewritten."""

from ctxkit.compression.cascade import Cascade
from ctxkit.compression.deduplicate import Deduplicate
from ctxkit.compression.entropy import EntropyCompressor
from ctxkit.compression.entropy_scores import TokenScorer, TokenScores
from ctxkit.compression.sentence import SentenceCompressor
from ctxkit.compression.sentence_store import SentenceStore
from ctxkit.compression.worth import Worth, WorthIt, seconds_per_token, worth_it

__all__ = [
    "Cascade",
    "Deduplicate",
    "EntropyCompressor",
    "SentenceCompressor",
    "SentenceStore",
    "TokenScorer",
    "TokenScores",
    "Worth",
    "WorthIt",
    "seconds_per_token",
    "worth_it",
]
