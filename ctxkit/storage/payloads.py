"""Payloads: the values an application fills a template with, kept apart from it and immutable by their hash."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from sqlalchemy import bindparam, cast, literal_column
from sqlalchemy.dialects import postgresql

from ctxkit.documents import content_hash
from ctxkit.errors import ConfigError, NotFoundError
from ctxkit.storage import tables
from ctxkit.storage.checks import checked_plain_name, checked_text, decoded, encoded
from ctxkit.storage.clock import moment, now
from ctxkit.storage.database import Database
from ctxkit.storage.records import PayloadInfo, PayloadVersion
from ctxkit.storage.tenancy import Scope

__all__ = ["Payloads", "contains"]

_DIGITS = re.compile(r"[0-9a-f]{8,64}\Z")
_HASH = re.compile(rf"sha256:({_DIGITS.pattern})")
_NUMBERED = re.compile(r"(?P<key>.*)@(?P<version>[1-9][0-9]{0,8})\Z", re.DOTALL)


class Payloads:
    """The payloads of one tenant: `store.payloads`. `by` and `message` say who put one, and why."""

    def __init__(self, database: Database, tenant: str) -> None:
        self._database = database
        self._tenant = tenant

    def put(self, key: str, payload: Mapping[str, Any], *, message: str = "", by: str = "") -> PayloadVersion:
        """Store a payload as the next version of a key, and point the key at it.

        Versions count from 1 without gaps. A content that the key has already is the version it was, and the key
        points at that one again. Whatever a key pointed at before stays, under its number and its hash, so that a
        prompt can be replayed (law 6).

        Raises:
            StorageError: the payload is not JSON, or a text in it holds NUL or a lone surrogate; the path is named.
            ConfigError: the payload is no mapping, or the key would be read as a reference.
        """
        checked_plain_name(key, "the payload's key")
        if _NUMBERED.match(key) or key.startswith("sha256:"):
            raise ConfigError(
                "the key looks like a reference to a payload",
                subject=key[:100],
                remedy="A key neither ends with @ and a number nor begins with sha256:.",
            )
        what = f"the payload {key[:60]!r}"
        if not isinstance(payload, Mapping):
            raise ConfigError(f"{what} is a {type(payload).__name__}", remedy="Give a mapping of names to values.")
        checked_text(by, "who it is by")
        checked_text(message, "the message")
        content = encoded(payload, what)
        plain = decoded(content)
        digest = content_hash(plain)
        contents, keys, versions = tables.payloads, tables.payload_keys, tables.payload_versions

        def work(scope: Scope) -> PayloadVersion:
            moved = now()
            scope.insert_missing(contents, {"hash": digest, "created_at": moved, "content": content})
            mine = keys.c.key == key
            head = {"key": key, "hash": digest, "updated_at": moved, "version": 0, "last_version": 0}
            scope.insert_missing(keys, head)
            # From here to the commit nobody else puts under this key.
            last = int(scope.first(scope.locked(scope.select(keys.c.last_version).where(mine)))[0])
            row = scope.first(scope.select(versions).where(versions.c.key == key, versions.c.hash == digest))
            if row is None:
                version = PayloadVersion(key, last + 1, digest, plain, moment(moved), message, by, is_new=True)
                fields = {"key": key, "version": last + 1, "hash": digest, "author": by, "message": message}
                scope.insert(versions, [{**fields, "created_at": moved}])
                last += 1
            else:
                version = _version(row, plain)
            changes = {"hash": digest, "updated_at": moved, "version": version.version, "last_version": last}
            scope.execute(scope.update(keys).where(mine).values(**changes))
            return version

        return self._database.write(self._tenant, work)

    def get(self, key: str | None = None, version: int | None = None, *, hash: str | None = None) -> dict[str, Any]:  # noqa: A002
        """The payload that a key points at, a numbered version of it, or the payload of a hash.

        Raises `NotFoundError`.
        """
        if (key is None) == (hash is None) or (version is not None and key is None):
            raise ConfigError("name a payload by its key or by its hash", remedy="Give one of the two.")
        wanted = checked_text(key if key is not None else str(hash), "the payload's name")
        found = self._database.read(
            self._tenant,
            lambda scope: _by_key(scope, wanted, version) if key is not None else _by_hash(scope, wanted),
        )
        return dict(found.content)

    def resolve(self, reference: str) -> PayloadVersion:
        """The payload that a reference names: `key`, `key@3`, or `sha256:…` (8 hex digits or more).

        Raises:
            NotFoundError: there is no such payload, or several begin so.
        """
        checked_text(reference, "the reference to a payload")

        def work(scope: Scope) -> PayloadVersion:
            if found := _HASH.match(reference):
                return _by_hash(scope, found[1])
            if found := _NUMBERED.match(reference):
                return _by_key(scope, found["key"], int(found["version"]))
            return _by_key(scope, reference, None)

        return self._database.read(self._tenant, work)

    def versions(self, key: str) -> list[PayloadVersion]:
        """The versions of a key, oldest first. Raises `NotFoundError` for a key that does not exist."""
        checked_text(key, "the payload's key")
        contents, versions = tables.payloads, tables.payload_versions
        joined = versions.join(
            contents, (contents.c.tenant == versions.c.tenant) & (contents.c.hash == versions.c.hash)
        )

        def work(scope: Scope) -> Any:
            statement = scope.select(versions, contents.c.content, source=joined).where(versions.c.key == key)
            found = scope.all(statement.order_by(versions.c.version))
            if not found:
                raise _missing(scope, key)
            return [_version(row, decoded(row.content)) for row in found]

        return self._database.read(self._tenant, work)

    def search(self, part: Mapping[str, Any], *, limit: int = 100) -> list[PayloadVersion]:
        """The payloads that contain `part`, by the rules of PostgreSQL's `@>`: see `contains`. Ordered by hash.

        PostgreSQL asks its GIN index where row-level security lets it (see docs/concepts/storage.md); SQLite looks
        through the tenant's payloads.

        Example:
            >>> from ctxkit.storage import Store
            >>> with Store.open("sqlite://") as store:
            ...     put = store.payloads.put("brand", {"tone": "brief", "tags": ["a", "b"]})
            ...     [found.hash == put.hash for found in store.payloads.search({"tags": ["b"]})]
            [True]
        """
        if not isinstance(part, Mapping) or limit < 1:
            raise ConfigError("a search needs a mapping and a limit", subject=repr(part)[:60], remedy="Give both.")
        wanted = encoded(part, "what is searched for")
        table = tables.payloads

        def work(scope: Scope) -> list[PayloadVersion]:
            if scope.kind == "postgresql":
                column: Any = literal_column("payloads.content_index")
                statement = scope.select(table).where(
                    column.op("@>")(cast(bindparam(None, wanted, unique=True), postgresql.JSONB))
                )
                found = scope.all(statement.order_by(table.c.hash).limit(limit))
            else:
                right, found = exact(wanted), []
                for row in scope.execute(scope.select(table).order_by(table.c.hash)):
                    if contains(exact(row.content), right):
                        found.append(row)
                        if len(found) == limit:
                            break
            return [PayloadVersion("", 0, row.hash, decoded(row.content), moment(row.created_at)) for row in found]

        return self._database.read(self._tenant, work)

    def list(self) -> list[PayloadInfo]:
        """The keys by name, with the version each points at."""
        keys = tables.payload_keys

        def work(scope: Scope) -> list[PayloadInfo]:
            return [
                PayloadInfo(row.key, row.version, row.last_version, row.hash, moment(row.updated_at))
                for row in scope.all(scope.select(keys).order_by(keys.c.key))
            ]

        return self._database.read(self._tenant, work)

    # Async twins: the work is the database's, so each runs in a thread.

    async def aput(self, key: str, payload: Mapping[str, Any], **options: Any) -> PayloadVersion:
        return await asyncio.to_thread(self.put, key, payload, **options)

    async def aget(self, key: str | None = None, version: int | None = None, **options: Any) -> dict[str, Any]:
        return await asyncio.to_thread(self.get, key, version, **options)

    async def aresolve(self, reference: str) -> PayloadVersion:
        return await asyncio.to_thread(self.resolve, reference)

    async def aversions(self, key: str) -> Any:
        return await asyncio.to_thread(self.versions, key)

    async def asearch(self, part: Mapping[str, Any], **options: Any) -> Any:
        return await asyncio.to_thread(self.search, part, **options)

    async def alist(self) -> Any:
        return await asyncio.to_thread(self.list)


def contains(left: Any, right: Any) -> bool:
    """Whether a JSON value contains another: `left @> right` of PostgreSQL's JSONB.

    An object contains one whose fields are all in it; a list one whose items are each in one of its items, whatever
    their order and number; a number an equal one. Both values as `exact` reads them.
    """
    if isinstance(left, dict) and isinstance(right, dict):
        return all(name in left and contains(left[name], value) for name, value in right.items())
    if isinstance(left, list) and isinstance(right, list):
        return all(any(contains(item, value) for item in left) for value in right)
    return type(left) is type(right) and not isinstance(left, dict | list) and bool(left == right)


def exact(text: str) -> Any:
    """A JSON text with its numbers as decimals, which are compared as PostgreSQL compares them."""
    return decoded(text, number=Decimal)


def _by_key(scope: Scope, key: str, version: int | None) -> PayloadVersion:
    contents, keys, versions = tables.payloads, tables.payload_keys, tables.payload_versions
    joined = versions.join(contents, (contents.c.tenant == versions.c.tenant) & (contents.c.hash == versions.c.hash))
    if version is None:
        joined = joined.join(
            keys,
            (keys.c.tenant == versions.c.tenant)
            & (keys.c.key == versions.c.key)
            & (keys.c.version == versions.c.version),
        )
    statement = scope.select(versions, contents.c.content, source=joined).where(versions.c.key == key)
    row = scope.first(statement if version is None else statement.where(versions.c.version == version))
    if row is None:
        raise _missing(scope, key, version)
    return _version(row, decoded(row.content))


def _by_hash(scope: Scope, prefix: str) -> PayloadVersion:
    table = tables.payloads
    rows: Sequence[Any] = ()
    if _DIGITS.match(prefix):
        # Hexadecimal digits sort below the letter g.
        rows = scope.all(scope.select(table).where(table.c.hash >= prefix, table.c.hash < f"{prefix}g").limit(2))
    if len(rows) == 1:
        return PayloadVersion("", 0, rows[0].hash, decoded(rows[0].content), moment(rows[0].created_at))
    raise NotFoundError(
        "several payloads have a hash that begins so" if rows else "there is no such payload",
        subject=f"sha256:{prefix}",
        remedy="Give more digits of the hash." if rows else "Store it with `payloads.put` first.",
    )


def _missing(scope: Scope, key: str, version: int | None = None) -> NotFoundError:
    keys = tables.payload_keys
    row = scope.first(scope.select(keys.c.last_version).where(keys.c.key == key))
    if row is not None:
        return NotFoundError(
            f"the payload has no version {version}", subject=key, remedy=f"It has versions 1 to {row[0]}."
        )
    names = [found[0] for found in scope.all(scope.select(keys.c.key).order_by(keys.c.key).limit(10))]
    known = f"Known: {', '.join(names)}." if names else "There are none yet: put one."
    return NotFoundError("there is no such payload", subject=key, remedy=known)


def _version(row: Any, content: Any) -> PayloadVersion:
    return PayloadVersion(row.key, row.version, row.hash, content, moment(row.created_at), row.message, row.author)
