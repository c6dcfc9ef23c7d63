"""Eviction: exactly so many tokens stay, in every layer; what goes is freed; positions go on; nobody else sees it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxkit.errors import ConfigError, KVCacheError
from ctxkit.kvcache import CompressedCache
from ctxkit.kvcache.compat import cache_argument
from ctxkit.kvcache.eviction import (
    EntropyGate,
    Eviction,
    Evictor,
    ExpectedAttention,
    KVzip,
    Reading,
    SnapKV,
    evict,
    observe,
    per_layer_masks,
)
from ctxkit.kvcache.eviction.reading import attention_shares, capture
from ctxkit.kvcache.layer import CompressedLayer
from ctxkit.kvcache.reuse import PrefixCache
from ctxkit.models.decoding import FreshCache, decode_steps
from ctxkit.models.evicting import PromptEviction
from tests.kvcache.test_cache import logits, prompt

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

METHODS: list[Evictor] = [
    ExpectedAttention(sample=40),
    SnapKV(window=16),
    KVzip(chunk=48),
    EntropyGate(method=SnapKV(window=16), margin=0.01),
]
BY_NAME = pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
TOKENS = 150


def filled(model: Any, eviction: Eviction, ids: Any, **options: Any) -> tuple[CompressedCache, Any]:
    """A cache that was read into, and what `evict` did to it."""
    cache = CompressedCache(model.config, **{"codec": "none", **options})
    with observe(model, eviction.method) as queries:
        logits(model, ids, cache)
    return cache, evict(cache, eviction, model=model, ids=ids[0].tolist(), queries=queries)


def hooks(model: Any) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


@dataclass(frozen=True)
class Given:
    """Scores that a test made."""

    of_layers: list[Any]
    name: str = "given"
    observed: int = 0

    def scores(self, reading: Reading) -> list[Any]:
        return self.of_layers


@settings(deadline=None, max_examples=200)
@given(data=st.data(), tokens=st.integers(1, 60), rows=st.integers(1, 2), sinks=st.integers(0, 5))
def test_exactly_the_best_stay_and_sinks_and_recent_ones_always(
    llama: Any, data: st.DataObject, tokens: int, rows: int, sinks: int
) -> None:
    keep = data.draw(st.one_of(st.integers(1, 70), st.floats(0.01, 1)))
    recent = data.draw(st.integers(0, 20))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    cache = CompressedCache(llama.config, codec="none", window=8, block=8)
    states = [torch.arange(1.0, tokens + 1).view(1, 1, -1, 1).expand(rows, 2, -1, 32) for _ in cache.layers]
    for index, state in enumerate(states):
        cache.update(state, state, index)
    scores = [torch.randn(rows, 2, tokens, generator=generator) for _ in states]
    eviction = Eviction(method=Given(scores), keep=keep, sinks=sinks, recent=recent)
    done = evict(cache, eviction)

    wanted = keep if isinstance(keep, int) else round(keep * tokens)
    kept = min(tokens, max(wanted, sinks + recent, 1))
    assert (done.tokens, done.kept, cache.get_seq_length(), cache.removed) == (tokens, kept, tokens, tokens - kept)
    for layer, score in zip(cache.compressed_layers, scores, strict=True):
        keys, values = layer.keys_values(0, kept)
        assert layer.length == kept
        assert torch.equal(keys, values)
        places = keys[..., 0].long() - 1
        assert bool((places.diff(dim=-1) > 0).all())
        free = torch.ones(tokens, dtype=torch.bool)
        free[:sinks] = False
        free[max(0, tokens - recent) :] = False
        for row in range(rows):
            for head in range(2):
                mine = set(places[row, head].tolist())
                assert mine >= set((~free).nonzero().flatten().tolist())
                chosen = sorted(mine - set((~free).nonzero().flatten().tolist()))
                best = score[row, head].masked_fill(~free, -9e9).topk(len(chosen)).indices.sort().values
                assert chosen == best.tolist()
    held = sum(x.untyped_storage().nbytes() for layer in cache.compressed_layers for x in layer.working)
    assert done.bytes_after == cache.memory_bytes == held
    if kept < tokens:
        assert done.bytes_after == kept * 3 * 2 * rows * 2 * 32 * 4 < done.bytes_before


@BY_NAME
class TestEveryMethod:
    def test_the_rest_is_read_as_with_explicit_positions(self, llama: Any, method: Evictor) -> None:
        ids = prompt(TOKENS)
        cache, done = filled(llama, Eviction(method=method, keep=0.5), ids)
        assert done.kept == TOKENS // 2
        plain = transformers.DynamicCache()
        for index, layer in enumerate(cache.compressed_layers):
            plain.update(*layer.keys_values(0, done.kept), index)
        more = prompt(9, seed=1)
        positions = torch.arange(TOKENS, TOKENS + 9)[None]
        expected = logits(llama, more, plain, position_ids=positions)
        assert torch.allclose(logits(llama, more, cache), expected, atol=1e-5)
        whole = CompressedCache(llama.config, codec="none")
        logits(llama, ids, whole)
        assert not torch.allclose(logits(llama, more, whole), expected, atol=1e-3)

    def test_nothing_changes_where_all_is_kept(self, llama: Any, method: Evictor) -> None:
        ids = prompt(60)
        cache, done = filled(llama, Eviction(method=method, keep=1.0), ids)
        whole = CompressedCache(llama.config, codec="none")
        logits(llama, ids, whole)
        assert (done.kept, cache.removed) == (60, 0)
        assert torch.equal(logits(llama, prompt(5), cache), logits(llama, prompt(5), whole))

    @pytest.mark.parametrize("codec", ["none", "int4", "int4-hq", "int8"])
    def test_it_goes_with_every_codec_and_state(self, llama: Any, method: Evictor, codec: str) -> None:
        cache, done = filled(llama, Eviction(method=method, keep=70), prompt(TOKENS), codec=codec, window=6, block=16)
        cache.demote()
        assert not cache.active
        if codec != "none":
            assert cache.memory_bytes < done.bytes_after / 1.8
        seen = [layer.keys_values(0, 70) for layer in cache.compressed_layers]
        cache.activate()
        logits(llama, prompt(20, seed=2), cache)
        cache.crop(-20)
        assert (cache.get_seq_length(), cache.compressed_layers[0].length) == (TOKENS, 70)
        cache.demote()
        for layer, before in zip(cache.compressed_layers, seen, strict=True):
            for x, y in zip(layer.keys_values(0, 70), before, strict=True):
                assert torch.equal(x, y)

    def test_hooks_are_gone_even_after_an_error(self, llama: Any, method: Evictor) -> None:
        with observe(llama, method):
            assert hooks(llama) == (3 if method.observed else 0)
        with pytest.raises(IndexError), observe(llama, method):
            logits(llama, torch.tensor([[500]]), None)  # no such token
        assert hooks(llama) == 0


class TestUneven:
    @pytest.mark.parametrize("align", [1, 16])
    @pytest.mark.parametrize("keep", [45, 75, 100])
    def test_layers_compete_and_keep_the_mean(self, llama: Any, keep: int, align: int) -> None:
        generator = torch.Generator().manual_seed(keep)
        scores = [scale * torch.rand(1, 2, TOKENS, generator=generator) for scale in (0.3, 1.0, 2.0)]
        eviction = Eviction(method=Given(scores), keep=keep, recent=8, even=False, align=align)
        cache, done = filled(llama, eviction, prompt(TOKENS))
        assert done.of_layers == tuple(layer.length for layer in cache.compressed_layers)
        assert sum(done.of_layers) == keep * 3 // align * align
        assert list(done.of_layers) == sorted(done.of_layers)
        assert done.of_layers[0] < done.of_layers[2]
        assert all(count % align == 0 and count >= 12 for count in done.of_layers)
        assert done.bytes_after == sum(done.of_layers) * 2 * 2 * 32 * 4
        assert {layer.get_seq_length() for layer in cache.layers} == {TOKENS}

    @pytest.mark.parametrize("last", [2.0, 1e9])  # the last layer keeps all
    @pytest.mark.parametrize("attention", ["sdpa", "eager"])
    def test_a_pass_sees_what_each_layer_holds(self, llama: Any, attention: str, last: float) -> None:
        generator = torch.Generator().manual_seed(3)
        scores = [scale * torch.rand(1, 2, TOKENS, generator=generator) for scale in (1.0, 0.3, last)]
        more = prompt(7, seed=1)
        before = llama.config._attn_implementation
        llama.set_attn_implementation(attention)
        try:
            eviction = Eviction(method=Given(scores), keep=90, even=False)
            cache, done = filled(llama, eviction, prompt(TOKENS))
            assert len(set(done.of_layers)) == 3
            assert (done.of_layers[2] == TOKENS) == (last == 1e9)
            one_by_one, _ = filled(llama, eviction, prompt(TOKENS))
            with per_layer_masks(llama):
                found = logits(llama, more, cache)
                single = [logits(llama, more[:, at : at + 1], one_by_one) for at in range(7)]
            assert torch.allclose(found, torch.cat(single, 1), atol=1e-4)
            wrong, _ = filled(llama, eviction, prompt(TOKENS))
            with pytest.raises(RuntimeError):
                logits(llama, more, wrong)
        finally:
            llama.set_attn_implementation(before)
        assert hooks(llama) == 0

    def test_other_caches_are_read_as_ever(self, llama: Any) -> None:
        plain, again = transformers.DynamicCache(), transformers.DynamicCache()
        with per_layer_masks(llama):
            first = [logits(llama, prompt(n), plain) for n in (20, 9, 1)]
        for found, n in zip(first, (20, 9, 1), strict=True):
            assert torch.equal(found, logits(llama, prompt(n), again))

    def test_an_answer(self, llama: Any) -> None:
        ids = prompt(100)[0].tolist()
        evicting = PromptEviction(Eviction(method=KVzip(), keep=0.5, even=False), llama, ids, FreshCache())
        assert len(answer(llama, ids, FreshCache().take(llama, ids)[0], 0, evicting)) == 12
        assert evicting.done is not None
        assert sum(evicting.done.of_layers) == 150


class TestHybrids:
    def test_sliding_layers_are_left_as_they_are(self, gemma: Any) -> None:
        for method in (ExpectedAttention(sample=40), SnapKV(window=16)):
            ids = prompt(TOKENS)
            cache, done = filled(gemma, Eviction(method=method, keep=0.4), ids)
            whole = CompressedCache(gemma.config, codec="none")
            logits(gemma, ids, whole)
            for layer, other in zip(cache.layers, whole.layers, strict=True):
                if isinstance(layer, CompressedLayer):
                    assert (layer.length, layer.get_seq_length()) == (60, TOKENS)
                else:
                    assert torch.equal(layer.keys, other.keys)
            assert done.kept == 60
            assert bool(logits(gemma, prompt(40, seed=1), cache).isfinite().all())

    def test_what_would_be_wrong_is_refused(self, gemma: Any) -> None:
        with pytest.raises(KVCacheError, match="sliding windows"):
            filled(gemma, Eviction(method=KVzip(), keep=0.4), prompt(TOKENS))
        with pytest.raises(KVCacheError, match="sliding"):
            filled(gemma, Eviction(method=SnapKV(), keep=0.4), prompt(TOKENS), sliding="full")


class TestScores:
    def test_shares_are_those_of_eager_attention(self, llama: Any) -> None:
        eager = transformers.LlamaForCausalLM._from_config(llama.config, attn_implementation="eager").eval()
        eager.load_state_dict(llama.state_dict())
        ids, cache, found = prompt(30), transformers.DynamicCache(), []

        def seen(module: Any, _: Any, queries: Any) -> None:
            found.append(attention_shares(module, queries, cache.layers[module.layer_idx].keys).flatten(1, 2))

        with torch.inference_mode(), capture(eager, seen):
            attentions = eager(input_ids=ids, output_attentions=True, **{cache_argument(eager): cache}).attentions
        for ours, theirs in zip(found, attentions, strict=True):
            assert torch.allclose(ours, theirs, atol=1e-6)

    def test_expected_attention_is_the_mean_over_drawn_queries(self, llama: Any) -> None:
        method = ExpectedAttention(sample=20_000, future=1)
        cache = CompressedCache(llama.config, codec="none")
        with observe(llama, method) as queries:
            logits(llama, prompt(20), cache)
        generator = torch.Generator().manual_seed(1)
        queries.plain = {index: 2 * torch.randn(1, 4, 20_000, 32, generator=generator) for index in (0, 1, 2)}
        reading = Reading(cache=cache, model=llama, queries=queries)
        scores = method.scores(reading)[0]
        module = queries.modules[0]
        cos, sin = llama.model.rotary_emb(scores, torch.tensor([[20]]))
        rotate = transformers.models.llama.modeling_llama.apply_rotary_pos_emb
        drawn = rotate(queries.plain[0], queries.plain[0], cos, sin)[0]
        keys, values = cache.compressed_layers[0].keys_values(0, 20)
        products = drawn.unflatten(1, (2, 2)) @ keys[:, :, None].transpose(3, 4) * module.scaling
        wanted = products.exp().mean(3)
        wanted = (wanted / wanted.sum(-1, keepdim=True)).mean(2) * values.norm(dim=-1)
        assert torch.allclose(scores, wanted, rtol=0.15)

    def test_kvzip_wants_the_ids_of_what_is_held(self, llama: Any) -> None:
        cache = CompressedCache(llama.config, codec="none")
        logits(llama, prompt(50), cache)
        for ids in ([], list(range(49))):
            with pytest.raises(KVCacheError, match="ids"):
                evict(cache, Eviction(method=KVzip(), keep=40), model=llama, ids=ids)

    def test_without_observed_queries_the_remedy_is_said(self, llama: Any) -> None:
        cache = CompressedCache(llama.config, codec="none")
        logits(llama, prompt(50), cache)
        with pytest.raises(KVCacheError, match="observe"):
            evict(cache, Eviction(method=SnapKV(), keep=40), model=llama)

    def test_the_gate_lets_less_go_where_attention_is_spread(self, llama: Any) -> None:
        ids = prompt(TOKENS)
        gate = EntropyGate(method=SnapKV(window=16), margin=1)
        _, done = filled(llama, Eviction(method=gate, keep=40), ids)
        with observe(llama, gate) as queries:
            whole = CompressedCache(llama.config, codec="none")
            logits(llama, ids, whole)
        attended = gate.attended(Reading(cache=whole, queries=queries))
        assert 40 < attended < TOKENS
        assert attended <= done.kept < attended + 1
        assert "spread" in done.reason
        # Equal keys: attention goes to all tokens alike, so nothing may go.
        with torch.inference_mode():
            for layer in whole.compressed_layers:
                layer.working[0].zero_()
        assert evict(whole, Eviction(method=gate, keep=40), queries=queries).kept > 0.85 * TOKENS


class TestNobodyElseSeesIt:
    def test_a_store_ignores_what_was_evicted_from(self, llama: Any, tmp_path: Path) -> None:
        ids = prompt(300)[0].tolist()
        with PrefixCache(tmp_path, codec="int8") as store:
            cache, _ = store.take(llama, ids)
            evicted, _ = filled(llama, Eviction(method=SnapKV(), keep=0.5), prompt(300))
            store._taken[evicted] = store._taken.pop(cache)  # even where it came from the store
            store.give(llama, ids, evicted)
            store.flush()
            assert store.take(llama, ids)[1] == 0

    def test_an_answer_evicts_and_stores_the_whole_prompt(self, llama: Any, tmp_path: Path) -> None:
        ids = prompt(300)[0].tolist()
        eviction = Eviction(method=SnapKV(), keep=0.5)
        answers = []
        for round_ in range(2):
            with PrefixCache(tmp_path, codec="none") as store:
                cache, reused = store.take(llama, ids)
                assert reused == 256 * round_
                evicting = PromptEviction(eviction, llama, ids, store)
                answers.append(answer(llama, ids, cache, reused, evicting))
                assert evicting.done is not None
                assert (evicting.done.tokens, evicting.done.kept) == (300, 150)
                assert hooks(llama) == 0
        assert answers[0] != answer(llama, ids, FreshCache().take(llama, ids)[0], 0, None)

    def test_keeping_all_answers_as_without(self, llama: Any, gemma: Any) -> None:
        ids = prompt(100)[0].tolist()
        for model in (llama, gemma):
            evicting = PromptEviction(Eviction(method=SnapKV(), keep=1.0), model, ids, FreshCache())
            plain = answer(model, ids, FreshCache().take(model, ids)[0], 0, None)
            assert answer(model, ids, FreshCache().take(model, ids)[0], 0, evicting) == plain


def answer(model: Any, ids: list[int], cache: Any, reused: int, eviction: PromptEviction | None) -> list[int]:
    steps = decode_steps(
        model,
        ids,
        cache=cache,
        reused=reused,
        max_tokens=12,
        stop_ids=frozenset(),
        temperature=0,
        top_p=1,
        seed=None,
        check=lambda: None,
        eviction=eviction,
    )
    return [step.token for step in steps]


@pytest.mark.parametrize("keep", [0, 0.0, -1, -0.5, 1.5, float("nan"), True, "half", None])
def test_a_wrong_share_is_refused(keep: Any) -> None:
    with pytest.raises(ConfigError):
        Eviction(method=SnapKV(), keep=keep)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Eviction(method="snapkv", keep=0.5),  # type: ignore[arg-type]
        lambda: Eviction(method=SnapKV(), keep=0.5, recent=-1),
        lambda: SnapKV(pool=4),
        lambda: SnapKV(window=0),
        lambda: KVzip(chunk=0),
        lambda: ExpectedAttention(sample=1),
        lambda: EntropyGate(method=None),  # type: ignore[arg-type]
    ],
)
def test_wrong_parameters_are_refused(make: Any) -> None:
    with pytest.raises(ConfigError):
        make()


def test_padded_rows_and_plain_caches_are_refused(llama: Any) -> None:
    cache = CompressedCache(llama.config, codec="none", padding=[0, 5])
    logits(llama, prompt(50, rows=2), cache)
    with pytest.raises(KVCacheError, match="padded"):
        evict(cache, Eviction(method=SnapKV(), keep=40))
    with pytest.raises(KVCacheError, match="DynamicCache"):
        evict(transformers.DynamicCache(), Eviction(method=SnapKV(), keep=40))
