"""The store: one database, seen by one tenant."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from ctxkit.checking import check_kind
from ctxkit.errors import StorageError
from ctxkit.storage.checks import checked_name
from ctxkit.storage.database import Database
from ctxkit.storage.documents import Documents
from ctxkit.storage.encryption import Encryption
from ctxkit.storage.experiments import ExperimentRecords
from ctxkit.storage.graph import Graph
from ctxkit.storage.health import problems, statistics
from ctxkit.storage.payloads import Payloads
from ctxkit.storage.runs import Runs
from ctxkit.storage.sessions import Sessions
from ctxkit.storage.templates import Templates

__all__ = ["Store"]

TENANT_LIMIT = 128


class Store:
    """Documents, sessions, templates and payloads of one tenant, in SQLite or PostgreSQL.

    Safe to use from several threads, and several processes may open the same store; each write is one transaction.

    Example:
        >>> with Store.open("sqlite://") as store:
        ...     store.kind, store.documents.list()
        ('sqlite', [])
    """

    def __init__(self, database: Database, tenant: str, *, owner: bool, encryption: Encryption | None = None) -> None:
        self._database = database
        self._owner = owner
        self._encryption = encryption
        self.tenant = checked_name(tenant, "the tenant", limit=TENANT_LIMIT)
        self.documents = Documents(database, tenant)
        self.graph = Graph(database, tenant)
        self.sessions = Sessions(database, tenant, encryption)
        self.templates = Templates(database, tenant)
        self.payloads = Payloads(database, tenant)
        self.runs = Runs(database, tenant)
        self.experiments = ExperimentRecords(database, tenant)

    @classmethod
    def open(
        cls, url: str, *, tenant: str = "default", create: bool = True, encryption: Encryption | None = None
    ) -> Store:
        """Open the store at an address, and bring its schema up to date.

        Args:
            url: `sqlite:///notes.db` (a path relative to the working folder), `sqlite:////absolute/notes.db`,
                `sqlite://` (in memory) or `postgresql+psycopg://user@host/database`.
            tenant: whose data it is; tenants never see each other's (law 10).
            create: make the store, and the folders above its file, where there is none.
            encryption: the keys that the messages of sessions are encrypted with; nothing else is encrypted.

        Raises:
            StoreFormatError: the address holds something that is not a store.
            StoreVersionError: a newer ctxkit wrote the store.
            MissingExtraError: the PostgreSQL driver is not installed.
            StorageError: the address is wrong, or the database cannot be reached, created or written.
        """
        checked_name(tenant, "the tenant", limit=TENANT_LIMIT)
        if encryption is not None:
            remedy = "Give Encryption.of(key), from ctxkit.storage."
            check_kind(encryption, Encryption, "encryption", remedy=remedy)
        return cls(Database(url, create=create), tenant, owner=True, encryption=encryption)

    @property
    def url(self) -> str:
        """The address it was opened with, its password included."""
        return self._database.url

    @property
    def kind(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._database.kind

    @property
    def id(self) -> str:
        """A UUID made with the store: the same for all its tenants, another one for another store."""
        return self._database.id

    @property
    def path(self) -> Path | None:
        """The SQLite file, None for PostgreSQL and for a store in memory."""
        return self._database.path

    def for_tenant(self, name: str) -> Store:
        """The same store seen by another tenant. It shares the connections; closing the opened store closes both."""
        return Store(self._database, name, owner=False, encryption=self._encryption)

    def statistics(self) -> dict[str, Any]:
        """Counts of this tenant's rows by table, `embeddings` by fingerprint, `revision`, `schema`, `kind`, and the
        `bytes` of the whole store.
        """
        return self._database.read(self.tenant, lambda scope: statistics(scope, self.path))

    def check(self) -> list[str]:
        """What is wrong with the store, a line each with its remedy; empty for a sound one."""
        return self._database.read(self.tenant, lambda scope: list(problems(scope)))

    def close(self) -> None:
        """Give the connections back. Closing twice, or a `for_tenant` view, does nothing."""
        if self._owner:
            self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({self._database.shown!r}, tenant={self.tenant!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.kind == "sqlite" and self.path is None:
            raise StorageError("a store in memory cannot be sent to another process", remedy="Use a file.")
        if self._encryption is not None:
            raise StorageError(
                "a store with keys is not sent to another process", remedy="Open it there with its encryption."
            )
        return (_reopen, (self.url, self.tenant))


def _reopen(url: str, tenant: str) -> Store:
    return Store.open(url, tenant=tenant, create=False)
