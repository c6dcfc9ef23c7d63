"""What an ingest prepares is what compression finds out itself, whatever becomes of the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ctxkit.compression import SentenceCompressor, SentenceStore
from ctxkit.compression.records import make_record
from ctxkit.compression.sentence_store import _packed, _unpacked
from ctxkit.documents import Query
from ctxkit.errors import StorageError
from ctxkit.testing import HashEmbedder
from ctxkit.testing.stages import make_candidates
from ctxkit.tokens import get_counter
from tests.strategies import texts

COUNTER = get_counter()
GIVEN = make_candidates(
    [
        "# Keys\n\nThe signing key is rotated every month. He wrote it down. Bananas are yellow.\n",
        "| name | days |\n|---|---|\n| signing | 30 |\n| vault | 7 |\n",
    ]
    * 4,
    metadata=[{"title": f"Book {number}"} for number in range(8)],
)
QUERY = Query("When is the signing key of book 3 rotated?")


class Counting(HashEmbedder):
    """Counts the texts that it embeds."""

    embedded = 0

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        type(self).embedded += len(texts)
        return super().embed(texts)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sentences.db"


def prepared(path: Path | None) -> SentenceStore:
    store = SentenceStore(path)
    store.prepare([one.chunk for one in GIVEN], COUNTER, Counting())
    return store


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_a_question_embeds_only_itself(path: Path, where: str) -> None:
    stores = prepared(None) if where == "memory" else SentenceStore(prepared(path).path)
    Counting.embedded = 0
    stage = SentenceCompressor(ratio=3, embedder=Counting(), sentences=stores)
    result = stage(QUERY, GIVEN)
    assert Counting.embedded == 1
    assert result == SentenceCompressor(ratio=3, embedder=Counting())(QUERY, GIVEN)


@given(st.lists(texts, min_size=1, max_size=3), st.integers(5, 60))
def test_prepared_or_not_the_choice_is_the_same(items: list[str], target: int) -> None:
    given_ = make_candidates(items)
    store = SentenceStore()
    store.prepare([one.chunk for one in given_], COUNTER, HashEmbedder(16))
    plain = SentenceCompressor(target=target, embedder=HashEmbedder(16))
    assert replace(plain, sentences=store)(QUERY, given_) == plain(QUERY, given_)


def test_another_counter_counts_again_and_embeds_nothing(path: Path) -> None:
    prepared(path)
    Counting.embedded = 0
    counter = get_counter("cl100k_base")
    stage = SentenceCompressor(ratio=3, embedder=Counting(), counter=counter, sentences=SentenceStore(path))
    assert stage(QUERY, GIVEN) == replace(stage, sentences=None)(QUERY, GIVEN)
    assert Counting.embedded - 1 <= 1 + 2 * sum(len(one.text) for one in GIVEN)


def test_what_changed_is_found_out_again(path: Path) -> None:
    store = prepared(path)
    changed = make_candidates([one.text[::-1] for one in GIVEN])
    records = store.find(changed, COUNTER, Counting())
    assert records == [None] * len(changed)
    assert store.find([GIVEN[0].keeping([GIVEN[0].chunk.span])], COUNTER, Counting()) == [None], "compressed before"


def test_nothing_stays_of_what_is_forgotten(path: Path) -> None:
    store = prepared(path)
    assert len(store) == len(GIVEN)
    store.forget([GIVEN[0].chunk.document_id])
    assert len(store) == len(GIVEN) - 1
    assert GIVEN[0].chunk.document_id not in store.documents()
    assert store.find(GIVEN[:1], COUNTER, Counting()) == [None]


@pytest.mark.parametrize("damage", ["rubbish", "rows", "gone"])
def test_a_damaged_file_costs_time_and_no_answer(path: Path, damage: str) -> None:
    store = prepared(path)
    if damage == "rubbish":
        path.write_bytes(b"no database at all" * 100)
    elif damage == "gone":
        path.unlink()
    else:
        store._write("update sentences set content = substr(content, 1, 40) where chunk <> ?", [("",)])
    stage = SentenceCompressor(ratio=3, embedder=Counting(), sentences=SentenceStore(path))
    assert stage(QUERY, GIVEN) == SentenceCompressor(ratio=3, embedder=Counting())(QUERY, GIVEN)


def _changed(path: Path, at: int) -> None:
    """One byte of each row another, wherever it stands."""
    with closing(sqlite3.connect(path)) as base, base:
        for chunk, content in base.execute("select chunk, content from sentences").fetchall():
            changed = bytearray(content)
            changed[at % len(changed)] ^= 0x15
            base.execute("update sentences set content = ? where chunk = ?", (bytes(changed), chunk))


@given(at=st.integers(0, 5_000))
def test_a_row_with_one_wrong_byte_is_not_read(at: int) -> None:
    record = make_record(GIVEN[at % len(GIVEN)], COUNTER)
    written = bytearray(_packed(record))
    written[at % len(written)] ^= 0x15
    assert _unpacked(bytes(written), GIVEN[at % len(GIVEN)]) is None


@pytest.mark.parametrize("content", [None, "text", 7, b""])
def test_what_is_no_row_is_not_read(path: Path, content: object) -> None:
    prepared(path)._write("update sentences set content = ?", [(content,)])
    assert SentenceStore(path).find(GIVEN, COUNTER, Counting()) == [None] * len(GIVEN)


@pytest.mark.parametrize("at", [20, 60, 300, 900])
def test_changed_bytes_cost_time_and_no_answer(path: Path, at: int) -> None:
    prepared(path)
    _changed(path, at)
    store = SentenceStore(path)
    stage = SentenceCompressor(ratio=3, embedder=Counting(), sentences=store)
    assert stage(QUERY, GIVEN) == SentenceCompressor(ratio=3, embedder=Counting())(QUERY, GIVEN)
    assert store.prepare([one.chunk for one in GIVEN], COUNTER, Counting()) == len(GIVEN), "written again"
    assert None not in SentenceStore(path).find(GIVEN, COUNTER, Counting())


@pytest.mark.parametrize("table", ["sentences (chunk text, document text)", "other (x int)"])
def test_a_file_of_another_program(path: Path, table: str) -> None:
    with closing(sqlite3.connect(path)) as base, base:
        base.execute(f"create table {table}")
        base.execute("create table pages (x int)")
    store = SentenceStore(path)
    assert store.find(GIVEN, COUNTER, Counting()) == [None] * len(GIVEN)
    if table.startswith("sentences"):
        with pytest.raises(StorageError):
            store.prepare([one.chunk for one in GIVEN], COUNTER, Counting())


def test_pages_that_cannot_be_read_are_an_error_of_ours(path: Path) -> None:
    prepared(path)
    with closing(sqlite3.connect(path)) as base:
        base.execute("pragma wal_checkpoint(truncate)")
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    with pytest.raises(StorageError, match="sentences"):
        SentenceStore(path).documents()
    with pytest.raises(StorageError, match="sentences"):
        len(SentenceStore(path))


def test_a_schema_that_is_no_text_is_an_error_of_ours(path: Path) -> None:
    prepared(path)
    with closing(sqlite3.connect(path)) as base:
        base.execute("pragma wal_checkpoint(truncate)")
    path.write_bytes(
        path.read_bytes().replace(b"document text", b"docu\xc9\xff\xfet text").replace(b"maker", b"mak\xffr")
    )
    store = SentenceStore(path)
    assert store.find(GIVEN, COUNTER, Counting()) == [None] * len(GIVEN)
    with pytest.raises(StorageError):
        store.prepare([one.chunk for one in GIVEN], COUNTER, Counting())
    with pytest.raises(StorageError):
        store.forget(["a document"])


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("a file")
    with pytest.raises(StorageError, match="sentences"):
        prepared(tmp_path / "folder" / "sentences.db")
