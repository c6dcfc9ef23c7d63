"""Law 10 for stored keys and values: the tenant is in every key, so no block of one is found by another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxkit.kvcache.identity import Root, block_keys
from ctxkit.kvcache.reuse import PrefixCache
from ctxkit.kvcache.store import BlockStore
from ctxkit.models.decoding import decode_steps

FIELDS = dict.fromkeys(Root.__dataclass_fields__, "x")
prompts = st.tuples(st.integers(0, 2**32 - 1), st.integers(64, 200)).map(lambda pair: [pair[0]] * pair[1])


@settings(max_examples=100)
@given(st.text(max_size=8), st.text(max_size=8), prompts, prompts)
def test_no_key_is_shared_by_two_tenants(one: str, two: str, left: list[int], right: list[int]) -> None:
    roots = [Root(**{**FIELDS, "tenant": tenant}) for tenant in (one, two)]
    keys = [
        {key for prompt in (left, right, [*left, *right]) for key, _ in block_keys(root.digest, prompt)}
        for root in roots
    ]
    assert keys[0] == keys[1] if one == two else not keys[0] & keys[1]


@settings(max_examples=100)
@given(st.sampled_from(sorted(set(FIELDS) - {"tenant"})), st.text(min_size=1, max_size=8), st.text(max_size=8))
def test_no_other_field_can_pass_for_the_tenant(field: str, value: str, tenant: str) -> None:
    root = Root(**{**FIELDS, "tenant": tenant})
    assert replace(root, **{field: value + tenant}).digest != replace(root, tenant=value + tenant).digest


def test_a_model_never_reuses_another_tenants_prompt(tmp_path: Path) -> None:
    state = torch.get_rng_state()
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=90, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    model = transformers.LlamaForCausalLM(config).eval()
    torch.set_rng_state(state)
    prompt = [index % 90 for index in range(400)]

    def ask(cache: PrefixCache) -> int:
        holder, reused = cache.take(model, prompt)
        options: dict[str, Any] = {"max_tokens": 2, "stop_ids": frozenset(), "temperature": 0.0, "top_p": 1.0}
        steps = decode_steps(model, prompt, cache=holder, reused=reused, seed=None, check=lambda: None, **options)
        cache.give(model, [*prompt, *[step.token for step in steps][:-1]], holder)
        cache.flush()
        return reused

    for codec in ("none", "int8"):
        store = BlockStore(tmp_path)  # one store, even in one process
        caches = {tenant: PrefixCache(store, tenant=tenant, codec=codec) for tenant in ("a", "b", "a\0b", "")}
        for cache in caches.values():
            assert ask(cache) == 0
            assert ask(cache) >= 256
        store.close()
