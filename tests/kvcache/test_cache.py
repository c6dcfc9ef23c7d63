"""The cache inside models: `generate()` takes it as it is, on every kind of model, batch and search."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from ctxkit.errors import ConfigError, KVCacheError
from ctxkit.kvcache import CompressedCache
from ctxkit.kvcache.compat import cache_argument
from tests.kvcache.test_layer import reachable

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


def prompt(tokens: int, rows: int = 1, seed: int = 0) -> Any:
    return torch.randint(2, 128, (rows, tokens), generator=torch.Generator().manual_seed(seed))


def generate(model: Any, ids: Any, cache: Any = None, *, tokens: int = 12, **options: Any) -> Any:
    options.setdefault("attention_mask", torch.ones_like(ids))
    if cache is not None:
        options[cache_argument(model)] = cache
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # of transformers, about options that it may ignore
        return model.generate(ids, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, **options)


def logits(model: Any, ids: Any, cache: Any, **options: Any) -> Any:
    with torch.inference_mode():
        return model(input_ids=ids, **{cache_argument(model): cache}, **options).logits


@pytest.fixture(params=["llama", "gemma"])
def model(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


class TestGenerate:
    @pytest.mark.parametrize("sliding", ["window", "full"])
    @pytest.mark.parametrize("codec", ["none", "int4", "int4-hq", "int8"])
    def test_an_active_sequence_answers_as_without_compression(self, model: Any, codec: str, sliding: str) -> None:
        ids = prompt(150, rows=2)
        cache = CompressedCache(model.config, codec=codec, sliding=sliding)
        assert isinstance(cache, transformers.Cache)
        assert torch.equal(generate(model, ids, cache), generate(model, ids))
        assert cache.get_seq_length() == 161

    @pytest.mark.parametrize("sliding", ["window", "full"])
    def test_without_a_codec_an_idle_sequence_goes_on_exactly(self, model: Any, sliding: str) -> None:
        cache = CompressedCache(model.config, codec="none", sliding=sliding, window=10, block=16)
        first = generate(model, prompt(150), cache)
        cache.demote()
        longer = torch.cat([first, prompt(9, seed=1)], 1)
        assert torch.equal(generate(model, longer, cache), generate(model, longer))

    @pytest.mark.parametrize("codec", ["int4", "int4-hq", "int8"])
    @pytest.mark.parametrize("resident", [True, False])
    def test_an_idle_sequence_goes_on_nearly(self, model: Any, codec: str, resident: bool) -> None:
        ids, more = prompt(300), prompt(20, seed=1)
        plain = transformers.DynamicCache(config=model.config)
        cache = CompressedCache(model.config, codec=codec, resident=resident)
        logits(model, ids, plain), logits(model, ids, cache)
        cache.demote()
        assert not cache.active
        expected, found = (logits(model, more, each).log_softmax(-1) for each in (plain, cache))
        divergence = (expected.exp() * (expected - found)).sum(-1).mean()
        assert 0 < divergence < (0.001 if codec == "int8" else 0.2)
        assert cache.active is resident

    def test_beams_are_reordered(self, model: Any) -> None:
        ids = prompt(100)
        cache = CompressedCache(model.config, codec="none", window=8, block=16, resident=False)
        assert torch.equal(generate(model, ids, cache, num_beams=3), generate(model, ids, num_beams=3))

    def test_a_padded_batch_answers_as_its_rows_do(self, model: Any) -> None:
        long, short = prompt(120), prompt(70, seed=3)
        ids = torch.cat([long, torch.cat([torch.zeros(1, 50, dtype=torch.long), short], 1)])
        mask = (ids != 0).long()
        cache = CompressedCache(model.config, padding=[0, 50])
        found = generate(model, ids, cache, attention_mask=mask)
        assert torch.equal(found[0, 120:], generate(model, long)[0, 120:])
        assert torch.equal(found[1, 120:], generate(model, short)[0, 70:])
        cache.demote()
        logits(model, prompt(1, rows=2), cache, attention_mask=torch.cat([mask, torch.ones(2, 12)], 1))

    def test_a_prefix_can_be_cut_back_and_read_on(self, llama: Any) -> None:
        ids = prompt(200)
        cache = CompressedCache(llama.config, codec="none", window=8, block=16)
        logits(llama, ids, cache)
        cache.demote()
        cache.crop(-77)
        assert cache.get_seq_length() == 123
        expected = logits(llama, ids, transformers.DynamicCache(config=llama.config))[:, 123:]
        assert torch.allclose(logits(llama, ids[:, 123:], cache), expected, atol=1e-4)

    def test_assisted_decoding_crops(self, llama: Any) -> None:
        ids = prompt(90)
        cache = CompressedCache(llama.config, codec="none")
        found = generate(llama, ids, cache, prompt_lookup_num_tokens=3, eos_token_id=1)
        assert torch.equal(found, generate(llama, ids, eos_token_id=1))

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_half_precision(self, llama: Any, dtype: Any) -> None:
        import copy

        half = copy.deepcopy(llama).to(dtype)
        cache = CompressedCache(half.config)
        assert torch.equal(generate(half, prompt(150), cache), generate(half, prompt(150)))
        cache.demote()
        assert cache.layers[0].keys.dtype == dtype
        logits(half, prompt(3), cache)


class TestMemory:
    def test_it_is_what_the_process_holds_in_every_state(self, model: Any) -> None:
        cache = CompressedCache(model.config, sliding="window")
        assert cache.memory_bytes == reachable(cache.layers)
        for change in (lambda: logits(model, prompt(300), cache), cache.demote, cache.activate, cache.compress):
            change()
            assert cache.memory_bytes == cache.memory().total == reachable(cache.layers) > 0
        assert sum(cache.memory().to_json().values()) == 2 * cache.memory_bytes

    def test_an_idle_sequence_is_smaller_by_what_the_format_says(self, llama: Any) -> None:
        cache = CompressedCache(llama.config)
        logits(llama, prompt(1000), cache)
        cache.demote()
        held = cache.memory()
        tokens = 896  # whole blocks that leave at least 64 tokens exact
        layers, heads, dim = 3, 2, 32
        assert held.packed == layers * heads * (2 * tokens * (dim // 2 + 2) + tokens // 64 * dim * 2)
        assert held.window == layers * 2 * heads * (1000 - tokens + 4) * dim * 2
        assert (held.working, held.bounds) == (0, 0)
        half = layers * 2 * heads * 1000 * dim * 2
        assert half / held.total > 2.4

    def test_demoting_frees_what_a_view_of_a_sliding_layer_keeps_alive(self, gemma: Any) -> None:
        cache = CompressedCache(gemma.config)
        logits(gemma, prompt(400), cache)
        before = cache.memory().sliding
        cache.demote()
        assert cache.memory().sliding < before / 10

    def test_decoding_copies_working_memory_rarely(self, llama: Any) -> None:
        cache = CompressedCache(llama.config)
        logits(llama, prompt(400), cache)
        storages = set()
        for step in range(40):
            logits(llama, prompt(1, seed=step), cache)
            storages.add(cache.layers[0].working[0].data_ptr())
        assert len(storages) == 1


class TestBlocks:
    def test_a_cache_is_made_of_blocks_again(self, model: Any) -> None:
        ids = prompt(256)
        options = {"sliding": "full", "window": 0}
        cache = CompressedCache(model.config, **options)
        logits(model, ids, cache)
        cache.demote()
        blocks = cache.blocks(0, 4)
        again = CompressedCache.from_blocks(model.config, blocks, dtype=torch.float32, **options)
        for (keys, values), (same_keys, same_values) in zip(
            cache.keys_values(0, 256), again.keys_values(0, 256), strict=True
        ):
            assert torch.allclose(keys, same_keys, rtol=1e-3)
            assert torch.allclose(values, same_values, rtol=1e-3)
        assert torch.allclose(
            logits(model, prompt(5, seed=2), again), logits(model, prompt(5, seed=2), cache), atol=0.05, rtol=0.01
        )

    def test_sliding_layers_get_their_last_tokens_at_any_boundary(self, gemma: Any) -> None:
        ids = prompt(256)
        cache = CompressedCache(gemma.config, codec="none", sliding="full")
        logits(gemma, ids, cache)
        blocks = cache.blocks(0, 4)
        for count in (1, 3, 4):
            again = CompressedCache.from_blocks(gemma.config, blocks[:count], codec="none", dtype=torch.float32)
            assert again.get_seq_length() == 64 * count
            whole = logits(gemma, torch.cat([ids[:, : 64 * count], prompt(9)], 1), None)[:, 64 * count :]
            assert torch.allclose(logits(gemma, prompt(9), again), whole, atol=1e-3)

    def test_blocks_of_another_model_are_refused(self, llama: Any, gemma: Any) -> None:
        cache = CompressedCache(llama.config)
        logits(llama, prompt(128), cache)
        with pytest.raises(KVCacheError, match="3 layers, the model 6"):
            CompressedCache.from_blocks(gemma.config, cache.blocks(0, 1), dtype=torch.float32)

    def test_a_sliding_window_cannot_be_exported(self, gemma: Any) -> None:
        with pytest.raises(KVCacheError, match="sliding window only") as caught:
            CompressedCache(gemma.config).blocks(0, 1)
        assert "sliding='full'" in caught.value.remedy


class TestEviction:
    def test_positions_go_on_where_they_were(self, llama: Any) -> None:
        """As a mask that hides the evicted tokens."""
        ids, more = prompt(120), prompt(6, seed=4)
        cache = CompressedCache(llama.config, codec="none")
        logits(llama, ids, cache)
        kept = torch.cat([torch.arange(0, 30), torch.arange(70, 120)])
        cache.keep(kept)
        assert (cache.get_seq_length(), cache.removed) == (120, 40)
        plain = transformers.DynamicCache(config=llama.config)
        logits(llama, ids, plain)
        visible = torch.ones(1, 126)
        visible[:, 30:70] = 0
        expected = logits(llama, more, plain, attention_mask=visible, position_ids=torch.arange(120, 126)[None])
        assert torch.allclose(logits(llama, more, cache), expected, atol=1e-4)
        assert generate(llama, torch.cat([ids, more, prompt(1)], 1), cache).shape == (1, 139)

    def test_layers_keep_equally_many(self, llama: Any) -> None:
        cache = CompressedCache(llama.config)
        logits(llama, prompt(20), cache)
        with pytest.raises(KVCacheError, match="same number"):
            cache.keep([torch.arange(3), torch.arange(4), torch.arange(3)])


class TestBadInput:
    @pytest.mark.parametrize(
        ("config", "said"),
        [
            (lambda: transformers.T5Config(), "encoder-decoder"),
            (lambda: transformers.MambaConfig(), "no attention|of the kind"),
            (lambda: transformers.GPT2Config(n_embd=68, n_head=4), "17 channels"),
            (lambda: transformers.Qwen3NextConfig(), "linear_attention"),
        ],
    )
    def test_models_that_it_does_not_take(self, config: Any, said: str) -> None:
        with pytest.raises(KVCacheError, match=said) as caught:
            CompressedCache(config())
        assert caught.value.remedy

    def test_a_head_that_has_no_groups_can_be_kept_in_eight_bits(self) -> None:
        config = transformers.GPT2Config(n_embd=68, n_head=4)
        assert CompressedCache(config, codec="int8").get_seq_length() == 0

    def test_wrong_parameters(self, llama: Any) -> None:
        with pytest.raises(ConfigError, match="sliding"):
            CompressedCache(llama.config, sliding="half")
        with pytest.raises(ConfigError, match="int3"):
            CompressedCache(llama.config, codec="int3")
        with pytest.raises(ConfigError, match="block is 0"):
            CompressedCache(llama.config, block=0)


@pytest.mark.parametrize("padding", [3, "ab", [0, -5], [0, 1.5], [[0], [0]], [float("nan")]])
def test_padding_is_tokens_of_each_row(llama: Any, padding: Any) -> None:
    with pytest.raises(ConfigError, match="padding"):
        CompressedCache(llama.config, padding=padding)


@pytest.mark.parametrize("search", [{"num_beams": 3}, {"num_return_sequences": 3, "do_sample": True}])
def test_padding_follows_the_rows_that_a_search_makes(llama: Any, search: dict[str, Any]) -> None:
    ids = torch.randint(1, 128, (2, 150), generator=torch.Generator().manual_seed(1))
    seen = torch.ones_like(ids)
    ids[1, :50] = seen[1, :50] = 0
    answers = []
    for cache in (CompressedCache(llama.config, padding=[0, 50]), None):
        torch.manual_seed(3)
        given = {} if cache is None else {cache_argument(llama): cache}
        answers.append(llama.generate(ids, attention_mask=seen, max_new_tokens=5, **search, **given))
        if cache is not None:
            exact = [layer.keys.clone() for layer in cache.compressed_layers]
            cache.demote()
            for row, first in ((0, 0), (3, 50)):  # of the sinks nothing is lost but what FP16 cannot hold
                now = cache.compressed_layers[1].keys[row, :, first : first + 4]
                assert torch.allclose(now, exact[1][row, :, first : first + 4], rtol=1e-3, atol=1e-5)
    assert torch.equal(*answers)


def test_padding_of_other_rows_is_refused(llama: Any) -> None:
    cache = CompressedCache(llama.config, padding=[0, 5])
    with pytest.raises(KVCacheError, match="2 rows, and the batch has 3"):
        llama(input_ids=torch.ones(3, 9, dtype=torch.long), **{cache_argument(llama): cache})


@pytest.mark.parametrize("option", [{"resident": "x"}, {"eager": 3}, {"top_k": "x"}])
def test_options_of_another_kind_are_refused(llama: Any, option: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        CompressedCache(llama.config, **option)


@pytest.mark.parametrize("kind", ["ViTConfig", "CLIPConfig"])
def test_a_model_that_is_no_decoder_is_refused(kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    with pytest.raises(KVCacheError, match="no decoder"):
        CompressedCache(getattr(transformers, kind)())


def test_blocks_without_numbers_and_odd_indices_are_refused(llama: Any) -> None:
    cache = CompressedCache(llama.config, codec="int4")
    logits(llama, prompt(200), cache)
    blocks = cache.blocks(0, 2)
    for wrong in ([*blocks[:1], [{}] * 3], [[{}] * 3]):
        with pytest.raises(KVCacheError):
            CompressedCache.from_blocks(llama.config, wrong, dtype=torch.float32)
    for odd in ([1, 2, 3], torch.tensor([1.0]), torch.zeros(1, 2, dtype=torch.long)):
        with pytest.raises(KVCacheError, match="whole numbers"):
            cache.keep(odd)
