"""The store: documents, dialogues, templates and payloads of many tenants, on SQLite or PostgreSQL.

with Store.open("sqlite:///notes.db") as store:
    store.documents.put(document, chunks, recipe="recursive-256")

The names load on first use, so that importing ctxkit does not import SQLAlchemy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ctxkit.storage.checks import parse_json
from ctxkit.storage.records import (
    ANY,
    DocumentInfo,
    DocumentState,
    LabelMove,
    PayloadInfo,
    PayloadVersion,
    RunInfo,
    TemplateEvent,
    TemplateInfo,
    TemplateMatch,
    TemplateVersion,
    index_text,
)
from ctxkit.storage.session_records import Keep, Retained, SessionInfo, SessionMatch

if TYPE_CHECKING:
    from ctxkit.storage.documents import Documents
    from ctxkit.storage.encryption import Encryption
    from ctxkit.storage.payloads import Payloads
    from ctxkit.storage.runs import Runs
    from ctxkit.storage.sessions import Sessions
    from ctxkit.storage.store import Store
    from ctxkit.storage.templates import Templates

__all__ = [
    "ANY",
    "DocumentInfo",
    "DocumentState",
    "Documents",
    "Encryption",
    "Keep",
    "LabelMove",
    "PayloadInfo",
    "PayloadVersion",
    "Payloads",
    "Retained",
    "RunInfo",
    "Runs",
    "SessionInfo",
    "SessionMatch",
    "Sessions",
    "Store",
    "TemplateEvent",
    "TemplateInfo",
    "TemplateMatch",
    "TemplateVersion",
    "Templates",
    "index_text",
    "parse_json",
]

_HOMES = {
    "Documents": "documents",
    "Encryption": "encryption",
    "Payloads": "payloads",
    "Runs": "runs",
    "Sessions": "sessions",
    "Store": "store",
    "Templates": "templates",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"ctxkit.storage.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
