"""Plans beside what caches really hold: bytes do not depend on what a model has learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ctxkit.evaluation.report import Bar, Report
from ctxkit.kvcache import CompressedCache
from ctxkit.kvcache.architecture import Architecture
from ctxkit.kvcache.planning import CODECS, plan
from ctxkit.settings import require

__all__ = ["run"]

_TOKENS = (100, 1000, 4096)
_STEP = 256
_MODELS: dict[str, dict[str, Any]] = {
    "SmolLM2-135M": {
        "model_type": "llama",
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "hidden_size": 576,
    },
    "Gemma-3-270M": {
        "model_type": "gemma3_text",
        "num_hidden_layers": 18,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "hidden_size": 640,
        "sliding_window": 512,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 3,
    },
}
"""The numbers of these models that their caches follow from."""


def run(data: Path, *, full: bool = False) -> Report:
    """Predicted and live bytes of a cache that random keys and values are put into, as a prefill puts them.

    Args:
        data: not read.
        full: the same; there is no longer form.
    """
    report = Report("kvcache plan", "random keys and values in the layers of two architectures, float32")
    worst = 0.0
    for name, config in _MODELS.items():
        for codec in CODECS:
            for tokens in _TOKENS:
                active, idle = _live(config, codec, tokens)
                (row,) = plan(Architecture.of(config), context=tokens, codecs=(codec,)).rows
                off = row.idle / idle - 1
                worst = max(worst, abs(off))
                report.rows.append(
                    {
                        "system": f"{name} {codec}",
                        "tokens": tokens,
                        "planned bytes": row.idle,
                        "live bytes": idle,
                        "off %": round(100 * off, 3),
                        "active, planned / live": round(row.active / active, 3),
                    }
                )
    report.bars.append(Bar.at_most("planned bytes off from live bytes, at most %", round(100 * worst, 3), 3))
    return report


def _live(numbers: dict[str, Any], codec: str, tokens: int) -> tuple[int, int]:
    torch: Any = require("torch", extra="local")
    transformers: Any = require("transformers", extra="local")
    kind = transformers.Gemma3TextConfig if "sliding_window" in numbers else transformers.LlamaConfig
    config = kind(**{key: value for key, value in numbers.items() if key != "model_type"})
    cache: Any = CompressedCache(config, codec=codec)
    generator = torch.Generator().manual_seed(tokens)
    for start in range(0, tokens, _STEP):
        shape = 1, config.num_key_value_heads, min(_STEP, tokens - start), config.head_dim
        for layer in range(config.num_hidden_layers):
            cache.update(*(torch.randn(shape, generator=generator) for _ in range(2)), layer)
    active = cache.memory_bytes
    cache.demote()
    return active, cache.memory_bytes
