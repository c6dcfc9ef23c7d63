"""What the environment decides, read in one place."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from types import ModuleType

from ctxkit.errors import MissingExtraError

__all__ = ["cache_dir", "data_dir", "default_store", "default_tenant", "require"]


def default_store() -> str:
    """The store's address: `$CTXKIT_STORE`, else a SQLite file under the working folder."""
    return os.environ.get("CTXKIT_STORE") or "sqlite:///.ctxkit/store.db"


def default_tenant() -> str:
    """The tenant: `$CTXKIT_TENANT`, else `default`."""
    return os.environ.get("CTXKIT_TENANT") or "default"


def cache_dir() -> Path:
    """Where models and indexes that can be rebuilt are kept: `$CTXKIT_CACHE`, else the user's cache folder."""
    if configured := os.environ.get("CTXKIT_CACHE"):
        return Path(configured)
    import platformdirs

    return Path(platformdirs.user_cache_dir("ctxkit"))


def data_dir() -> Path | None:
    """The evaluation data (`$CTXKIT_DATA`, default `../shared/data`), or None where there is none."""
    path = Path(os.environ.get("CTXKIT_DATA") or "../shared/data")
    return path if path.is_dir() else None


def require(module: str, *, extra: str, subject: str = "") -> ModuleType:
    """Import an optional dependency when a stage first needs it; `MissingExtraError` names the extra to install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or module.split(".")[0] != error.name.split(".")[0]:
            raise
        raise MissingExtraError(module.split(".")[0], extra=extra, subject=subject) from error
