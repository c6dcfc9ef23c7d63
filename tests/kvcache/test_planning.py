"""What a plan promises is what a cache holds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.errors import ConfigError, KVCacheError
from ctxkit.kvcache.architecture import Architecture
from ctxkit.kvcache.planning import CODECS, plan

torch = pytest.importorskip("torch")

SMOL = Architecture(
    layers=30,
    kv_heads=3,
    head_dim=64,
    query_heads=9,
    hidden_size=576,
    intermediate_size=1536,
    vocabulary=49152,
    positions=8192,
)


@pytest.fixture(params=["llama", "gemma"])
def model(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("tokens", [1, 63, 64, 128, 129, 300, 700])
def test_predicted_bytes_are_live_bytes(model: Any, codec: str, tokens: int) -> None:
    from ctxkit.kvcache import CompressedCache
    from ctxkit.kvcache.compat import cache_argument

    cache = CompressedCache(model.config, codec=codec)
    ids = torch.arange(tokens)[None] % 128
    with torch.inference_mode():
        for start in range(0, tokens, 256):
            model(input_ids=ids[:, start : start + 256], **{cache_argument(model): cache})
    (row,) = plan(Architecture.of(model.config), context=tokens, codecs=(codec,)).rows
    assert cache.memory_bytes <= row.active * 1.001
    cache.demote()
    assert row.idle == pytest.approx(cache.memory_bytes, rel=0.03)


def test_weights_are_those_of_the_model(llama: Any) -> None:
    assert Architecture.of(llama.config).weights == sum(parameter.numel() for parameter in llama.parameters())


def test_the_numbers_of_a_known_model() -> None:
    assert SMOL.weights == 134_515_008
    assert SMOL.token_bytes(itemsize=2) == 23_040
    found = {row.codec: row for row in plan(SMOL, context=4096, itemsize=2).rows}
    assert {codec: round(row.bits, 2) for codec, row in found.items()} == {
        "none": 16,
        "int8": 8.5,
        "int4-hq": 4.75,
        "int4": 4.5,
    }
    assert found["none"].idle == (4096 + 4) * 23_040, "the first four tokens are held a second time"
    assert found["none"].idle / found["int4"].idle > 3.3


@given(
    st.integers(1, 4), st.integers(1, 8), st.sampled_from([32, 64, 128]), st.integers(1, 5_000), st.integers(0, 10**9)
)
def test_what_is_said_to_fit_fits_and_no_more(layers: int, heads: int, dim: int, context: int, memory: int) -> None:
    one = Architecture(layers=layers, kv_heads=heads, head_dim=dim)

    def total(tokens: int, codec: str) -> int:
        (row,) = plan(one, context=tokens, codecs=(codec,)).rows
        return row.total

    found = plan(one, context=context, memory=memory)
    for row in found.rows:
        assert row.longest_context is not None and row.largest_batch is not None
        room = int(memory * 0.98)
        if row.longest_context:
            assert total(row.longest_context, row.codec) <= room
        assert total(row.longest_context + 1, row.codec) > room
        assert (row.largest_batch > 0) == (total(context, row.codec) <= room)
    assert found.fits == any(row.total <= memory for row in found.rows)


@given(st.integers(1, 4_000), st.integers(1, 4_000))
def test_more_tokens_never_take_less(first: int, second: int) -> None:
    small, large = (plan(SMOL, context=tokens) for tokens in sorted((first, second)))
    assert small.prefill_peak <= large.prefill_peak
    for one, other in zip(small.rows, large.rows, strict=True):
        assert one.active <= other.active
        if one.codec == "none":
            assert one.idle <= other.idle


@pytest.mark.parametrize(
    ("config", "full", "sliding"),
    [
        ({"model_type": "llama"}, 6, 0),
        ({"model_type": "gemma3_text", "sliding_window": 512}, 1, 5),
        ({"model_type": "gemma2", "sliding_window": 512}, 3, 3),
        ({"model_type": "mistral", "sliding_window": 512}, 0, 6),
        ({"model_type": "mistral", "sliding_window": None}, 6, 0),
        ({"model_type": "qwen2", "sliding_window": 512, "use_sliding_window": False}, 6, 0),
        ({"model_type": "qwen2", "sliding_window": 512, "use_sliding_window": True, "max_window_layers": 4}, 4, 2),
        ({"model_type": "x", "sliding_window": 9, "layer_types": ["full_attention"] * 6}, 6, 0),
    ],
)
def test_the_kinds_of_layers_in_a_file(config: dict[str, Any], full: int, sliding: int) -> None:
    numbers = {"num_hidden_layers": 6, "num_attention_heads": 4, "hidden_size": 64}
    found = Architecture.of(numbers | config)
    assert (found.full_layers, found.sliding_layers) == (full, sliding)
    assert (found.kv_heads, found.head_dim) == (4, 16)


def test_a_file_and_its_config_say_the_same(model: Any) -> None:
    import json

    assert Architecture.of(json.loads(model.config.to_json_string(use_diff=False))) == Architecture.of(model.config)


def test_a_nested_text_model_is_read() -> None:
    text = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64, "num_key_value_heads": 1}
    found = Architecture.of({"model_type": "vision", "text_config": text})
    assert (found.layers, found.kv_heads) == (2, 1)


@pytest.mark.parametrize(
    "config",
    [
        {"is_encoder_decoder": True, "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 8},
        {"model_type": "mamba", "hidden_size": 8},
        {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8, "layer_types": ["linear_attention"]},
    ],
)
def test_what_has_no_plan_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(KVCacheError, match=r"Give the numbers themselves"):
        Architecture.of(config)


@pytest.mark.parametrize("wrong", [{"context": 0}, {"batch": 0}, {"itemsize": 1.5}, {"prefill": -1}, {"memory": -1}])
def test_wrong_numbers_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        plan(SMOL, **{"context": 10, **wrong})


def test_a_context_beyond_the_positions_is_refused() -> None:
    with pytest.raises(ConfigError, match="8,192 positions"):
        plan(SMOL, context=8193)


@pytest.mark.parametrize(
    "wrong",
    [
        {"layers": 0},
        {"kv_heads": -1},
        {"head_dim": True},
        {"sliding_layers": 1},
        {"sliding_layers": 40, "sliding_window": 4},
    ],
)
def test_wrong_architectures_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Architecture(**{"layers": 30, "kv_heads": 3, "head_dim": 64, **wrong})


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_hidden_layers": "abc"},
        {"num_hidden_layers": float("nan")},
        {"num_hidden_layers": float("inf")},
        {"num_hidden_layers": True},
        {"num_attention_heads": [3, 4]},
        {"num_attention_heads": {"a": 1}},
        {"num_key_value_heads": [1, 2]},
        {"max_position_embeddings": 2.5},
        {"sliding_window": "x"},
        {"layer_types": 5},
        {"layer_types": ["full_attention"]},
    ],
)
def test_a_configuration_with_odd_values_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(KVCacheError) as caught:
        Architecture.of({"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 96, **wrong})
    assert caught.value.remedy and (next(iter(wrong)) in str(caught.value) or "kinds of 1 layers" in str(caught.value))


def test_a_value_for_each_layer_that_is_the_same_is_that_value() -> None:
    nested = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 96, "intermediate_size": [8, 8]}
    assert Architecture.of({"text_config": nested}).intermediate_size == 8


def test_experts_count_as_weights_and_latent_attention_is_refused() -> None:
    import transformers

    sizes = {"vocab_size": 60, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    config = transformers.MixtralConfig(**sizes, num_attention_heads=4, num_key_value_heads=2)
    with torch.device("meta"):
        model = transformers.MixtralForCausalLM(config)
    routers = 2 * 32 * 8
    assert Architecture.of(config).weights + routers == sum(parameter.numel() for parameter in model.parameters())
    with pytest.raises(KVCacheError, match="latent attention"):
        Architecture.of({**config.to_dict(), "kv_lora_rank": 8})
