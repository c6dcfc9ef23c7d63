"""Derived indexes follow the store: other processes' writes, deletions, damaged and foreign copies, tenants."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxkit.documents import Document, Query
from ctxkit.embedding.files import read_arrays, write_arrays
from ctxkit.errors import ConfigError, EmbeddingError
from ctxkit.retrieval import Dense, Hybrid, Lexical, derived
from ctxkit.storage import Store
from ctxkit.testing import HashEmbedder
from tests.retrieval.filling import fill, put

EMBEDDER = HashEmbedder(64)
TEXTS = [f"note {number} about {topic}" for number, topic in enumerate(["keys", "tea", "bananas", "rain"] * 3)]

Make = Callable[[Store], Lexical | Dense | Hybrid]
MAKERS: list[Make] = [Lexical, lambda store: Dense(store, EMBEDDER), lambda store: Hybrid(store, EMBEDDER)]
retrievers = pytest.mark.parametrize("make", MAKERS, ids=["lexical", "dense", "hybrid"])


def ids(retriever: Lexical | Dense | Hybrid, text: str, k: int = 5, **filters: object) -> list[str]:
    query = Query(text, filters=filters, tenant=retriever.store.tenant)
    return [candidate.chunk.document_id for candidate in retriever.retrieve(query, k)]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CTXKIT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def filled(store: Store) -> Store:
    fill(store, TEXTS, embedder=EMBEDDER)
    return store


@pytest.fixture
def files(sqlite_url: str) -> Iterator[Store]:
    """A filled store in a SQLite file: the one whose copies lie beside it."""
    with Store.open(sqlite_url) as opened:
        fill(opened, TEXTS, embedder=EMBEDDER)
        yield opened


def copies(store: Store) -> list[Path]:
    assert store.path is not None
    return sorted(store.path.with_name(f"{store.path.name}.index").glob("*"))


@retrievers
def test_additions_are_seen_at_once(filled: Store, make: Make) -> None:
    retriever = make(filled)
    assert "new0" not in ids(retriever, "a zebra crossing")
    fill(filled, ["a zebra crossing"], embedder=EMBEDDER, prefix="new")
    assert ids(retriever, "a zebra crossing")[0] == "new0"


@retrievers
def test_deleted_documents_vanish(filled: Store, make: Make) -> None:
    retriever = make(filled)
    assert ids(retriever, TEXTS[4])[0] == "d4"
    filled.documents.delete(["d4"])
    assert "d4" not in ids(retriever, TEXTS[4], 100)


@retrievers
def test_a_changed_document_is_found_by_its_new_text_alone(filled: Store, make: Make) -> None:
    retriever = make(filled)
    assert ids(retriever, TEXTS[4])[0] == "d4"
    put(filled, Document(id="d4", text="quarks and gluons", source="d4.md"), embedder=EMBEDDER)
    (best, *_) = retriever.retrieve(Query("quarks and gluons"), 3)
    assert (best.chunk.document_id, best.text) == ("d4", "quarks and gluons")
    assert all(candidate.text != TEXTS[4] for candidate in retriever.retrieve(Query(TEXTS[4]), 100))


_ANOTHER_PROCESS = """
import sys
from ctxkit.retrieval import Hybrid
from ctxkit.documents import Query
from ctxkit.storage import Store
from ctxkit.testing import HashEmbedder
from tests.retrieval.filling import fill
with Store.open(sys.argv[1]) as store:
    fill(store, ["a zebra crossing", "an ocean liner"], embedder=HashEmbedder(64), prefix="other")
    store.documents.delete(["d0"])
    print(Hybrid(store, HashEmbedder(64)).retrieve(Query("zebra"), 1)[0].chunk.document_id)
"""


@retrievers
def test_another_process_writes_and_this_one_sees_it(filled: Store, store_url: str, make: Make) -> None:
    retriever = make(filled)
    assert ids(retriever, TEXTS[0])[0] == "d0"
    done = subprocess.run(
        [sys.executable, "-c", _ANOTHER_PROCESS, store_url],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert done.stdout.strip() == "other0", done.stderr
    assert ids(retriever, "a zebra crossing")[0] == "other0"
    assert "d0" not in ids(retriever, TEXTS[0], 100)


@retrievers
def test_a_new_retriever_answers_like_the_one_that_wrote_the_copy(files: Store, make: Make) -> None:
    first = make(files)
    answers = [first.retrieve(Query(text), 5) for text in TEXTS]
    assert copies(files)
    second = make(files)
    assert [second.retrieve(Query(text), 5) for text in TEXTS] == answers


def test_the_copy_saves_reading_the_texts(files: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ids(Hybrid(files, EMBEDDER), "keys")
    read: list[int] = []
    texts, vectors = files.documents.index_texts, files.documents.vectors
    monkeypatch.setattr(files.documents, "index_texts", lambda keys: read.extend(keys) or texts(keys))
    monkeypatch.setattr(files.documents, "vectors", lambda name, keys=None: read.extend(keys) or vectors(name, keys))
    fresh = Hybrid(files, EMBEDDER)
    assert ids(fresh, "keys")
    assert read == []
    fill(files, ["one more"], embedder=EMBEDDER, prefix="more")
    assert ids(fresh, "one more")[0] == "more0"
    assert read == [files.documents.keys()[-1]] * 2


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A filled store in a SQLite file, for examples that leave its documents alone."""
    with Store.open(f"sqlite:///{tmp_path_factory.mktemp('damaged') / 'store.db'}") as opened:
        fill(opened, TEXTS, embedder=EMBEDDER)
        yield opened


