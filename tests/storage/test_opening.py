"""Opening a store: making it, finding it again, and refusing everything else with a remedy."""

from __future__ import annotations

import os
import pickle
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctxkit.errors import MissingExtraError, StorageError, StoreFormatError, StoreVersionError
from ctxkit.storage import Store
from tests.storage.making import Workers, document, pieces


class TestMaking:
    def test_a_new_store_is_empty_and_sound(self, store: Store) -> None:
        assert store.documents.list() == []
        assert store.documents.revision() == 0
        assert store.documents.keys().tolist() == []
        assert store.sessions.list() == []
        assert store.templates.list() == []
        assert store.check() == []

    def test_what_it_says_of_itself(self, store: Store, store_url: str) -> None:
        assert store.url == store_url
        assert store.kind == ("sqlite" if store_url.startswith("sqlite") else "postgresql")
        assert store.tenant == "default"
        assert (store.path is not None and store.path.is_file()) == (store.kind == "sqlite")
        assert len(store.id) == 36

    def test_it_is_there_when_opened_again(self, store_url: str) -> None:
        with Store.open(store_url) as store:
            store.documents.put(document(), pieces(document()), recipe="r")
            made = store.id
        with Store.open(store_url, create=False) as store:
            assert store.id == made
            assert store.documents.get(document().id) == document()

    def test_two_stores_have_two_ids(self, new_store_url: Callable[[], str]) -> None:
        with Store.open(new_store_url()) as one, Store.open(new_store_url()) as other:
            assert one.id != other.id

    def test_folders_above_the_file_are_made(self, tmp_path: Path) -> None:
        with Store.open(f"sqlite:///{tmp_path}/deep/er/store.db") as store:
            assert store.path == tmp_path / "deep" / "er" / "store.db"

    def test_a_relative_path_and_odd_names(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        for name in ("a.db", "with space.db", "猫.db", "100%.db", "a#b.db"):
            with Store.open(f"sqlite:///{name}") as store:
                assert store.path == tmp_path / name
                assert (tmp_path / name).exists()
            monkeypatch.chdir("/")
            assert store.path == tmp_path / name, "it is absolute: the working folder may change"
            monkeypatch.chdir(tmp_path)

    def test_a_file_without_content_becomes_a_store(self, tmp_path: Path) -> None:
        (tmp_path / "store.db").touch()
        with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
            assert store.check() == []

    def test_in_memory_and_of_one_object_alone(self) -> None:
        with Store.open("sqlite://") as one, Store.open("sqlite:///:memory:") as other:
            one.documents.put(document(), pieces(document()), recipe="r")
            assert len(one.documents.list()) == 1
            assert other.documents.list() == []
            assert one.path is None

    def test_writers_and_readers_work_side_by_side(self, sqlite_url: str) -> None:
        with Store.open(sqlite_url) as store:
            assert sqlite3.connect(str(store.path)).execute("PRAGMA journal_mode").fetchone() == ("wal",)

    @pytest.mark.postgres
    def test_the_short_address_of_postgresql(self, postgres_url: str) -> None:
        for scheme in ("postgresql", "postgres"):
            with Store.open(postgres_url.replace("postgresql+psycopg", scheme)) as store:
                assert store.kind == "postgresql"

    @pytest.mark.postgres
    def test_a_schema_of_its_own_beside_others(self, postgresql: Any) -> None:
        name = postgresql.create()
        postgresql.execute("CREATE TABLE public.accounts (id int)", database=name)
        postgresql.execute(f"CREATE SCHEMA mine AUTHORIZATION {postgresql.ROLE}", database=name)
        url = postgresql.url(name)
        try:
            with pytest.raises(StoreFormatError, match="accounts"):
                Store.open(url)
            with Store.open(url + "&options=-csearch_path%3Dmine,public") as store:
                store.documents.put(document(), pieces(document()), recipe="r")
                assert store.check() == []
        finally:
            postgresql.drop(name)


class TestManyProcesses:
    def test_processes_that_open_at_once_make_one_store(
        self, new_store_url: Callable[[], str], workers: Workers
    ) -> None:
        code = """
            go()
            with Store.open(url) as store:
                print(store.id, store.documents.revision())
        """
        for _ in range(5):
            assert len(set(workers.together(code, url=new_store_url()))) == 1

    def test_a_process_killed_before_its_first_commit(self, store_url: str) -> None:
        code = """
            import os, signal, sys
            from alembic import command
            from ctxkit.storage import Store
            upgrade = command.upgrade
            def killed(*arguments):
                upgrade(*arguments)
                os.kill(os.getpid(), signal.SIGKILL)
            command.upgrade = killed
            Store.open(sys.argv[1])
        """
        done = subprocess.run([sys.executable, "-c", "if True:" + code, store_url], capture_output=True, text=True)
        assert done.returncode == -9, done.stderr
        with pytest.raises(StorageError, match="no store here"):
            Store.open(store_url, create=False)
        with Store.open(store_url) as store:
            assert store.check() == []

    def test_threads_share_a_store(self, store: Store) -> None:
        errors: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for turn in range(5):
                    mine = document(f"text {number} {turn}", source=f"{number}/{turn}")
                    store.documents.put(mine, pieces(mine), recipe="r")
                    assert store.documents.get(mine.id) == mine
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        assert len(store.documents.list()) == store.documents.revision() == 30
        assert store.check() == []

    def test_threads_share_a_store_in_memory(self) -> None:
        with Store.open("sqlite://") as store:
            self.test_threads_share_a_store(store)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_a_forked_child_uses_the_store(self, store: Store) -> None:
        store.documents.put(document(), pieces(document()), recipe="r")
        child = os.fork()
        if child == 0:
            try:
                mine = document("the child's", source="child")
                store.documents.put(mine, pieces(mine), recipe="r")
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert len(store.documents.list()) == 2

    def test_a_store_goes_to_another_process_by_its_address(self, store: Store) -> None:
        view = store.for_tenant("acme")
        with pickle.loads(pickle.dumps(view)) as again:
            assert (again.id, again.tenant) == (store.id, "acme")

    def test_a_store_in_memory_does_not(self) -> None:
        with Store.open("sqlite://") as store, pytest.raises(StorageError, match="in memory"):
            pickle.dumps(store)


class TestClosing:
    def test_a_closed_store_says_so(self, store_url: str) -> None:
        store = Store.open(store_url)
        view = store.for_tenant("acme")
        view.close()
        assert store.documents.list() == [], "a view does not close what it shares"
        store.close()
        store.close()
        for each in (store, view):
            with pytest.raises(StorageError, match="closed"):
                each.documents.list()

    def test_the_password_is_not_shown(self) -> None:
        with pytest.raises(StorageError) as caught:
            Store.open("postgresql+psycopg://me:s3cret@127.0.0.1:1/x?connect_timeout=2")
        assert "s3cret" not in str(caught.value)
        assert "127.0.0.1:1" in str(caught.value)


class TestNotAStore:
    def test_a_text_file(self, tmp_path: Path) -> None:
        file = tmp_path / "notes.txt"
        file.write_text("These are my notes, and they are longer than a header.")
        with pytest.raises(StoreFormatError, match="not a SQLite database"):
            Store.open(f"sqlite:///{file}")
        assert file.read_text().startswith("These are my notes")
        assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]

    def test_a_file_that_begins_like_a_database(self, tmp_path: Path) -> None:
        (tmp_path / "x.db").write_bytes(b"SQLite format 3\x00" + b"nonsense" * 500)
        with pytest.raises(StoreFormatError):
            Store.open(f"sqlite:///{tmp_path}/x.db")

    def test_somebody_elses_sqlite_database_is_not_touched(self, tmp_path: Path) -> None:
        file = tmp_path / "other.db"
        connection = sqlite3.connect(file)
        connection.execute("CREATE TABLE accounts (id)")
        connection.commit()
        connection.close()
        before = file.read_bytes()
        with pytest.raises(StoreFormatError, match="accounts"):
            Store.open(f"sqlite:///{file}")
        assert file.read_bytes() == before
        assert [path.name for path in tmp_path.iterdir()] == ["other.db"]

    @pytest.mark.postgres
    def test_somebody_elses_postgresql_database(self, postgresql: Any) -> None:
        name = postgresql.create()
        try:
            postgresql.execute("CREATE VIEW accounts AS SELECT 1 AS id", database=name)
            with pytest.raises(StoreFormatError, match="accounts"):
                Store.open(postgresql.url(name))
        finally:
            postgresql.drop(name)

    def test_a_damaged_store(self, tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path}/x.db"
        with Store.open(url) as store:
            for number in range(50):
                mine = document("word " * 200, source=str(number))
                store.documents.put(mine, pieces(mine, 100), recipe="r")
        file = tmp_path / "x.db"
        content = bytearray(file.read_bytes())
        content[4096 * 10 : 4096 * 60] = b"\xff" * (4096 * 50)
        file.write_bytes(content)

        def read_everything() -> None:
            with Store.open(url) as store:
                for info in store.documents.list():
                    store.documents.get(info.id)

        with pytest.raises(StorageError) as caught:
            read_everything()
        assert caught.value.remedy

    def test_a_newer_store(self, store_url: str) -> None:
        with Store.open(store_url) as store:
            from sqlalchemy import text

            with store._database._engine.begin() as connection:
                connection.execute(text("UPDATE ctxkit_version SET version_num = '9999'"))
        with pytest.raises(StoreVersionError, match="9999") as caught:
            Store.open(store_url)
        assert "pip install --upgrade" in caught.value.remedy


