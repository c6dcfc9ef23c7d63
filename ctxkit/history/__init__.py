"""Dialogue history: units that stay whole, repair, the rules every provider checks, and windows.

Sessions themselves are kept by the store: `store.sessions.append(session, messages)`, `.messages(session)`.
"""

from __future__ import annotations

from ctxkit.history.repair import Note, Repaired, repair
from ctxkit.history.tail_window import TailWindow
from ctxkit.history.units import Unit, units
from ctxkit.history.validity import check_history

__all__ = ["Note", "Repaired", "TailWindow", "Unit", "check_history", "repair", "units"]
