"""Where an ingest leaves what it found out of each chunk's sentences, so that no question embeds them again.

A SQLite file beside the store, one row a chunk. It is derived: without it, or where a row is missing, damaged, of
another text, embedder or counter, compression finds the same out itself, in more time.
"""

from __future__ import annotations

import hashlib
import io
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctxkit.checking import check_kind, check_whole
from ctxkit.compression.counting import counting
from ctxkit.compression.records import Record, context_of, embed_records, make_record, recounted
from ctxkit.compression.units import Unit
from ctxkit.documents import Candidate, Chunk, Span
from ctxkit.errors import EmbeddingError, StorageError
from ctxkit.protocols import Embedder, TokenCounter
from ctxkit.stage_inputs import check_ids

__all__ = ["SentenceStore"]

_VERSION = "3"
"""To be raised with every change of what a record says of the same text: sentences, words, names."""
_SUM = 16
"""Bytes of the checksum before each row: what a disk or another program changed is not read as if it were ours."""
_AT_ONCE = 500
_FAILURES = (sqlite3.Error, OSError, UnicodeDecodeError)
"""What a damaged file raises; the last where even the schema is no text."""
_FIELDS = ("tokens", "terms", "rows", "inside", "names", "name_rows", "leans", "figures", "alone", "blank", "vectors")


