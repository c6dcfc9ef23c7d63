"""On a real model: what packing costs in quality, and what it saves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ctxkit.kvcache import CompressedCache

if TYPE_CHECKING:
    from ctxkit.models import LocalModel

torch = pytest.importorskip("torch")


@pytest.mark.model
def test_a_real_text_packed_is_nearly_the_same_to_the_model(local_model: LocalModel) -> None:
    from tests.kvcache.test_cache import logits

    model = local_model.weights
    text = Path(__file__).parents[2].joinpath("docs", "concepts", "chunking.md").read_text("utf-8")
    ids = torch.tensor([local_model.counter.tokenizer.encode_data(text)[:544]])
    cache = CompressedCache(model.config, codec="none")
    logits(model, ids[:, :512], cache)
    states = cache.keys_values(0, 512)
    truth = logits(model, ids[:, 512:], cache)[0].log_softmax(-1)
    divergence = {}
    for codec, smaller in (("int8", 1.6), ("int4", 2.2)):
        packed = CompressedCache(model.config, codec=codec)
        for layer, (keys, values) in zip(packed.layers, states, strict=True):
            layer.update(keys, values)
        packed.demote()
        assert 512 * 23_040 / packed.memory_bytes > smaller
        found = logits(model, ids[:, 512:], packed)[0].log_softmax(-1)
        divergence[codec] = float((truth.exp() * (truth - found)).sum(-1).mean())
    assert 0 < divergence["int8"] < 2e-4
    assert 0 < divergence["int4"] < 8e-3
