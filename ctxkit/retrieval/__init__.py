"""Finding the chunks that answer a question: by meaning, by words, through a graph of names, and all together."""

from __future__ import annotations

from ctxkit.retrieval.dense import Dense
from ctxkit.retrieval.fusion import Fusion, max_normalised, min_max, reciprocal_rank, z_score
from ctxkit.retrieval.graph import Graph
from ctxkit.retrieval.hybrid import Hybrid
from ctxkit.retrieval.lexical import Lexical
from ctxkit.retrieval.neighbourhood import Neighbourhood
from ctxkit.retrieval.neighbours import drop_copies, merge_neighbours
from ctxkit.retrieval.postings import BM25
from ctxkit.retrieval.stretches import Stretches
from ctxkit.retrieval.terms import Analyzer

__all__ = [
    "BM25",
    "Analyzer",
    "Dense",
    "Fusion",
    "Graph",
    "Hybrid",
    "Lexical",
    "Neighbourhood",
    "Stretches",
    "drop_copies",
    "max_normalised",
    "merge_neighbours",
    "min_max",
    "reciprocal_rank",
    "z_score",
]
