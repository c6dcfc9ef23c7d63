"""Decoding: the speed of an active sequence beside the uncompressed cache, and block top-k attention."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

from ctxkit.evaluation.benchmarks._kv_quality import compare
from ctxkit.evaluation.benchmarks._kv_texts import load, read, texts
from ctxkit.evaluation.report import Bar, Report
from ctxkit.kvcache import BlockTopK, CompressedCache, block_top_k
from ctxkit.kvcache.compat import cache_argument
from ctxkit.settings import require

__all__ = ["run"]

LENGTH = 4096
SCORED = 64
SHARES = (0.5, 0.25)


def run(data: Path, *, full: bool = False) -> Report:
    """Seconds a token as a ratio to DynamicCache, one token of each cache in turn; KL of block top-k in nats a token.

    Args:
        full: top-k at 4,096 tokens too, and at a quarter read.
    """
    model = load()
    lengths = (1024, LENGTH) if full else (1024,)
    stretches = list(texts(data, max(lengths) + SCORED, 1))
    readings = {name: (ids, read(model, ids, dict.fromkeys(lengths, SCORED))) for name, ids in stretches}
    report = Report("kvcache decode", f"{len(stretches)} stretches, {SCORED} tokens decoded one by one")
    ratios = _speed(model, LENGTH)
    for system, ratio in ratios.items():
        report.rows.append({"system": system, "tokens": LENGTH, "time / DynamicCache": round(ratio, 3)})
    report.bars.append(Bar.at_most(f"active int4, decode time / DynamicCache @{LENGTH}", ratios["int4, active"], 1))
    for tokens in lengths:
        for share in SHARES if full else SHARES[:1]:
            row = _top_k(model, readings, tokens, share)
            report.rows.append(row)
            if share == SHARES[0]:
                report.bars.append(Bar.at_most(f"block top-k at {share:.0%} read, KL @{tokens}", row["KL"], 0.012))
    return report


def _speed(model: Any, length: int, *, steps: int = 24) -> dict[str, float]:
    """Of random keys and values: how long a step takes does not depend on them."""
    torch: Any = require("torch", extra="local")
    transformers: Any = require("transformers", extra="local")
    config = model.config
    shape = 1, config.num_key_value_heads, length, config.head_dim
    generator = torch.Generator().manual_seed(length)
    states = [torch.randn(shape, generator=generator) for _ in range(2)]
    caches = {
        "DynamicCache": transformers.DynamicCache(config=model.config),
        "int4, active": CompressedCache(model.config),
        "int4, not resident": CompressedCache(model.config, resident=False),
    }
    for cache in caches.values():
        for index in range(config.num_hidden_layers):
            cache.update(*states, index)
    caches["int4, active"].demote()
    caches["int4, active"].activate(room=steps)
    seconds: dict[str, list[float]] = {name: [] for name in caches}
    with torch.inference_mode():
        for _ in range(steps):
            for name, cache in caches.items():
                started = time.perf_counter()
                model(input_ids=torch.tensor([[100]]), **{cache_argument(model): cache})
                seconds[name].append(time.perf_counter() - started)
    # Each step has its own load of the machine: the ratio is taken within a step.
    return {
        name: statistics.median(a / b for a, b in zip(taken[2:], seconds["DynamicCache"][2:], strict=True))
        for name, taken in seconds.items()
    }


def _top_k(model: Any, readings: dict[str, Any], tokens: int, share: float) -> dict[str, Any]:
    torch: Any = require("torch", extra="local")
    pairs: list[tuple[float, float]] = []
    options = BlockTopK(share=share)
    for ids, reading in readings.values():
        cache = CompressedCache(model.config, codec="none", top_k=options)
        for layer, (keys, values) in zip(cache.layers, reading.prefix(tokens), strict=True):
            layer.update(keys, values)
        truth = reading.log_probabilities[tokens]
        with block_top_k(model), torch.inference_mode():
            for step in range(SCORED):
                given = torch.tensor([[ids[tokens + step]]])
                logits = model(input_ids=given, **{cache_argument(model): cache}).logits[0]
                pairs += compare(truth[step : step + 1], logits)
    return {
        "system": f"block top-k, {share:.0%}",
        "tokens": tokens,
        "KL": round(sum(pair[0] for pair in pairs) / len(pairs), 6),
        "top-1 %": round(100 * sum(pair[1] for pair in pairs) / len(pairs), 2),
        "read %": round(100 * options.read_share, 1),
        "scored": len(pairs),
    }
