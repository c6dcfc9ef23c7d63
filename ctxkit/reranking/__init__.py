"""Candidates in a better order: by age, by novelty, by where a model reads best."""

from ctxkit.reranking.diversity import Diversity
from ctxkit.reranking.position import Position
from ctxkit.reranking.scores import ordered, unit_scores
from ctxkit.reranking.threshold import Threshold
from ctxkit.reranking.time_decay import HalfLife, TimeDecay
from ctxkit.reranking.top_k import TopK

__all__ = ["Diversity", "HalfLife", "Position", "Threshold", "TimeDecay", "TopK", "ordered", "unit_scores"]
