"""Prefix reuse: what a model answers with the store is what it answers without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from ctxkit.errors import KVCacheError
from ctxkit.kvcache.codecs import get_codec
from ctxkit.kvcache.compat import cache_argument
from ctxkit.kvcache.identity import PREFILL_GRID, Root, block_keys, reusable_tokens, root_of
from ctxkit.kvcache.reuse import PrefixCache
from ctxkit.kvcache.store import BlockStore
from ctxkit.models.decoding import FreshCache, KeyValueCache, decode_steps


def _llama(seed: int = 3, **options: Any) -> Any:
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=120,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=2048,
        **options,
    )
    return transformers.LlamaForCausalLM(config).eval()


def _gemma() -> Any:
    torch.manual_seed(3)
    config = transformers.Gemma3TextConfig(
        vocab_size=120,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        sliding_window=96,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        max_position_embeddings=2048,
    )
    return transformers.Gemma3ForCausalLM(config).eval()


@pytest.fixture(scope="module")
def llama() -> Any:
    state = torch.get_rng_state()
    yield _llama()
    torch.set_rng_state(state)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[PrefixCache]:
    with PrefixCache(BlockStore(tmp_path, durable=False), tenant="a") as opened:
        yield opened


def _ids(count: int, seed: int = 0) -> list[int]:
    return torch.randint(2, 120, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def _answer(model: Any, ids: list[int], cache: KeyValueCache, *, tokens: int = 3) -> tuple[list[int], int, Any]:
    """The ids of an answer, how many of the prompt were reused, and the keys and values afterwards."""
    holder, reused = cache.take(model, ids)
    steps = decode_steps(
        model,
        ids,
        cache=holder,
        reused=reused,
        max_tokens=tokens,
        stop_ids=frozenset(),
        temperature=0.0,
        top_p=1.0,
        seed=None,
        check=lambda: None,
    )
    answer = [step.token for step in steps]
    state = [(layer.keys, layer.values) for layer in holder.layers]
    cache.give(model, [*ids, *answer[:-1]], holder)
    return answer, reused, state


def _equal(left: Any, right: Any) -> bool:
    return all(torch.equal(a, b) for pair in zip(left, right, strict=True) for a, b in zip(*pair, strict=True))


@pytest.mark.parametrize("length", [257, 300, 512, 513, 700])
def test_with_none_every_bit_is_the_same(llama: Any, cache: PrefixCache, length: int) -> None:
    ids = _ids(length)
    cold, _, state = _answer(llama, ids, FreshCache())
    _answer(llama, [*ids[:-1], *_ids(90, seed=9)], cache)  # a longer prompt of the same beginning
    warm, reused, again = _answer(llama, ids, cache)
    assert reused == reusable_tokens(length, step=PREFILL_GRID) > 0
    assert warm == cold and _equal(state, again)
    assert cache.last.exact and not cache.store.problems


def test_a_restart_finds_every_block(llama: Any, tmp_path: Path) -> None:
    ids = _ids(600)
    with PrefixCache(tmp_path) as first:
        cold, _, state = _answer(llama, ids, first)
    with PrefixCache(tmp_path) as second:
        warm, reused, again = _answer(llama, ids, second)
        assert reused == 512 and second.store.stats().disk_hits == 8
    assert warm == cold and _equal(state, again)


def test_a_prompt_that_is_stored_whole_leaves_one_token_to_compute(llama: Any, cache: PrefixCache) -> None:
    ids = _ids(512)
    _answer(llama, [*ids, *_ids(300, seed=1)], cache)
    assert _answer(llama, ids, cache)[1] == 256
    assert _answer(llama, ids[:1], cache)[1] == 0


def test_decoded_tokens_are_not_reused_with_none_and_are_with_a_codec(llama: Any, tmp_path: Path) -> None:
    ids = _ids(250)
    for codec, expected in (("none", 0), ("int8", 256)):
        with PrefixCache(tmp_path / codec, codec=codec) as cache:
            answer, _, _ = _answer(llama, ids, cache, tokens=30)
            _, reused, _ = _answer(llama, [*ids, *answer, 5], cache)
            assert reused == expected
            assert cache.last.exact == (codec == "none")


@pytest.mark.parametrize("codec", ["int8", "int4"])
def test_a_codec_keeps_the_logits_close(llama: Any, tmp_path: Path, codec: str) -> None:
    ids = _ids(400)
    _, _, state = _answer(llama, ids, FreshCache())
    with PrefixCache(tmp_path, codec=codec) as cache:
        _answer(llama, ids, cache)
        _, reused, again = _answer(llama, ids, cache)
        assert reused == 384
        for pair in zip(state, again, strict=True):
            for exact, rounded in zip(*pair, strict=True):
                error = (exact[:, :, :reused] - rounded[:, :, :reused]).norm() / exact[:, :, :reused].norm()
                assert 0 < error < (0.02 if codec == "int8" else 0.15)
                assert (exact[:, :, :4] - rounded[:, :, :4]).abs().max() < 2e-3, "the first tokens stay"
        cache.flush()
        lineages = {cache.store.head(key).lineage for key in cache.store.stored_keys()}  # type: ignore[union-attr]
        assert lineages == {"exact"}


def test_what_rests_on_rounded_numbers_is_derived(llama: Any, tmp_path: Path) -> None:
    with PrefixCache(tmp_path, codec="int8") as cache:
        _answer(llama, _ids(200), cache)
        _answer(llama, [*_ids(200)[:192], *_ids(200, seed=4)], cache)
        cache.flush()
        found = [cache.store.head(key) for key in cache.store.stored_keys()]
        assert sorted(block.lineage for block in found if block) == ["derived"] * 3 + ["exact"] * 3


def test_a_sliding_window_model_goes_on_from_any_block(tmp_path: Path) -> None:
    model = _gemma()
    ids = _ids(560)
    cold, _, _ = _answer(model, ids, FreshCache())
    with PrefixCache(tmp_path) as first:
        _answer(model, ids, first)
    with PrefixCache(tmp_path) as second:
        for length in (300, 560):
            plain = _answer(model, ids[:length], FreshCache())[0]
            warm, reused, _ = _answer(model, ids[:length], second)
            assert (warm, reused) == (plain, reusable_tokens(length, step=PREFILL_GRID))
    assert warm == cold


@pytest.mark.parametrize(
    "other",
    [
        lambda: _llama(seed=4),
        lambda: _llama(rope_parameters={"rope_type": "default", "rope_theta": 5_000.0}),
        lambda: _llama().to(torch.bfloat16),
    ],
    ids=["weights", "rope", "dtype"],
)
def test_another_models_blocks_are_never_used(llama: Any, cache: PrefixCache, other: Callable[[], Any]) -> None:
    _answer(llama, _ids(300), cache)
    cache.flush()
    assert _answer(other(), _ids(300), cache)[1] == 0


def test_weights_that_change_in_memory_are_another_model(cache: PrefixCache) -> None:
    model = _llama()
    _answer(model, _ids(300), cache)
    assert _answer(model, _ids(300), cache)[1] == 256
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight[5, 5] += 1
    assert _answer(model, _ids(300), cache)[1] == 0


def test_each_field_of_the_root_is_in_the_digest() -> None:
    fields = dict.fromkeys(Root.__dataclass_fields__, "x")
    digests = {Root(**fields).digest, *(Root(**{**fields, name: "y"}).digest for name in fields)}
    swapped = Root(**{**fields, "dtype": "a", "attention": "b"}), Root(**{**fields, "dtype": "b", "attention": "a"})
    assert len(digests) == 1 + len(fields) and swapped[0].digest != swapped[1].digest


def test_a_damaged_block_is_computed_again(llama: Any, tmp_path: Path) -> None:
    ids = _ids(600)
    with PrefixCache(tmp_path) as cache:
        cold, _, _ = _answer(llama, ids, cache)
    root = root_of(llama, codec=get_codec("none"), tenant="default").digest
    keys = [key for key, _ in block_keys(root, ids)]
    (path,) = (tmp_path / keys[5][:2] / keys[5]).glob("*.safetensors")
    content = bytearray(path.read_bytes())
    content[-9] ^= 4
    path.write_bytes(content)
    with PrefixCache(tmp_path) as cache:
        assert _answer(llama, ids, cache)[:2] == (cold, 256)
        assert "SHA-256" in cache.store.problems[0].what
    with PrefixCache(tmp_path) as cache:
        assert _answer(llama, ids, cache)[:2] == (cold, 512), "it was stored anew"


def test_the_next_request_waits_for_what_is_being_packed(llama: Any, cache: PrefixCache) -> None:
    for length in range(300, 900, 100):
        reused = _answer(llama, _ids(900)[:length], cache)[1]
        assert reused == (length - 100) // 256 * 256 if length > 300 else reused == 0


def test_a_model_without_keys_and_values_gets_a_plain_cache_and_says_so(cache: PrefixCache) -> None:
    config = transformers.Qwen3NextConfig(
        vocab_size=120,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        layer_types=["linear_attention", "full_attention"],
        num_experts=0,
    )

    class Model:
        pass

    model = Model()
    model.config = config  # type: ignore[attr-defined]
    _, reused = cache.take(model, _ids(300))
    assert reused == 0
    assert "linear_attention" in cache.last.reason
    assert "linear_attention" in cache.store.problems[-1].what


def test_an_error_while_packing_is_reported_and_raised(
    llama: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = PrefixCache(tmp_path)
    monkeypatch.setattr("ctxkit.kvcache.reuse.cut", lambda *parts, **options: 1 / 0)
    answer = _answer(llama, _ids(300), cache)[0]
    assert len(answer) == 3
    with pytest.raises(KVCacheError, match="ZeroDivisionError"):
        cache.flush()
    assert "cannot be packed" in cache.store.problems[-1].what
    assert _answer(llama, _ids(300), cache)[0] == answer


def test_generate_takes_the_cache_with_the_whole_prompt(llama: Any, cache: PrefixCache) -> None:
    ids = _ids(400)
    tensor = torch.tensor([ids])
    options = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    plain = llama.generate(tensor, attention_mask=torch.ones_like(tensor), **options)
    _answer(llama, ids, cache)
    holder, reused = cache.take(llama, ids)
    assert reused == 256
    found = llama.generate(tensor, attention_mask=torch.ones_like(tensor), **{cache_argument(llama): holder}, **options)
    assert torch.equal(plain, found)


@pytest.mark.parametrize("change", [lambda x: x[:1], lambda x: x.flatten()])
def test_numbers_of_another_shape_are_computed_again(llama: Any, tmp_path: Path, change: Any) -> None:
    ids = _ids(300)
    with PrefixCache(BlockStore(tmp_path, durable=False)) as cache:
        cold, _, _ = _answer(llama, ids, cache)
        cache.flush()
        files = cache.store._lower.files  # type: ignore[union-attr]
        for entry in list(files.entries()):
            block, payload = files.read(entry.key)
            files.write(block, {name: change(x).contiguous() for name, x in payload.items()}, expected=block.version)
    with PrefixCache(BlockStore(tmp_path, durable=False)) as cache:
        assert _answer(llama, ids, cache)[:2] == (cold, 0)
        assert "cannot be restored" in cache.store.problems[0].what


def test_what_was_read_in_other_steps_is_not_taken_for_the_same_bits(llama: Any, tmp_path: Path) -> None:
    ids = _ids(300)
    for codec, lineage in (("none", None), ("int8", "derived")):
        with PrefixCache(BlockStore(tmp_path / codec, durable=False), codec=codec) as cache:
            holder, _ = cache.take(llama, ids)
            cache.mark_derived(holder)
            with torch.inference_mode():
                llama(input_ids=torch.tensor([ids]), **{cache_argument(llama): holder})
            cache.give(llama, ids, holder)
            cache.flush()
            found = {block.lineage for _, block in cache.store.verify() if block}
            assert found == (set() if lineage is None else {lineage})
