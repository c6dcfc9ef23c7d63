"""Tiny models with random weights: grouped queries, and sliding-window layers among full ones."""

from __future__ import annotations

from typing import Any

import pytest


def _made(make: Any) -> Any:
    import torch

    state = torch.get_rng_state()
    torch.manual_seed(5)
    model = make().eval()
    torch.set_rng_state(state)
    with torch.no_grad():  # sharp enough that greedy answers vary from token to token
        model.lm_head.weight.mul_(20)
    return model


@pytest.fixture(scope="session")
def llama() -> Any:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    return _made(lambda: transformers.LlamaForCausalLM(config))


@pytest.fixture(scope="session")
def gemma() -> Any:
    """As Gemma-3: two sliding-window layers of 24 tokens, then a full one, twice."""
    transformers = pytest.importorskip("transformers")
    config = transformers.Gemma3TextConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=32,
        sliding_window=24,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2,
        max_position_embeddings=1024,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
        tie_word_embeddings=False,
    )
    return _made(lambda: transformers.Gemma3ForCausalLM(config))
