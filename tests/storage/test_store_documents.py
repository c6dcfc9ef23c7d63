"""Documents: put whole, found again exactly, replaced, listed, deleted; keys and revision."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.documents import Chunk, Document, Entity, Span
from ctxkit.errors import NotFoundError, StorageError
from ctxkit.storage import DocumentState, Store
from tests.storage.making import document, pieces, shared, unit_vectors
from tests.strategies import stored_texts


def plain(chunk: Chunk) -> Chunk:
    """The chunk without what the store adds."""
    return dataclasses.replace(chunk, metadata={})


class TestPut:
    def test_added_then_updated(self, store: Store) -> None:
        first = document("First text, of some length.", metadata={"author": "Ada"})
        assert store.documents.put(first, pieces(first), recipe="r1") == "added"
        assert store.documents.states([first.id, "other"]) == {first.id: DocumentState(first.content_hash, "r1")}
        second = document("Second.", title="New")
        assert second.id == first.id
        assert store.documents.put(second, pieces(second, 3), recipe="r2") == "updated"
        assert store.documents.get(first.id) == second
        assert store.documents.states([first.id]) == {first.id: DocumentState(second.content_hash, "r2")}
        stored = store.documents.chunks(store.documents.keys())
        assert [plain(chunk) for chunk in stored.values()] == pieces(second, 3)
        assert store.statistics()["entities"] == 3
        assert store.check() == []

    def test_a_document_without_chunks(self, store: Store) -> None:
        empty = document("")
        assert store.documents.put(empty, [], recipe="r", fingerprint="f", vectors=np.zeros((0, 8), "f4")) == "added"
        assert store.documents.get(empty.id) == empty
        assert store.documents.list()[0].chunk_count == 0
        assert store.check() == []

    @shared
    @given(
        text=stored_texts,
        title=stored_texts.map(lambda text: text[:40]),
        created_at=st.none()
        | st.datetimes(
            timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45)), ZoneInfo("America/New_York")])
        ),
        size=st.integers(1, 50),
    )
    def test_everything_comes_back_exactly(
        self, store: Store, text: str, title: str, created_at: datetime | None, size: int
    ) -> None:
        given_ = document(text, title=title, created_at=created_at, metadata={title: [text[:9], 1e16, -0.0, 10**20]})
        store.documents.put(given_, pieces(given_, size), recipe="r")
        back = store.documents.get(given_.id)
        # Python calls a local time that a change of clocks skips unequal to every other; its ISO form is compared.
        assert dataclasses.replace(back, created_at=created_at) == given_
        assert (back.created_at and back.created_at.isoformat()) == (created_at and created_at.isoformat())
        assert back.content_hash == given_.content_hash
        chunks = store.documents.chunks(store.documents.keys())
        assert [plain(chunk) for chunk in chunks.values()] == pieces(given_, size)
        for key, chunk in chunks.items():
            assert chunk.metadata == {
                **given_.metadata,
                "source": given_.source,
                "title": title,
                "created_at": created_at.isoformat() if created_at else None,
                "key": key,
            }

    def test_a_chunks_own_metadata_and_many_entities(self, store: Store) -> None:
        whole = document("abc", metadata={"page": 0, "author": "Ada"})
        entities = tuple(Entity("b", f"L{number}", Span(1, 2)) for number in range(40))
        chunk = dataclasses.replace(Chunk.of(whole, Span(0, 3), 1), metadata={"page": 7}, entities=entities)
        store.documents.put(whole, [chunk], recipe="r")
        (stored,) = store.documents.chunks(store.documents.keys()).values()
        assert stored.entities == entities
        assert stored.metadata["page"] == 7
        assert stored.metadata["author"] == "Ada"

    def test_the_zone_of_a_time_is_kept(self, store: Store) -> None:
        at = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=timezone(-timedelta(hours=9, minutes=30)))
        store.documents.put(document(created_at=at), [], recipe="r")
        assert store.documents.get(document().id).created_at == at
        assert store.documents.list()[0].created_at.isoformat() == at.isoformat()  # type: ignore[union-attr]

    def test_thousands_of_chunks_at_once(self, store: Store) -> None:
        large = document("word " * 20_000)
        store.documents.put(large, pieces(large, 20), recipe="r", fingerprint="f", vectors=unit_vectors(5_000))
        keys = store.documents.keys()
        assert len(keys) == 5_000
        assert len(store.documents.chunks(keys)) == len(list(store.documents.index_texts(keys))) == 5_000
        assert store.documents.delete([large.id]) == 1
        assert store.statistics()["chunks"] == store.statistics()["entities"] == 0


class TestReading:
    def test_what_is_not_there(self, store: Store) -> None:
        with pytest.raises(NotFoundError) as caught:
            store.documents.get("nothing")
        assert caught.value.subject == "nothing"
        assert store.documents.states([]) == store.documents.states(["nothing"]) == {}
        assert store.documents.chunks([]) == store.documents.chunks([1, 2, -5]) == {}
        assert list(store.documents.index_texts([1])) == []
        assert store.documents.delete([]) == store.documents.delete(["nothing"]) == 0

    def test_states_of_very_many(self, store: Store) -> None:
        store.documents.put(document(), [], recipe="r")
        assert list(store.documents.states([f"x{number}" for number in range(70_000)] + [document().id])) == [
            document().id
        ]

    def test_lists_by_source_and_prefix(self, store: Store) -> None:
        sources = ["b/1", "a/2", "a/10", "a%/x", "A/1", "猫/1", "a", ""]
        for source in sources:
            store.documents.put(Document(f"id {source}", "text", source=source, title=source), [], recipe="r")
        assert [info.source for info in store.documents.list()] == sorted(sources)
        assert [info.source for info in store.documents.list("a/")] == ["a/10", "a/2"]
        assert [info.source for info in store.documents.list("a%")] == ["a%/x"]
        assert [info.source for info in store.documents.list("猫")] == ["猫/1"]
        assert store.documents.list("_") == []
        info = store.documents.list("b")[0]
        assert (info.id, info.title, info.chunk_count) == ("id b/1", "b/1", 0)
        assert info.content_hash == store.documents.get("id b/1").content_hash
        assert abs(datetime.now(UTC) - info.updated_at) < timedelta(minutes=1)

    def test_chunks_come_in_the_order_of_the_keys(self, store: Store) -> None:
        store.documents.put(document(), pieces(document()), recipe="r")
        keys = store.documents.keys()[::-1]
        assert list(store.documents.chunks(keys)) == keys.tolist()
        assert [key for key, _ in store.documents.index_texts(keys)] == keys.tolist()

    @pytest.mark.parametrize("form", [list, tuple, np.array, lambda keys: np.array(keys, dtype=np.int32), iter])
    def test_keys_of_any_form(self, store: Store, form: Any) -> None:
        store.documents.put(document(), pieces(document()), recipe="r")
        keys = store.documents.keys().tolist()
        if form is iter:
            with pytest.raises(StorageError, match="not integers"):
                store.documents.chunks(form(keys))
        else:
            assert list(store.documents.chunks(form(keys))) == keys

    def test_what_an_index_sees(self, store: Store) -> None:
        titled = document("0123456789", title="Guide")
        store.documents.put(titled, [Chunk.of(titled, Span(0, 5), 1, heading_path=("Top", "Sub"))], recipe="r")
        assert [text for _, text in store.documents.index_texts(store.documents.keys())] == ["Guide\nTop > Sub\n01234"]
        titled = document("0123456789", title="Guide")
        store.documents.put(
            titled,
            [Chunk.of(titled, Span(0, 5), 1, heading_path=("Guide", "Sub")), Chunk.of(titled, Span(5, 10), 1)],
            recipe="r",
        )
        texts = [text for _, text in store.documents.index_texts(store.documents.keys())]
        assert texts == ["Guide > Sub\n01234", "Guide\n56789"]


class TestKeysAndRevision:
    def test_keys_are_never_used_again(self, store: Store) -> None:
        seen: set[int] = set()
        other = store.for_tenant("other")
        for turn in range(6):
            target = other if turn % 2 else store
            target.documents.put(document(f"text {turn}"), pieces(document(f"text {turn}"), 2), recipe="r")
            keys = set(target.documents.keys().tolist())
            assert not keys & seen
            seen |= keys
            if turn > 3:
                target.documents.delete([document().id])
        with Store.open(store.url) as again:
            again.documents.put(document("new"), pieces(document("new")), recipe="r")
            assert not set(again.documents.keys().tolist()) & seen

    def test_keys_follow_the_order_of_the_chunks(self, store: Store) -> None:
        store.documents.put(document(), pieces(document()), recipe="r")
        keys = store.documents.keys()
        assert keys.dtype == np.int64
        assert keys.tolist() == sorted(keys.tolist())
        assert [chunk.span.start for chunk in store.documents.chunks(keys).values()] == [0, 10, 20]

    def test_the_revision_changes_with_the_chunks_and_only_then(self, store: Store) -> None:
        other = store.for_tenant("other")
        revisions = [store.documents.revision()]
        store.documents.put(document(), pieces(document()), recipe="r")
        revisions.append(store.documents.revision())
        store.documents.put(document("other"), [], recipe="r")
        revisions.append(store.documents.revision())
        store.documents.delete([document().id])
        revisions.append(store.documents.revision())
        assert revisions == sorted(set(revisions))
        store.documents.delete([document().id])
        store.documents.list()
        with pytest.raises(StorageError):
            store.documents.put(document("\x00"), [], recipe="r")
        assert store.documents.revision() == revisions[-1]
        assert other.documents.revision() == 0


class TestVectors:
    def test_they_come_back_bit_for_bit(self, store: Store) -> None:
        tiny = np.array(
            [[1e-38, -0.0, 3.4e38, 1 / 3], [1.1754944e-38, 0, -1, 0.1], [5e-324, 1, 2, 3]], dtype=np.float32
        )
        store.documents.put(document(), pieces(document()), recipe="r", fingerprint="f", vectors=tiny)
        keys, vectors = store.documents.vectors("f")
        assert keys.tolist() == store.documents.keys().tolist()
        assert vectors.dtype == np.float32
        np.testing.assert_array_equal(vectors, tiny)

    def test_of_some_keys_and_of_none(self, store: Store) -> None:
        given_ = unit_vectors(3)
        store.documents.put(document(), pieces(document()), recipe="r", fingerprint="f", vectors=given_)
        keys = store.documents.keys()
        found, vectors = store.documents.vectors("f", keys[[2, 0]])
        assert found.tolist() == [keys[0], keys[2]]
        np.testing.assert_array_equal(vectors, given_[[0, 2]])
        assert store.documents.vectors("f", [])[1].shape == (0, 8)
        assert store.documents.vectors("other")[1].shape == (0, 0)

    def test_they_go_with_their_chunks(self, store: Store) -> None:
        store.documents.put(document(), pieces(document()), recipe="r", fingerprint="f", vectors=unit_vectors(3))
        store.documents.put(document(), pieces(document()), recipe="r2", fingerprint="g", vectors=unit_vectors(3, 4))
        assert len(store.documents.vectors("f")[0]) == 0
        assert store.documents.vectors("g")[1].shape == (3, 4)
        store.documents.put(document(), pieces(document()), recipe="r3")
        assert len(store.documents.vectors("g")[0]) == 0

    def test_one_fingerprint_has_one_dimension(self, store: Store) -> None:
        store.documents.put(document(), pieces(document()), recipe="r", fingerprint="f", vectors=unit_vectors(3, 8))
        with pytest.raises(StorageError, match="4 dimensions") as caught:
            store.documents.put(
                document("x"), pieces(document("x")), recipe="r", fingerprint="f", vectors=unit_vectors(1, 4)
            )
        assert caught.value.subject == "f"
        assert store.documents.get(document().id) == document(), "nothing of the failed put is there"

    def test_a_view_of_a_larger_array_and_float64(self, store: Store) -> None:
        wide = np.asfortranarray(unit_vectors(6, 8)).astype(np.float64)
        store.documents.put(document(), pieces(document()), recipe="r", fingerprint="f", vectors=wide[::2, ::2])
        np.testing.assert_array_equal(store.documents.vectors("f")[1], wide[::2, ::2].astype(np.float32))


class TestNearest:
    def test_sqlite_says_what_to_do(self, sqlite_url: str) -> None:
        with Store.open(sqlite_url) as store, pytest.raises(StorageError) as caught:
            store.documents.nearest("f", unit_vectors(1)[0], 3)
        assert "vectors()" in caught.value.remedy

    @pytest.mark.postgres
    def test_postgresql_is_exact(self, postgres_url: str) -> None:
        with Store.open(postgres_url) as store:
            large = document("word " * 200)
            vectors = unit_vectors(100, 16)
            store.documents.put(large, pieces(large), recipe="r", fingerprint="f", vectors=vectors)
            other = store.for_tenant("other")
            other.documents.put(large, pieces(large), recipe="r", fingerprint="f", vectors=vectors)
            keys = store.documents.keys()
            for query in unit_vectors(5, 16, seed=3):
                truth = np.argsort(-(vectors @ query), kind="stable")[:7]
                found, scores = store.documents.nearest("f", query, 7)
                assert found.tolist() == keys[truth].tolist()
                np.testing.assert_allclose(scores, (vectors @ query)[truth], atol=1e-5)
                some = keys[truth][1::2]
                assert store.documents.nearest("f", query, 7, keys=some)[0].tolist() == some.tolist()
            assert store.documents.nearest("f", query, 500)[0].shape == (100,)
            assert store.documents.nearest("g", query, 5)[0].shape == (0,)
            assert store.documents.nearest("f", query, 5, keys=[])[0].shape == (0,)

    @pytest.mark.postgres
    def test_wrong_queries(self, postgres_url: str) -> None:
        from ctxkit.errors import ConfigError

        with Store.open(postgres_url) as store:
            store.documents.put(document(), pieces(document()), recipe="r", fingerprint="f", vectors=unit_vectors(3))
            with pytest.raises(StorageError, match="4 dimensions"):
                store.documents.nearest("f", unit_vectors(1, 4)[0], 3)
            with pytest.raises(StorageError, match="NaN"):
                store.documents.nearest("f", np.full(8, np.nan, dtype=np.float32), 3)
            with pytest.raises(ConfigError):
                store.documents.nearest("f", unit_vectors(1)[0], 0)