class TestNothingThere:
    def test_a_missing_file_is_not_made_unasked(self, tmp_path: Path) -> None:
        with pytest.raises(StorageError, match="no store here") as caught:
            Store.open(f"sqlite:///{tmp_path}/none/x.db", create=False)
        assert "create=True" in caught.value.remedy
        assert list(tmp_path.iterdir()) == []

    def test_an_empty_database_is_not_filled_unasked(self, store_url: str) -> None:
        with pytest.raises(StorageError, match="no store here"):
            Store.open(store_url, create=False)

    def test_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(StorageError, match="folder"):
            Store.open(f"sqlite:///{tmp_path}")

    def test_a_file_among_the_folders(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        with pytest.raises(StorageError, match="cannot be used"):
            Store.open(f"sqlite:///{tmp_path}/file/x.db")

    @pytest.mark.parametrize("existing", [False, True])
    def test_a_folder_without_the_right_to_write(self, tmp_path: Path, existing: bool) -> None:
        # Root may write everywhere, so another user tries.
        url = f"sqlite:///{tmp_path}/x.db"
        if existing:
            Store.open(url).close()
        tmp_path.chmod(0o555)
        for parent in tmp_path.parents:
            if str(parent).startswith("/tmp/"):
                parent.chmod(parent.stat().st_mode | 0o111)
        code = """
            import os, sys
            from ctxkit.errors import StorageError
            from ctxkit.storage import Store
            Store.open("sqlite://").close()  # imports everything, while it may still be read
            if os.getuid() == 0:
                os.setuid(65534)
            try:
                store = Store.open(sys.argv[1])
                store.sessions.delete("x")
            except StorageError as error:
                print(error.remedy)
        """
        try:
            done = subprocess.run([sys.executable, "-c", "if True:" + code, url], capture_output=True, text=True)
        finally:
            tmp_path.chmod(0o755)
        assert "you may write there" in done.stdout, done.stderr

    def test_a_server_that_is_not_there(self) -> None:
        with pytest.raises(StorageError, match="cannot be reached") as caught:
            Store.open("postgresql+psycopg://127.0.0.1:1/x?connect_timeout=2")
        assert "server" in caught.value.remedy

    @pytest.mark.postgres
    def test_a_database_that_is_not_there(self, postgresql: Any) -> None:
        with pytest.raises(StorageError, match="does not exist"):
            Store.open(postgresql.url("no_such_database"))

    @pytest.mark.postgres
    def test_a_server_without_pgvector_enabled(self, postgresql: Any) -> None:
        name = postgresql.create(template="template1")
        try:
            with pytest.raises(StorageError, match="pgvector") as caught:
                Store.open(postgresql.url(name))
            assert "CREATE EXTENSION vector" in caught.value.remedy
            postgresql.execute("CREATE EXTENSION vector", database=name)
            Store.open(postgresql.url(name)).close()
        finally:
            postgresql.drop(name)

    def test_without_the_driver(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "psycopg", None)
        with pytest.raises(MissingExtraError) as caught:
            Store.open("postgresql+psycopg://127.0.0.1/x")
        assert caught.value.extra == "postgres"

    @pytest.mark.parametrize(
        "url",
        [
            "",
            "notes.db",
            "/abs/notes.db",
            "mysql://h/x",
            "postgresql+asyncpg://h/x",
            "sqlite+aiosqlite:///x.db",
            "nonsense://",
            "://",
            "sqlite://notes.db",
            "sqlite:///x.db?mode=ro",
            "postgresql://h:port/x",
            "sqlite:///\x00",
            None,
            Path("x.db"),
        ],
    )
    def test_not_an_address(self, url: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(StorageError) as caught:
            Store.open(url)
        assert caught.value.remedy
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("tenant", ["", "a\x00b", "\ud800", "x" * 129, None, 7])
    def test_not_a_tenant(self, tenant: Any) -> None:
        with pytest.raises(StorageError):
            Store.open("sqlite://", tenant=tenant)
        with Store.open("sqlite://") as store, pytest.raises(StorageError):
            store.for_tenant(tenant)


def test_the_store_survives_being_copied_while_closed(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/a.db") as store:
        store.documents.put(document(), pieces(document()), recipe="r")
    shutil.copy(tmp_path / "a.db", tmp_path / "b.db")
    with Store.open(f"sqlite:///{tmp_path}/b.db") as copy:
        assert copy.documents.get(document().id) == document()