class SentenceStore:
    """The sentences of chunks with their tokens, words and vectors, in memory and, with a path, on disk.

    In memory are those that were used last. A vector takes two bytes a component on disk, four in memory. Safe to use
    from several threads and processes; closing is not needed.

    Args:
        path: of the file; None keeps everything in memory.
        memory: chunks that are held in memory.

    Example:
        >>> len(SentenceStore())
        0
    """

    def __init__(self, path: Path | None = None, *, memory: int = 4_096) -> None:
        if path is not None:
            check_kind(path, (str, Path), "path", remedy="Give the path of a file, or None.")
        check_whole(memory, "memory", minimum=1)
        self.path = None if path is None else Path(path)
        self.memory = memory
        self._lock = threading.Lock()
        self._held: OrderedDict[tuple[str, str], tuple[Chunk, str, Record]] = OrderedDict()

    def __len__(self) -> int:
        """Chunks on disk, or in memory where there is no file."""
        if self.path is None:
            return len(self._held)
        if not self.path.exists():
            return 0
        return int(self._read("select count(*) from sentences")[0][0])

    def find(self, items: Sequence[Candidate], counter: TokenCounter, embedder: Embedder | None) -> list[Record | None]:
        """What is known of each candidate; None where nothing is, or where a stage has compressed it before."""
        maker = _maker(embedder)
        found: list[Record | None] = [None] * len(items)
        missing: dict[str, list[int]] = {}
        with self._lock:
            for at, item in enumerate(items):
                if item.kept is not None:
                    continue
                held = self._held.get((item.chunk.id, maker))
                if held is not None and _same(held[0], held[1], item):
                    self._held.move_to_end((item.chunk.id, maker))
                    found[at] = self._counted(held[2], item, counter)
                else:
                    missing.setdefault(item.chunk.id, []).append(at)
        if missing and self.path is not None and self.path.exists():
            for identifier, digest, content in self._rows(list(missing), maker):
                for at in missing[identifier]:
                    if digest == _digest(items[at]):
                        record = _unpacked(content, items[at])
                        if record is not None:
                            found[at] = record = self._counted(record, items[at], counter)
                            self._hold(items[at], maker, record)
        return found

    def prepare(self, chunks: Iterable[Chunk], counter: TokenCounter, embedder: Embedder | None) -> int:
        """Find out and keep what is not known of these chunks; returns how many were new.

        Raises `EmbeddingError` where the embedder fails, `StorageError` where the file cannot be written.
        """
        check_kind(chunks, Iterable, "chunks", remedy="Give a list of Chunk.")
        given = list(chunks)
        for chunk in given:
            check_kind(chunk, Chunk, "a chunk", remedy="Give a list of Chunk.")
        items = [Candidate(chunk) for chunk in given]
        counter = counting(counter)
        known = self.find(items, counter, embedder)
        new = [item for item, record in zip(items, known, strict=True) if record is None]
        records = [make_record(item, counter) for item in new]
        if embedder is not None:
            vectors = embed_records(records, embedder)
            records = [replace(record, vectors=found) for record, found in zip(records, vectors, strict=True)]
        maker = _maker(embedder)
        for item, record in zip(new, records, strict=True):
            self._hold(item, maker, record)
        if self.path is not None and new:
            rows = [
                (item.chunk.id, maker, item.chunk.document_id, _digest(item), _packed(record))
                for item, record in zip(new, records, strict=True)
            ]
            self._write("insert or replace into sentences values (?, ?, ?, ?, ?)", rows)
        return len(new)

    def forget(self, document_ids: Collection[str]) -> None:
        """Drop everything of these documents."""
        check_ids(document_ids, "document ids")
        gone = set(document_ids)
        with self._lock:
            for key in [key for key, (chunk, _, _) in self._held.items() if chunk.document_id in gone]:
                del self._held[key]
        if self.path is not None and self.path.exists() and gone:
            self._write("delete from sentences where document = ?", [(one,) for one in sorted(gone)])

    def documents(self) -> set[str]:
        """The ids of the documents of which something is known."""
        if self.path is None or not self.path.exists():
            return {chunk.document_id for chunk, _, _ in self._held.values()}
        return {str(row[0]) for row in self._read("select distinct document from sentences")}

    @staticmethod
    def _counted(record: Record, item: Candidate, counter: TokenCounter) -> Record:
        return record if record.counter == counter.name else recounted(record, item, counter)

    def _hold(self, item: Candidate, maker: str, record: Record) -> None:
        with self._lock:
            self._held[item.chunk.id, maker] = (item.chunk, record.context, record)
            self._held.move_to_end((item.chunk.id, maker))
            while len(self._held) > self.memory:
                self._held.popitem(last=False)

    def _rows(self, identifiers: Sequence[str], maker: str) -> list[tuple[str, str, bytes]]:
        try:
            with closing(self._open()) as base:
                rows: list[tuple[str, str, bytes]] = []
                for start in range(0, len(identifiers), _AT_ONCE):
                    some = identifiers[start : start + _AT_ONCE]
                    marks = ",".join("?" * len(some))
                    sql = f"select chunk, digest, content from sentences where maker = ? and chunk in ({marks})"  # noqa: S608
                    rows.extend(base.execute(sql, (maker, *some)))
                wanted = set(identifiers)  # a damaged index may give others
                return [row for row in rows if row[0] in wanted]
        except (*_FAILURES, StorageError):
            return []  # derived: what cannot be read is found out again

    def _read(self, sql: str) -> list[tuple[Any, ...]]:
        try:
            with closing(self._open()) as base:
                return base.execute(sql).fetchall()
        except _FAILURES as error:
            raise StorageError(
                f"the sentences cannot be read: {error}",
                subject=str(self.path),
                remedy="Delete the file: it is made again.",
            ) from error

    def _write(self, sql: str, rows: Sequence[tuple[Any, ...]]) -> None:
        try:
            with closing(self._open()) as base, base:
                base.executemany(sql, rows)
        except _FAILURES as error:
            raise StorageError(
                f"the sentences cannot be kept: {error}",
                subject=str(self.path),
                remedy="Delete the file: it is made again. Check that its folder can be written.",
            ) from error

    def _open(self) -> sqlite3.Connection:
        path = self.path
        if path is None:
            raise StorageError("these sentences are in memory only", remedy="Give SentenceStore a path.")
        base: sqlite3.Connection | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            base = sqlite3.connect(path, timeout=30)
            base.execute("pragma journal_mode = wal")
            base.execute(
                "create table if not exists sentences (chunk text, maker text, document text, digest text, "
                "content blob, primary key (chunk, maker)) without rowid"
            )
            base.execute("create index if not exists sentences_document on sentences (document)")
        except _FAILURES as error:
            if base is not None:
                base.close()
            raise StorageError(
                f"the sentences cannot be opened: {error}",
                subject=str(path),
                remedy="Delete the file: it is made again. Check that its folder can be written.",
            ) from error
        return base


