"""Recall: the past of a dialogue, found again by words, by meaning, by who said it and when."""

from __future__ import annotations

from ctxkit.recall.dates import DateRange, dates_in
from ctxkit.recall.ranking import Ranking
from ctxkit.recall.retriever import HistoryRetriever
from ctxkit.recall.window import RecallWindow

__all__ = ["DateRange", "HistoryRetriever", "Ranking", "RecallWindow", "dates_in"]
