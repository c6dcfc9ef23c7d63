"""Payloads: the values an application fills a template with, kept apart from it and immutable by their hash."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ctxkit.documents import content_hash
from ctxkit.errors import ConfigError, NotFoundError
from ctxkit.storage import tables
from ctxkit.storage.checks import checked_name, checked_text, decoded, encoded
from ctxkit.storage.clock import now
from ctxkit.storage.database import Database
from ctxkit.storage.tenancy import Scope

__all__ = ["Payloads"]


class Payloads:
    """The payloads of one tenant: `store.payloads`."""

    def __init__(self, database: Database, tenant: str) -> None:
        self._database = database
        self._tenant = tenant

    def put(self, key: str, payload: Mapping[str, Any]) -> str:
        """Store a payload, point `key` at it, and give its hash: SHA-256 of its canonical JSON.

        A payload that a key pointed at before stays, under its hash, so that a prompt can be replayed (law 6).

        Raises:
            StorageError: the payload is not JSON, or a text in it holds NUL or a lone surrogate; the path is named.
        """
        checked_name(key, "the payload's key")
        what = f"the payload {key[:60]!r}"
        if not isinstance(payload, Mapping):
            raise ConfigError(f"{what} is a {type(payload).__name__}", remedy="Give a mapping of names to values.")
        content = encoded(payload, what)
        digest = content_hash(decoded(content))

        def work(scope: Scope) -> str:
            scope.insert_missing(tables.payloads, {"hash": digest, "created_at": now(), "content": content})
            moved = now()
            scope.upsert(
                tables.payload_keys, {"key": key, "hash": digest, "updated_at": moved}, hash=digest, updated_at=moved
            )
            return digest

        return self._database.write(self._tenant, work)

    def get(self, key: str | None = None, *, hash: str | None = None) -> dict[str, Any]:  # noqa: A002
        """The payload that a key points at, or the one of a hash. Raises `NotFoundError`."""
        if (key is None) == (hash is None):
            raise ConfigError("name a payload by its key or by its hash", remedy="Give one of the two.")
        wanted = checked_text(key if key is not None else str(hash), "the payload's name")
        contents, keys = tables.payloads, tables.payload_keys

        def work(scope: Scope) -> Any:
            if key is None:
                return scope.first(scope.select(contents.c.content).where(contents.c.hash == wanted))
            joined = keys.join(contents, (keys.c.tenant == contents.c.tenant) & (keys.c.hash == contents.c.hash))
            return scope.first(scope.select(contents.c.content, source=joined).where(keys.c.key == wanted))

        row = self._database.read(self._tenant, work)
        if row is None:
            raise NotFoundError(
                "there is no such payload", subject=wanted, remedy="Store it with `payloads.put` first."
            )
        found: dict[str, Any] = decoded(row.content)
        return found