def _maker(embedder: Embedder | None) -> str:
    """Names what a record depends on beside the text and the counter."""
    fingerprint = "-" if embedder is None else getattr(embedder, "fingerprint", None)
    if not isinstance(fingerprint, str):
        raise EmbeddingError(
            f"the embedder's fingerprint is {fingerprint!r:.60}",
            subject=type(embedder).__name__,
            remedy="Give it an attribute fingerprint, a str that names its weights: vectors are kept under it.",
        )
    return f"{_VERSION} {fingerprint}"


def _same(chunk: Chunk, context: str, item: Candidate) -> bool:
    other = item.chunk
    return chunk is other or (chunk.span == other.span and chunk.text == other.text and context == context_of(item))


def _digest(item: Candidate) -> str:
    text = f"{context_of(item)}\0{item.chunk.text}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def _packed(record: Record) -> bytes:
    rows = [
        (
            unit.span.start,
            unit.span.end,
            2 * unit.heading + unit.header,
            -1 if unit.under is None else unit.under,
            *((unit.needs[0], len(unit.needs)) if unit.needs else (-1, 0)),
        )
        for unit in record.units
    ]
    arrays: dict[str, NDArray[Any]] = {name: getattr(record, name) for name in _FIELDS if name != "vectors"}
    arrays["units"] = np.array(rows, dtype=np.int64).reshape(-1, 6)
    arrays["total"] = np.array([record.total])
    arrays["counter"] = np.frombuffer(record.counter.encode("utf-8", "surrogatepass"), dtype=np.uint8)
    if record.vectors is not None:
        arrays["vectors"] = record.vectors.astype(np.float16)
    stream = io.BytesIO()
    for name, array in arrays.items():
        head = f"{name} {array.dtype.str} {','.join(map(str, array.shape))}\n".encode("ascii")
        stream.write(head)
        stream.write(np.ascontiguousarray(array).tobytes())
    content = stream.getvalue()
    return _checksum(content) + content


def _checksum(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_SUM).digest()


def _unpacked(row: object, item: Candidate) -> Record | None:
    """The record, or None where the bytes are not one, or not those that were written."""
    if not isinstance(row, bytes) or row[:_SUM] != _checksum(row[_SUM:]):
        return None
    content = row[_SUM:]
    arrays: dict[str, NDArray[Any]] = {}
    position = 0
    try:
        while position < len(content):
            end = content.index(b"\n", position)
            name, kind, sizes = content[position:end].decode("ascii").split(" ")
            shape = tuple(map(int, sizes.split(",")))
            dtype = np.dtype(kind)
            count = int(np.prod(shape))
            arrays[name] = np.frombuffer(content, dtype=dtype, count=count, offset=end + 1).reshape(shape)
            position = end + 1 + count * dtype.itemsize
        chunk = item.chunk
        offset = chunk.span.start
        units = tuple(
            Unit(
                Span(start, stop),
                chunk.text[start - offset : stop - offset],
                header=bool(flags & 1),
                heading=bool(flags & 2),
                needs=tuple(range(first, first + needed)) if needed else (),
                under=None if under < 0 else under,
            )
            for start, stop, flags, under, first, needed in arrays["units"].tolist()
        )
        return Record(
            units=units,
            context=context_of(item),
            counter=arrays["counter"].tobytes().decode("utf-8", "surrogatepass"),
            total=int(arrays["total"][0]),
            vectors=arrays["vectors"].astype(np.float32) if "vectors" in arrays else None,
            **{name: arrays[name] for name in _FIELDS if name != "vectors"},
        )
    except (ValueError, KeyError, TypeError, IndexError):
        return None
