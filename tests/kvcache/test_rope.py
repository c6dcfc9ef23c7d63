"""Keys that move: turns compose, and a moved key is the key that the model would have computed there."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from ctxkit.kvcache.compat import cache_argument, cache_utils  # noqa: E402
from ctxkit.kvcache.rope import cannot_move, move_keys  # noqa: E402

distances = st.integers(-900, 900)


def keys_at(model: Any, ids: list[int], position: int) -> list[Any]:
    cache = cache_utils().DynamicCache()
    positions = torch.arange(position, position + len(ids))[None]
    with torch.inference_mode():
        model(input_ids=torch.tensor([ids]), position_ids=positions, use_cache=True, **{cache_argument(model): cache})
    return [layer.keys for layer in cache.layers]


def near(left: Any, right: Any) -> bool:
    return bool(torch.allclose(left, right, atol=2e-4, rtol=1e-4))


def test_no_distance_changes_nothing(llama: Any) -> None:
    keys = torch.randn(1, 2, 5, 32)
    moved = move_keys(llama, keys, 0)
    assert torch.equal(moved, keys)
    assert moved.data_ptr() != keys.data_ptr()


@given(distances, distances)
def test_turns_compose_and_keep_lengths(llama: Any, one: int, two: int) -> None:
    keys = torch.randn(1, 2, 3, 32, generator=torch.Generator().manual_seed(abs(one)))
    moved = move_keys(llama, move_keys(llama, keys, one), two)
    assert near(moved, move_keys(llama, keys, one + two))
    assert near(moved.norm(dim=-1), keys.norm(dim=-1))


@given(st.integers(0, 800), st.integers(0, 800))
def test_a_moved_key_is_the_one_computed_there(llama: Any, start: int, end: int) -> None:
    ids = [3, 1, 4, 1, 5, 9]
    for here, there in zip(keys_at(llama, ids, start), keys_at(llama, ids, end), strict=True):
        assert near(move_keys(llama, here, end - start), there)


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256},
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 256,
        },
    ],
    ids=lambda scaling: str(scaling["rope_type"]),
)
def test_scaled_angles_are_the_models_own(llama: Any, scaling: dict[str, Any]) -> None:
    model = scaled(llama, scaling)
    assert cannot_move(model) == ""
    for here, there in zip(keys_at(model, [7, 8, 9], 11), keys_at(model, [7, 8, 9], 500), strict=True):
        assert near(move_keys(model, here, 489), there)


def test_angles_that_depend_on_the_length_are_refused(llama: Any) -> None:
    assert "length of the prompt" in cannot_move(scaled(llama, {"rope_type": "dynamic", "factor": 2.0}))


def test_windows_and_other_positions_are_refused(gemma: Any) -> None:
    import transformers

    assert "sliding_attention" in cannot_move(gemma)
    config = transformers.GPT2Config(vocab_size=32, n_embd=16, n_layer=1, n_head=2, n_positions=512)
    assert cannot_move(transformers.GPT2LMHeadModel(config).eval()) == "the model has no rotary embedding"


def test_a_rotary_embedding_that_does_not_tell_the_truth_is_found_out(llama: Any) -> None:
    model = scaled(llama, {"rope_type": "default"})
    told = model.model.rotary_emb.forward

    def other(x: Any, position_ids: Any) -> Any:
        return told(x, position_ids * position_ids)

    model.model.rotary_emb.forward = other
    assert cannot_move(model) == "its keys do not turn as its rotary embedding says"


def scaled(llama: Any, scaling: dict[str, Any]) -> Any:
    config = type(llama.config)(**{**llama.config.to_dict(), "rope_parameters": {"rope_theta": 10_000.0, **scaling}})
    state = torch.get_rng_state()
    model = type(llama)(config).eval()
    torch.set_rng_state(state)
    return model