@pytest.mark.parametrize("make", MAKERS[:2], ids=["lexical", "dense"])
@settings(max_examples=100)
@given(data=st.data())
def test_a_damaged_copy_is_built_anew(undamaged: Store, make: Make, data: st.DataObject) -> None:
    retriever = make(undamaged)
    answers = retriever.retrieve(Query("note about tea"), 5)
    path = retriever.index.path
    whole = path.read_bytes()
    content = bytearray(whole)
    kind = data.draw(st.sampled_from(["cut", "flip", "empty", "text"]))
    if kind == "cut":
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    elif kind == "flip":
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    else:
        content = bytearray(b"" if kind == "empty" else b"not an index")
    path.write_bytes(content)
    assert make(undamaged).retrieve(Query("note about tea"), 5) == answers
    if kind != "flip":
        assert read_arrays(path) is not None
    path.write_bytes(whole)


@pytest.mark.parametrize("field", ["store", "tenant", "recipe", "kind", "revision", None])
def test_a_copy_of_another_store_tenant_recipe_or_future_is_not_used(files: Store, field: str | None) -> None:
    """The copy says that no chunk holds any word; whoever believes it finds nothing."""
    assert ids(Lexical(files), "tea")
    (path,) = copies(files)
    content = read_arrays(path)
    assert content is not None
    arrays, header = content
    arrays["counts"] = np.zeros_like(arrays["counts"])
    if field is not None:
        header[field] = "999999" if field == "revision" else "another"
    write_arrays(path, arrays, header)
    assert bool(ids(Lexical(files), "tea")) is (field is not None)


@pytest.mark.parametrize("missing", ["known", "keys", "rows"])
def test_a_copy_without_some_part_is_built_anew(files: Store, missing: str) -> None:
    answers = ids(Lexical(files), "tea")
    (path,) = copies(files)
    content = read_arrays(path)
    assert content is not None
    arrays, header = content
    del arrays[missing]
    write_arrays(path, arrays, header)
    assert ids(Lexical(files), "tea") == answers


