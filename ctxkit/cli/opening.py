"""How commands open what they work on: the store that the options or the environment name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ctxkit.engine import ContextEngine
    from ctxkit.storage import Store

__all__ = ["open_engine", "open_store"]


def open_store(store: str | None, tenant: str | None, *, create: bool = False, keys: bool = False) -> Store:
    """The store alone; with the `keys` of the environment where sessions are read or written."""
    from ctxkit.settings import default_store, default_tenant
    from ctxkit.storage import Encryption, Store

    return Store.open(
        default_store() if store is None else store,
        tenant=default_tenant() if tenant is None else tenant,
        create=create,
        encryption=Encryption.from_environment() if keys else None,
    )


def open_engine(
    store: str | None,
    tenant: str | None,
    *,
    create: bool = False,
    keys: bool = False,
    embedder: str | None = None,
    **parts: Any,
) -> ContextEngine:
    """An engine on the store; without an embedder where a command looks for nothing by meaning."""
    from ctxkit.engine import ContextEngine
    from ctxkit.storage import Encryption

    encryption = Encryption.from_environment() if keys else None
    return ContextEngine.open(store, tenant=tenant, create=create, encryption=encryption, embedder=embedder, **parts)
