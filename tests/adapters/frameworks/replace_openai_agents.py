"""A pytest plugin: the SDK's tests of its sessions run on ctxkit's in place of `SQLiteSession`."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

import agents
import agents.memory
import agents.memory.sqlite_session
from agents.memory.session_settings import coerce_session_settings

from ctxkit.storage import Store
from ctxkit_adapters.openai_agents import CtxkitSession

_numbers = itertools.count()
_stores: dict[str, Store] = {}
_folder = tempfile.mkdtemp(prefix="ctxkit-sessions-")


class Replaced(CtxkitSession):
    """Takes what `SQLiteSession` takes: one store for each database file, a new one for each in memory."""

    def __init__(
        self, session_id: str, db_path: str | Path = ":memory:", *_: Any, session_settings: Any = None, **__: Any
    ) -> None:
        path = str(db_path) if str(db_path) != ":memory:" else f"{_folder}/{next(_numbers)}"
        if path not in _stores:
            _stores[path] = Store.open(f"sqlite:///{path}.ctxkit")
        settings = None if session_settings is None else coerce_session_settings(session_settings)
        super().__init__(session_id, _stores[path], session_settings=settings)

    def close(self) -> None:
        pass


for module in (agents, agents.memory, agents.memory.sqlite_session):
    module.SQLiteSession = Replaced  # type: ignore[attr-defined]