def test_a_database_made_anew_at_the_same_path_has_its_own_index(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    for topic in ("keys", "tea"):
        with Store.open(url) as store:
            fill(store, [f"all about {topic}"], embedder=EMBEDDER)
            found = Hybrid(store, EMBEDDER).retrieve(Query(f"about {topic}"), 5)
            assert [candidate.text for candidate in found] == [f"all about {topic}"]
            assert found[0].scores["lexical"] > 0
        for left in tmp_path.glob("store.db*"):
            if left.is_file():
                left.unlink()


@retrievers
def test_tenants_never_meet(filled: Store, make: Make) -> None:
    other = filled.for_tenant("../other tenant/ü")
    fill(other, ["a secret about keys"], embedder=EMBEDDER, prefix="secret")
    mine, theirs = make(filled), make(other)
    for _ in range(2):
        assert not [found for found in ids(mine, "a secret about keys", 100) if found.startswith("secret")]
        assert set(ids(theirs, "note about keys", 100)) == {"secret0"}
    with pytest.raises(ConfigError, match="tenant"):
        theirs.retrieve(Query("keys"), 5)
    with pytest.raises(ConfigError, match="tenant"):
        mine.retrieve(Query("keys", tenant="../other tenant/ü"), 5)


def test_tenants_have_files_of_their_own_inside_the_folder(files: Store) -> None:
    names = ["default", "DEFAULT", "../escape", "a/b", "ü", "x" * 100]
    paths = set()
    for name in names:
        tenant = files.for_tenant(name)
        fill(tenant, [f"of {name}"], embedder=EMBEDDER)
        assert ids(Lexical(tenant), f"of {name}")
        paths.add(Lexical(tenant).index.path)
    assert len(paths) == len(names)
    assert {path.parent for path in paths if path} == {copies(files)[0].parent}


def test_a_store_in_memory_leaves_nothing_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Store.open("sqlite://") as store:
        fill(store, TEXTS, embedder=EMBEDDER)
        assert ids(Hybrid(store, EMBEDDER), "tea")
    assert list(tmp_path.rglob("*.npz")) == []


@pytest.mark.postgres
def test_beside_postgresql_the_copy_is_in_the_cache_folder(postgres_url: str, tmp_path: Path) -> None:
    with Store.open(postgres_url) as store:
        fill(store, TEXTS, embedder=EMBEDDER)
        assert ids(Hybrid(store, EMBEDDER), "tea")
        assert {path.parent.name for path in (tmp_path / "cache").rglob("*.npz")} == {store.id}


def test_a_folder_that_cannot_be_written_costs_only_time(files: Store) -> None:
    assert files.path is not None
    files.path.with_name(f"{files.path.name}.index").write_text("a file where the folder should be")
    assert ids(Hybrid(files, EMBEDDER), TEXTS[2])[0] == "d2"
    assert ids(Hybrid(files, EMBEDDER), TEXTS[2])[0] == "d2"


def test_one_document_more_does_not_rewrite_the_copy(files: Store) -> None:
    retriever = Lexical(files)
    ids(retriever, "tea")
    (path,) = copies(files)
    before = path.read_bytes()
    fill(files, ["one more"], embedder=EMBEDDER, prefix="more")
    assert ids(retriever, "one more")[0] == "more0"
    assert path.read_bytes() == before
    fill(files, ["and some", "more of", "them"], embedder=EMBEDDER, prefix="others")
    assert ids(retriever, "them")[0] == "others2"
    assert path.read_bytes() != before
    assert ids(Lexical(files), "them")[0] == "others2"


def test_an_error_half_way_leaves_work_and_not_a_lie(files: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    retriever = Lexical(files)
    ids(retriever, "tea")
    fill(files, ["a zebra crossing"], embedder=EMBEDDER, prefix="new")
    with monkeypatch.context() as broken:

        def fail(keys: object) -> object:
            raise OSError("the disk is gone")

        broken.setattr(files.documents, "index_texts", fail)
        with pytest.raises(OSError, match="gone"):
            ids(retriever, "zebra")
    assert ids(retriever, "zebra") == ["new0"]


def test_chunks_of_another_embedder_are_named(filled: Store) -> None:
    for retriever in (Dense(filled, HashEmbedder(32)), Hybrid(filled, HashEmbedder(32))):
        with pytest.raises(EmbeddingError, match=r"hash-32.*Ingest again"):
            retriever.retrieve(Query("tea"), 5)


def test_some_chunks_of_another_embedder_are_found_by_words(filled: Store) -> None:
    put(filled, Document(id="plain", text="a zebra crossing", source="plain.md"))
    (found,) = [each for each in Hybrid(filled, EMBEDDER).retrieve(Query("zebra"), 20) if each.scores["lexical"]]
    assert found.chunk.document_id == "plain"
    assert found.scores["dense"] == 0


def test_threads_search_while_documents_come_and_go(files: Store) -> None:
    retriever = Hybrid(files, EMBEDDER)
    failures: list[BaseException] = []
    stop = threading.Event()

    def search() -> None:
        try:
            while not stop.is_set():
                for candidate in retriever.retrieve(Query("note about tea"), 5):
                    assert 0 <= candidate.score <= 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for round_number in range(10):
        fill(files, ["tea and more tea", "keys"], embedder=EMBEDDER, prefix=f"r{round_number}-")
        files.documents.delete([f"r{round_number}-1"])
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(ids(retriever, "tea and more tea", 100)) >= 1


def test_processes_that_build_at_once_all_answer(files: Store) -> None:
    """Several first starts at the same time: each writes the copy, none reads half of one."""
    code = (
        "import sys\nfrom ctxkit.retrieval import Hybrid\nfrom ctxkit.documents import Query\n"
        "from ctxkit.storage import Store\nfrom ctxkit.testing import HashEmbedder\n"
        "with Store.open(sys.argv[1]) as store:\n"
        "    print([c.chunk.document_id for c in Hybrid(store, HashEmbedder(64)).retrieve(Query('note 6'), 1)])"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code, files.url], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    outputs = [process.communicate()[0].strip() for process in started]
    assert outputs == ["['d6']"] * 3
    assert ids(Hybrid(files, EMBEDDER), "note 6", 1) == ["d6"]
    assert not [path for path in copies(files) if path.suffix == ".tmp"]


def test_the_path_is_beside_the_store(files: Store) -> None:
    path = derived.index_path(files, "lexical", "recipe")
    assert path is not None
    assert files.path is not None
    assert path.parent == files.path.with_name(f"{files.path.name}.index")
