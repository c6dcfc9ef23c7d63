"""Chunks that are read once: at their own place nothing differs, anywhere else what can be the same is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from ctxkit.errors import ConfigError, KVCacheError  # noqa: E402
from ctxkit.kvcache.chunk_reuse import ChunkCache, ChunkSpan  # noqa: E402
from ctxkit.kvcache.compat import cache_argument, cache_utils  # noqa: E402
from ctxkit.kvcache.reuse import PrefixCache  # noqa: E402
from ctxkit.kvcache.store import BlockStore  # noqa: E402

PREFIX = [9, 8, 7, 6, 5, 4, 3, 2, 1]
NEIGHBOUR = [50, 51, 52, 53]
OPEN, CLOSE = [100, 101, 102], [110, 111]
TEXTS = [[20 + 7 * number + index % 5 for index in range(6 + 3 * number)] for number in range(4)]
QUESTION = [60, 61, 62, 63]


def prompt(order: list[int]) -> tuple[list[int], list[ChunkSpan]]:
    """Each chunk with its fences, whose second id is its number."""
    ids, spans = list(PREFIX), []
    for number, which in enumerate(order, 1):
        ids += [OPEN[0], number, OPEN[2]]
        spans.append(ChunkSpan(len(ids), len(ids) + len(TEXTS[which])))
        ids += [*TEXTS[which], *CLOSE]
    return [*ids, *QUESTION], spans


def read_whole(model: Any, ids: list[int]) -> Any:
    cache = cache_utils().DynamicCache()
    with torch.inference_mode():
        model(input_ids=torch.tensor([ids[:-1]]), use_cache=True, **{cache_argument(model): cache})
    return cache


def next_logits(model: Any, cache: Any, last: int) -> Any:
    with torch.inference_mode():
        return model(input_ids=torch.tensor([[last]]), use_cache=True, **{cache_argument(model): cache}).logits[0, -1]


def learned(model: Any, texts: list[list[int]], **options: Any) -> ChunkCache:
    cache = ChunkCache(BlockStore(None), codec="none", tenant="a")
    for text in texts:
        cache.learn(model, PREFIX, before=[OPEN[0], 1, OPEN[2]], text=text, after=CLOSE, **options)
    return cache


@pytest.fixture(scope="module")
def cache(llama: Any) -> ChunkCache:
    return learned(llama, TEXTS, neighbour=NEIGHBOUR)


def test_a_chunk_where_it_was_read_changes_nothing(llama: Any) -> None:
    ids, spans = prompt([2])
    cache = learned(llama, TEXTS)
    held, count = cache.take(llama, ids, len(PREFIX), spans)
    assert count == len(ids) - 1 == held.get_seq_length()
    expected = next_logits(llama, read_whole(llama, ids), ids[-1])
    assert torch.allclose(next_logits(llama, held, ids[-1]), expected, atol=1e-4)
    assert (cache.last.prefix, cache.last.recomputed, cache.last.read) == (len(PREFIX), 0, len(QUESTION))


def test_what_is_not_stored_is_read_on_top_of_what_stands_before(llama: Any) -> None:
    ids, spans = prompt([1, 3, 0])
    cache = learned(llama, [TEXTS[1]])  # it stands first, so all that is read sees what it would see
    held, _ = cache.take(llama, ids, len(PREFIX), spans)
    expected = next_logits(llama, read_whole(llama, ids), ids[-1])
    assert torch.allclose(next_logits(llama, held, ids[-1]), expected, atol=1e-4)
    assert (cache.last.chunks, cache.last.found) == (3, 1)


@given(st.permutations(range(4)).flatmap(lambda order: st.integers(1, 4).map(lambda count: list(order[:count]))))
def test_in_any_order_the_first_layer_is_that_of_a_whole_reading(
    llama: Any, cache: ChunkCache, order: list[int]
) -> None:
    ids, spans = prompt(order)
    held, count = cache.take(llama, ids, len(PREFIX), spans)
    assert held.get_seq_length() == count
    use = cache.last
    assert use.tokens == use.prefix + use.loaded + use.recomputed + use.read == len(ids)
    assert use.recomputed == len(order) - 1  # the numbers of all but the first
    expected = read_whole(llama, ids).layers[0]
    for ours, theirs in ((held.layers[0].keys, expected.keys), (held.layers[0].values, expected.values)):
        # What was read lies behind what was loaded: compared as sets of rows.
        distance = torch.cdist(theirs.flatten(0, 1), ours.flatten(0, 1)).min(dim=-1).values
        assert float(distance.max()) < 1e-2


def test_the_question_sees_the_chunks_where_they_stand(llama: Any, cache: ChunkCache) -> None:
    logits = []
    for order in ([0, 1, 2], [2, 1, 0]):
        ids, spans = prompt(order)
        held, _ = cache.take(llama, ids, len(PREFIX), spans)
        logits.append(next_logits(llama, held, ids[-1]))
    assert not torch.allclose(*logits, atol=1e-3)


def test_nothing_stored_is_said(llama: Any) -> None:
    ids, spans = prompt([0])
    cache = learned(llama, [])
    assert cache.take(llama, ids, len(PREFIX), spans) == (None, 0)
    assert "no chunk" in cache.last.reason


def test_tenants_prefixes_and_codecs_never_meet(llama: Any, cache: ChunkCache) -> None:
    ids, spans = prompt([0, 1])
    assert ChunkCache(cache.store, codec="none", tenant="b").take(llama, ids, len(PREFIX), spans)[1] == 0
    assert ChunkCache(cache.store, codec="int8", tenant="a").take(llama, ids, len(PREFIX), spans)[1] == 0
    other = [99, *ids[1:]]
    assert cache.take(llama, other, len(PREFIX), spans)[1] == 0


def test_prefix_reuse_never_sees_a_chunk(llama: Any) -> None:
    text = [3 + number % 90 for number in range(64)]
    store = BlockStore(None)
    chunks = ChunkCache(store, codec="int8", tenant="a")
    chunks.learn(llama, PREFIX, text=text)
    assert PrefixCache(store, codec="int8", tenant="a").take(llama, [*text, 1])[1] == 0
    heads = [store.head(key) for key in store.stored_keys()]
    assert len(heads) == 2  # the chunk, and the prefix that it was read after
    assert all(head is not None and head.lineage == "derived" and head.root["tenant"] == "a" for head in heads)


def test_a_chunk_survives_a_restart_and_a_damaged_one_is_read(llama: Any, tmp_path: Path) -> None:
    ids, spans = prompt([0, 2])
    with BlockStore(tmp_path) as store:
        cache = ChunkCache(store, tenant="a")
        for text in TEXTS:
            assert cache.learn(llama, PREFIX, before=[OPEN[0], 1, OPEN[2]], text=text, after=CLOSE)
        assert not cache.learn(llama, PREFIX, before=[OPEN[0], 1, OPEN[2]], text=TEXTS[0], after=CLOSE)
    again = ChunkCache(BlockStore(tmp_path), tenant="a")
    assert again.take(llama, ids, len(PREFIX), spans)[1] == len(ids) - 1
    assert (again.last.found, again.last.prefix) == (2, len(PREFIX))  # nothing is computed but what is not there
    for file in tmp_path.rglob("*.safetensors"):
        file.write_bytes(b"damaged")
    again = ChunkCache(BlockStore(tmp_path), tenant="a")
    assert again.take(llama, ids, len(PREFIX), spans) == (None, 0)
    assert again.store.stats().problems


def test_windows_and_empty_input_are_refused(llama: Any, gemma: Any) -> None:
    cache = learned(llama, [])
    with pytest.raises(KVCacheError, match="sliding_attention"):
        cache.learn(gemma, PREFIX, text=TEXTS[0])
    with pytest.raises(ConfigError, match="has no ids"):
        cache.learn(llama, [], text=TEXTS[0])
    ids, spans = prompt([0])
    assert cache.take(gemma, ids, len(PREFIX), spans) == (None, 0)
    assert "sliding_attention" in cache.last.reason


def test_a_prompt_that_ends_with_a_chunk_has_its_last_id_left(llama: Any, cache: ChunkCache) -> None:
    ids, spans = prompt([0, 1])
    ids = ids[: spans[-1].end]
    held, count = cache.take(llama, ids, len(PREFIX), spans)
    assert count == held.get_seq_length() == len(ids) - 1
    assert cache.take(llama, ids, 0, spans) == (None, 0)
    assert cache.last.reason == "the prompt has no prefix"
    assert cache.take(llama, ids, len(PREFIX), []) == (None, 0)


def test_a_stored_chunk_of_other_shapes_is_read(llama: Any, tmp_path: Path) -> None:
    ids, spans = prompt([0])
    with BlockStore(tmp_path, durable=False) as store:
        assert ChunkCache(store, tenant="a").learn(llama, PREFIX, before=OPEN, text=TEXTS[0], after=CLOSE)
        store.flush()
        files = store._lower.files  # type: ignore[union-attr]
        for entry in list(files.entries()):
            block, payload = files.read(entry.key)  # type: ignore[misc]
            files.write(block, {name: x.flatten()[:3] for name, x in payload.items()}, expected=block.version)
    again = ChunkCache(BlockStore(tmp_path), tenant="a")
    assert again.take(llama, ids, len(PREFIX), spans) == (None, 0)
    assert "cannot be restored" in again.store.problems[0].what
