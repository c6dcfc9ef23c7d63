"""Dialogue history: units that stay whole, repair, the rules every provider checks, and windows.

Sessions themselves are kept by the store: `store.sessions.append(session, messages)`, `.messages(session)`.
"""

from __future__ import annotations

from ctxkit.history.cues import Cues
from ctxkit.history.extractive_summary import ExtractiveSummariser
from ctxkit.history.hysteresis import Hysteresis
from ctxkit.history.model_summary import ModelSummariser
from ctxkit.history.repair import Note, Repaired, repair
from ctxkit.history.semantic_window import SemanticWindow
from ctxkit.history.shortened import Shortened
from ctxkit.history.sliding_window import SlidingWindow
from ctxkit.history.summaries import Summariser, Summary, apply_summary, roll
from ctxkit.history.summarised import Summarised
from ctxkit.history.tail_window import TailWindow
from ctxkit.history.time_decay_window import TimeDecayWindow
from ctxkit.history.units import Unit, units
from ctxkit.history.validity import check_history

__all__ = [
    "Cues",
    "ExtractiveSummariser",
    "Hysteresis",
    "ModelSummariser",
    "Note",
    "Repaired",
    "SemanticWindow",
    "Shortened",
    "SlidingWindow",
    "Summarised",
    "Summariser",
    "Summary",
    "TailWindow",
    "TimeDecayWindow",
    "Unit",
    "apply_summary",
    "check_history",
    "repair",
    "roll",
    "units",
]
