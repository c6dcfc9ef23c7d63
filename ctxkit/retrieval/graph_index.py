"""The graph of chunks and names in memory, following the store."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ctxkit.graph.entity_graph import EntityGraph
from ctxkit.graph.names import normalise
from ctxkit.retrieval.derived import DerivedIndex
from ctxkit.retrieval.name_graph import NOT_NAMES, NameGraph, Pairs, entity_pairs, matches
from ctxkit.retrieval.phrases import hashed, name_phrases

if TYPE_CHECKING:
    from ctxkit.documents import Chunk
    from ctxkit.storage import Store

__all__ = ["GraphIndex"]

Keys = NDArray[np.int64]

_BATCH = 1_000
_LONGEST_SUBJECT = 80
"""Characters; a longer title is a sentence, and no text repeats it."""

_SPEAKER = re.compile(r"\s*([^\W\d_][\w .'’-]{0,40}):\s")

_COLUMNS = {
    "chunk_key": np.int64,
    "chunk_document": np.uint64,
    "chunk_start": np.int64,
    "phrase_key": np.int64,
    "phrase_hash": np.uint64,
    "subject_key": np.int64,
    "subject_name": np.str_,
}


class GraphIndex(DerivedIndex):
    """What the chunks of a tenant hold that a graph needs: where they stand, what may be a name, what they are about.

    Which phrases are names, only the store's entity graph says. While it has none, no text is read and there is no
    graph. Memory: about a kilobyte for a chunk of 200 words.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store, kind="graph", recipe="names-1")
        self._columns = _empty()
        self._unread: Keys = np.zeros(0, dtype=np.int64)
        self._graph: NameGraph | None = None
        self._stale = True

    def graph(self) -> NameGraph | None:
        """The graph as of now; None where no stored document names an entity."""
        with self.current():
            if self._stale:
                self._graph = self._built()
                self._stale = False
            return self._graph

    def clear(self) -> None:
        self._columns, self._graph, self._stale = _empty(), None, True
        self._unread = np.zeros(0, dtype=np.int64)

    def add(self, keys: Keys) -> None:
        self._stale = True
        self._unread = np.union1d(self._unread, keys)
        if self.store.graph.exists():
            self._read()

    def remove(self, keys: Keys) -> None:
        self._stale = True
        self._unread = np.setdiff1d(self._unread, keys)
        for kind in ("chunk", "phrase", "subject"):
            kept = ~np.isin(self._columns[f"{kind}_key"], keys)
            for name in self._columns:
                if name.startswith(kind):
                    self._columns[name] = self._columns[name][kept]

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return {**self._columns, "unread": self._unread}

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        columns = {name: arrays[name] for name in _COLUMNS}
        for name, kind in _COLUMNS.items():
            if columns[name].ndim != 1 or not np.issubdtype(columns[name].dtype, kind):
                raise ValueError(f"the column {name} is {columns[name].dtype} of {columns[name].ndim} dimensions")
            if len(columns[name]) != len(columns[f"{name.partition('_')[0]}_key"]):
                raise ValueError(f"the column {name} has another length than its keys")
        self._columns, self._unread, self._stale = columns, arrays["unread"], True

    def _read(self) -> None:
        """Take what is unread from the store."""
        found = [self._columns]
        for start in range(0, len(self._unread), _BATCH):
            found.append(_columns_of(self.store.documents.chunks(self._unread[start : start + _BATCH])))
        self._columns = {name: np.concatenate([part[name] for part in found]) for name in _COLUMNS}
        order = np.lexsort((self._columns["phrase_key"], self._columns["phrase_hash"]))
        for name in ("phrase_key", "phrase_hash"):
            self._columns[name] = self._columns[name][order]
        self._unread = self._unread[:0]

    def _built(self) -> NameGraph | None:
        counts = self.store.graph.load()
        if not counts:
            return None
        if len(self._unread):
            self._read()
        columns = self._columns
        order = np.argsort(columns["chunk_key"], kind="stable")
        keys = columns["chunk_key"][order]
        graph = EntityGraph.from_counts(counts)
        subjects = [str(name) for name in columns["subject_name"]]
        names = tuple(sorted({node.name for node in graph.nodes if node.label not in NOT_NAMES} | set(subjects)))
        place = {name: number for number, name in enumerate(names)}
        mentions, aliases = entity_pairs(graph, keys, place)
        wanted = np.fromiter(map(hashed, names), dtype=np.uint64, count=len(names))
        rows = np.searchsorted(keys, columns["phrase_key"])
        return NameGraph.of(
            keys,
            names,
            mentions=[mentions, matches(wanted, columns["phrase_hash"], rows)],
            subjects=(
                np.searchsorted(keys, columns["subject_key"]),
                np.fromiter((place[name] for name in subjects), dtype=np.int64, count=len(subjects)),
            ),
            beside=_beside(columns["chunk_document"][order], columns["chunk_start"][order]),
            aliases=aliases,
        )


def subjects_of(chunk: Chunk) -> list[str]:
    """Whose a chunk is, as it is written: its document's title, its own heading, who speaks in it (`Ada: Good day`)."""
    title = str(chunk.metadata.get("title") or "")
    # What stands in brackets behind a title tells it from others of the name: "Mercury (planet)".
    plain = title[: title.rfind("(")].strip() if title.endswith(")") else title
    speaker = _SPEAKER.match(chunk.text)
    found = [plain or title, *chunk.heading_path[-1:], speaker[1] if speaker else ""]
    return [name for name in dict.fromkeys(found) if name.strip() and len(name) <= _LONGEST_SUBJECT]


def _columns_of(chunks: Mapping[int, Chunk]) -> dict[str, NDArray[Any]]:
    phrases: list[tuple[int, list[int]]] = []
    subjects: list[tuple[int, str]] = []
    for key, chunk in chunks.items():
        phrases.append((key, sorted({hashed(phrase) for phrase in name_phrases(chunk.text)})))
        subjects += [(key, name) for name in dict.fromkeys(map(normalise, subjects_of(chunk))) if name]
    return {
        "chunk_key": np.fromiter(chunks, dtype=np.int64, count=len(chunks)),
        "chunk_document": np.array([_number(chunk.document_id) for chunk in chunks.values()], dtype=np.uint64),
        "chunk_start": np.array([chunk.span.start for chunk in chunks.values()], dtype=np.int64),
        "phrase_key": np.repeat(
            np.array([key for key, _ in phrases], dtype=np.int64),
            np.array([len(found) for _, found in phrases], dtype=np.int64),
        ),
        "phrase_hash": np.array([each for _, found in phrases for each in found], dtype=np.uint64),
        "subject_key": np.array([key for key, _ in subjects], dtype=np.int64),
        "subject_name": np.array([name for _, name in subjects], dtype=np.str_),
    }


def _empty() -> dict[str, NDArray[Any]]:
    return {name: np.zeros(0, dtype=kind) for name, kind in _COLUMNS.items()}


def _number(document_id: str) -> int:
    return int.from_bytes(
        hashlib.blake2b(document_id.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little"
    )


def _beside(documents: NDArray[np.uint64], starts: NDArray[np.int64]) -> Pairs:
    """Each chunk and the next one of its document."""
    order = np.lexsort((starts, documents))
    same = documents[order][1:] == documents[order][:-1]
    return order[:-1][same], order[1:][same]
