"""Block top-k attention: dense where it must be, the right blocks where it chooses, nothing patched afterwards."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxkit.errors import ConfigError
from ctxkit.kvcache import BlockTopK, CompressedCache, block_top_k
from ctxkit.kvcache.codecs import get_codec
from ctxkit.kvcache.layer import CompressedLayer, LayerSettings
from ctxkit.kvcache.top_k import KeyBounds, choose
from tests.kvcache.test_cache import generate, logits, prompt
from tests.kvcache.test_layer import DIM, HEADS, states

torch = pytest.importorskip("torch")


def cached(model: Any, ids: Any, **options: Any) -> CompressedCache:
    cache = CompressedCache(model.config, codec="none", top_k=BlockTopK(**options))
    logits(model, ids, cache)
    return cache


@pytest.mark.parametrize("name", ["llama", "gemma"])
def test_all_read_is_attention_as_it_was(name: str, request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue(name)
    ids = prompt(200, rows=2)
    before = model.config._attn_implementation
    cache = CompressedCache(model.config, top_k=BlockTopK(share=1.0))
    with block_top_k(model):
        assert torch.equal(generate(model, ids, cache), generate(model, ids))
    assert model.config._attn_implementation == before
    assert cache.settings.top_k is not None
    assert cache.settings.top_k.read_share == 1


def test_half_read_is_near_and_is_reported(llama: Any) -> None:
    ids, step = prompt(600), prompt(1, seed=1)
    dense = cached(llama, ids)
    expected = logits(llama, step, dense).log_softmax(-1)
    found = []
    for share in (0.25, 0.5, 0.9):
        cache = cached(llama, ids, share=share, recent=32, dense_layers=1)
        with block_top_k(llama):
            got = logits(llama, step, cache).log_softmax(-1)
        found.append(float((expected.exp() * (expected - got)).sum(-1).mean()))
        options = cache.settings.top_k
        assert options is not None
        assert options.tokens_held == 2 * 601
        assert share - 0.06 <= options.read_share <= share
        assert cache.memory().bounds > 0
        assert cache.memory_bytes > cache.memory().working
        cache.demote()
        assert cache.memory().bounds == 0
    assert found[0] > found[2]
    assert found[1] < 0.5


def test_padding_is_never_chosen(llama: Any) -> None:
    short = prompt(200, seed=2)
    ids = torch.cat([torch.cat([torch.zeros(1, 300, dtype=torch.long), short], 1), prompt(500, seed=3)])
    mask = (ids != 0).long()
    options = {"share": 0.5, "recent": 32, "dense_layers": 0}
    cache = CompressedCache(llama.config, codec="none", top_k=BlockTopK(**options))
    logits(llama, ids, cache, attention_mask=mask)
    step = prompt(1, rows=2, seed=4)
    longer = torch.cat([mask, torch.ones(2, 1, dtype=torch.long)], 1)
    with block_top_k(llama):
        found = logits(llama, step, cache, attention_mask=longer)
    alone = transformers_cache(llama, short)
    expected = logits(llama, step[:1], alone)
    # Half of 501 tokens is more than the 201 that there are to read.
    assert torch.allclose(found[0], expected[0], atol=1e-3)


def transformers_cache(model: Any, ids: Any) -> Any:
    import transformers

    cache = transformers.DynamicCache(config=model.config)
    logits(model, ids, cache)
    return cache


@given(st.integers(0, 1000), st.integers(1, 200), st.sampled_from([1, 4, 16]))
@settings(max_examples=40)
def test_bounds_are_bounds(seed: int, tokens: int, block: int) -> None:
    keys, _ = states(2, tokens, seed)
    query, _ = states(2, 3, seed + 1)
    bounds = KeyBounds(block)
    for stop in sorted({1, tokens // 3, tokens}):  # as a sequence grows
        bounds.extend(keys[:, :, :stop])
    whole = tokens // block
    assert bounds.count == whole
    if whole:
        products = (query @ keys[:, :, : whole * block].transpose(2, 3)).unflatten(-1, (whole, block)).amax(-1)
        assert (bounds.upper(query) >= products - 0.05).all()
    bounds.truncate(tokens // 2)
    bounds.extend(keys)
    assert bounds.count == whole


def test_the_block_that_the_query_asks_for_is_read() -> None:
    options = BlockTopK(share=0.3, block=8, recent=8, dense_layers=0)
    layer = CompressedLayer(LayerSettings(codec=get_codec("none"), top_k=options))
    keys, values = states(1, 256, 0)
    keys[:, 0, 100] *= 30
    keys[:, 1, 180] *= 30
    key, value = layer.update(keys, values)
    query = torch.stack([keys[:, 0, 100], keys[:, 1, 180]], 1).unsqueeze(2)
    read_keys, read_values, mask = choose(layer, 0, query, key, value, None)
    assert mask is None
    assert read_keys.shape == read_values.shape == (1, HEADS, options.tokens_read, DIM)
    for head, wanted in enumerate((100, 180)):
        assert (read_keys[0, head] == keys[0, head, wanted]).all(-1).any()
        assert torch.equal(read_keys[0, head, :8], keys[0, head, :8]), "the first block"
        assert torch.equal(read_keys[0, head, -8:], keys[0, head, -8:]), "the recent tokens"


def test_a_cut_forgets_bounds(llama: Any) -> None:
    ids = prompt(400)
    cache = cached(llama, ids, share=0.4, recent=16)
    with block_top_k(llama):
        logits(llama, prompt(1, seed=1), cache)
        cache.crop(-200)
        logits(llama, prompt(150, seed=2), cache)
        found = logits(llama, prompt(1, seed=3), cache)
    fresh = cached(llama, torch.cat([ids[:, :201], prompt(150, seed=2)], 1)[:, : cache.get_seq_length() - 1])
    assert fresh.get_seq_length() == cache.get_seq_length() - 1
    assert found.isfinite().all()
    bounds = cache.layers[2].bounds
    again = KeyBounds(16)
    again.extend(cache.layers[2].keys)
    for found_bounds, expected in zip(bounds.tensors(), again.tensors(), strict=True):
        assert torch.equal(found_bounds[:, :, : again.count], expected[:, :, : again.count])


@pytest.mark.parametrize("options", [{"share": 1.5}, {"block": 0}, {"recent": -1}, {"dense_layers": True}])
def test_wrong_options(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        BlockTopK(**options)
    assert caught.value.remedy
