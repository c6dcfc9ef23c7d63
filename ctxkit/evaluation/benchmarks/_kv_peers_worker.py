"""Runs in the peers' environment, where ctxkit is not: the quantised caches of transformers on the same ids.

Each stretch is read once, exactly; its prefix goes into each cache through `update`, as a prefill would, and the next
tokens are read on top. The truth is the exact reading in this environment. What is written: by system and length the
divergence and agreement of each scored token, by text.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers

SYSTEMS = {
    "transformers quanto 4, g64": ("quanto", {"nbits": 4, "q_group_size": 64}, 4.5),
    "transformers quanto 4, g32": ("quanto", {"nbits": 4, "q_group_size": 32}, 5.0),
    "transformers hqq 4, g64": ("hqq", {"nbits": 4, "q_group_size": 64, "axis_key": 1, "axis_value": 1}, 4.5),
    "transformers hqq 8, g64": ("hqq", {"nbits": 8, "q_group_size": 64, "axis_key": 1, "axis_value": 1}, 8.5),
}
"""Backend, options, and bits a number with scale and zero point in FP16 (in float32, as here, they take more)."""

CHUNK = 1024


def compare(truth: Any, logits: Any) -> list[tuple[float, float]]:
    found = logits.log_softmax(-1)
    divergence = (truth.exp() * (truth - found)).sum(-1).tolist()
    same = (truth.argmax(-1) == found.argmax(-1)).float().tolist()
    return list(zip(divergence, same, strict=True))


def main(given: Path, written: Path) -> None:
    job = json.loads(given.read_text("utf-8"))
    model = transformers.AutoModelForCausalLM.from_pretrained(job["model"], dtype=torch.float32).eval()
    found: dict[str, Any] = {}
    with torch.inference_mode():
        for name, ids in job["stretches"]:
            tensor = torch.tensor([ids])
            exact = transformers.DynamicCache()
            truth, start = {}, 0
            for length in sorted(job["lengths"]):
                for at in range(start, length, CHUNK):
                    model(input_ids=tensor[:, at : min(at + CHUNK, length)], past_key_values=exact, logits_to_keep=1)
                start = length + job["scored"]
                logits = model(input_ids=tensor[:, length:start], past_key_values=exact).logits[0]
                truth[length] = logits.log_softmax(-1)
            for length in job["lengths"]:
                for system, (backend, options, bits) in SYSTEMS.items():
                    cache = transformers.QuantizedCache(backend=backend, config=model.config, **options)
                    for index, layer in enumerate(exact.layers):
                        cache.update(layer.keys[:, :, :length], layer.values[:, :, :length], index)
                    scored = tensor[:, length : length + job["scored"]]
                    logits = model(input_ids=scored, past_key_values=cache).logits[0]
                    entry = found.setdefault(f"{system} {length}", {"bits": bits, "scores": {}})
                    entry["scores"].setdefault(name, []).extend(compare(truth[length], logits))
    written.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
