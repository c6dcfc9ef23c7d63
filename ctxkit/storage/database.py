"""Opens a database by its address, and runs work on it in transactions that wait for others instead of failing."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, StaticPool, create_engine, event, make_url, select
from sqlalchemy.exc import ArgumentError, DBAPIError

from ctxkit.errors import StorageError, StoreFormatError
from ctxkit.settings import require
from ctxkit.storage.failures import is_contention, translated
from ctxkit.storage.migrate import bring_up_to_date, is_current
from ctxkit.storage.tables import stores
from ctxkit.storage.tenancy import Scope

__all__ = ["Database"]

T = TypeVar("T")

LOCK_TIMEOUT = 30.0
"""Seconds that one attempt waits for another writer's lock, and after which no further attempt is made."""

_WRITE = "ctxkit_write"


class Database:
    """One database that is a ctxkit store, open for all its tenants.

    Args:
        url: `sqlite:///file`, `sqlite://` (in memory, of this object alone) or `postgresql+psycopg://…`.
        create: make the store where there is none yet.

    Raises:
        StoreFormatError: there is something else at the address.
        StoreVersionError: a newer ctxkit wrote the store.
        MissingExtraError: the PostgreSQL driver is not installed.
        StorageError: the address is wrong, or nothing can be reached or created there.
    """

    def __init__(self, url: str, *, create: bool = True) -> None:
        self.url = url
        parsed = _parse(url)
        self.shown = parsed.render_as_string(hide_password=True)
        self.kind = parsed.get_backend_name()
        self.path: Path | None = None
        if self.kind == "sqlite" and parsed.database not in (None, "", ":memory:"):
            self.path = Path(str(parsed.database)).absolute()
        self._closed = False
        self._process = os.getpid()
        self._memory_lock = threading.RLock()
        self._engine = self._make_engine(parsed, create)
        try:
            self._open(create)
        except BaseException:
            self._engine.dispose()
            raise

    def _make_engine(self, url: URL, create: bool) -> Engine:
        if self.kind == "postgresql":
            require("psycopg", extra="postgres", subject=self.shown)
            with translated(self.shown):
                return create_engine(url.set(drivername="postgresql+psycopg"), pool_pre_ping=True)
        if self.path is not None:
            _check_file(self.path, self.shown, create)
            engine = create_engine(
                url.set(drivername="sqlite", database=str(self.path)), connect_args={"timeout": LOCK_TIMEOUT}
            )
        else:
            engine = create_engine(
                "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False, "timeout": LOCK_TIMEOUT}
            )
        event.listen(engine, "connect", _configure_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine

    def _open(self, create: bool) -> None:
        if not self._attempt(lambda connection: is_current(connection, self.shown, create=create)):
            if self.path is not None:
                self._use_write_ahead_log()
            self._attempt(lambda connection: bring_up_to_date(connection, self.shown, create=create), write=True)
        self.id = str(self._attempt(lambda connection: connection.execute(select(stores.c.id)).scalar_one()))

    def _use_write_ahead_log(self) -> None:
        # Readers and one writer then work side by side. The mode is a property of the file, and changing it does not
        # wait for a lock by itself, so two processes that create a store at once meet here.
        deadline = time.monotonic() + LOCK_TIMEOUT
        while True:
            try:
                with translated(self.shown), self._engine.connect() as connection:
                    raw: Any = connection.connection.dbapi_connection
                    raw.execute("PRAGMA journal_mode = WAL")
                return
            except Exception as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(random.uniform(0.01, 0.05))

    def read(self, tenant: str, work: Callable[[Scope], T]) -> T:
        """Run `work` in a transaction that sees one state of the database."""
        return self._attempt(lambda connection: work(Scope(connection, tenant, LOCK_TIMEOUT)))

    def write(self, tenant: str, work: Callable[[Scope], T]) -> T:
        """Run `work` in a transaction that commits whole or not at all.

        `work` may run again, from the start, when another writer was in the way: it must have no effect but on the
        database.
        """
        return self._attempt(lambda connection: work(Scope(connection, tenant, LOCK_TIMEOUT)), write=True)

    def _attempt(self, work: Callable[[Connection], T], *, write: bool = False) -> T:
        deadline = time.monotonic() + LOCK_TIMEOUT
        pause = 0.01
        with translated(self.shown):
            while True:
                try:
                    with self._transaction(write) as connection:
                        return work(connection)
                except DBAPIError as error:
                    if not is_contention(error) or time.monotonic() > deadline:
                        raise
                    time.sleep(random.uniform(0, pause))
                    pause = min(2 * pause, 0.5)

    @contextmanager
    def _transaction(self, write: bool) -> Iterator[Connection]:
        if self._closed:
            raise StorageError("the store is closed", subject=self.shown, remedy="Open it again with Store.open.")
        if self._process != os.getpid():
            # A forked child must not talk on its parent's sockets, nor close them.
            self._engine.dispose(close=False)
            self._process = os.getpid()
        in_memory = self.kind == "sqlite" and self.path is None
        if in_memory:
            self._memory_lock.acquire()
        try:
            with self._engine.connect() as connection:
                if write:
                    connection = connection.execution_options(**{_WRITE: True})
                elif self.kind == "postgresql":
                    # Else each statement of a read would see another state; it never fails where nothing is written.
                    connection = connection.execution_options(isolation_level="REPEATABLE READ")
                with connection.begin():
                    yield connection
        finally:
            if in_memory:
                self._memory_lock.release()

    @contextmanager
    def own_connection(self) -> Iterator[Any]:
        """The driver's own connection, taken out of the pool and closed at the end."""
        with translated(self.shown):
            connection = self._engine.connect()
            try:
                connection.detach()
                yield connection.connection.driver_connection
            finally:
                connection.close()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._engine.dispose()


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError, AttributeError) as error:
        raise StorageError(
            "this is not a database address",
            subject=str(url),
            remedy="Use sqlite:///FILE or postgresql+psycopg://USER:PASSWORD@HOST/DATABASE.",
        ) from error
    driver = parsed.drivername
    if driver == "postgres":
        parsed = parsed.set(drivername="postgresql")
    elif driver not in ("sqlite", "sqlite+pysqlite", "postgresql", "postgresql+psycopg"):
        raise StorageError(
            f"the driver {driver!r} is not supported",
            subject=parsed.render_as_string(hide_password=True),
            remedy="Use sqlite:///FILE or postgresql+psycopg://USER:PASSWORD@HOST/DATABASE.",
        )
    if parsed.get_backend_name() == "sqlite" and (parsed.host or parsed.query or "\x00" in (parsed.database or "")):
        raise StorageError(
            "a SQLite address is a path alone",
            subject=parsed.render_as_string(hide_password=True),
            remedy="Use sqlite:///relative/file.db or sqlite:////absolute/file.db (mind the slashes).",
        )
    return parsed


def _check_file(path: Path, subject: str, create: bool) -> None:
    try:
        if path.is_dir():
            raise StorageError("this is a folder", subject=subject, remedy="Name a file in it, such as store.db.")
        if path.exists():
            with path.open("rb") as file:
                head = file.read(16)
            # An empty file is a store whose maker was killed before its first commit.
            if head and head != b"SQLite format 3\x00":
                raise StoreFormatError(
                    "the file is not a SQLite database", subject=subject, remedy="Give the address of a ctxkit store."
                )
        elif not create:
            raise StorageError(
                "there is no store here",
                subject=subject,
                remedy="Check the address, or make one: ctxkit ingest PATH, or create=True.",
            )
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"the store's file cannot be used ({error.strerror or error})",
            subject=subject,
            remedy="Check that its folder exists and that you may write there.",
        ) from error


def _configure_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # transactions begin where `_begin_sqlite` says, not where the driver guesses
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")  # a committed message survives a power cut too


def _begin_sqlite(connection: Connection) -> None:
    # A writer takes the lock at once: a reader that became a writer could only fail when somebody else wrote first.
    write = connection.get_execution_options().get(_WRITE)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
