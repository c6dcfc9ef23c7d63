"""Runs in the peers' environment, where ctxkit is not: the quantised caches of transformers on the same ids.

The folder it is given holds `job.json` and, of each stretch, the exact keys and values and the log-probabilities of the
uncompressed cache. The prefix goes into each cache through `update`, as a prefill would, and the next tokens are read
on top. What is written, `found.json`: by system and length the divergence and agreement of each scored token, by text.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file

SYSTEMS = {
    "transformers quanto 4, g64": ("quanto", {"nbits": 4, "q_group_size": 64}, 4.5),
    "transformers quanto 4, g32": ("quanto", {"nbits": 4, "q_group_size": 32}, 5.0),
    "transformers hqq 4, g64": ("hqq", {"nbits": 4, "q_group_size": 64, "axis_key": 1, "axis_value": 1}, 4.5),
    "transformers hqq 8, g64": ("hqq", {"nbits": 8, "q_group_size": 64, "axis_key": 1, "axis_value": 1}, 8.5),
}
"""Backend, options, and bits a number with scale and zero point in FP16 (in float32, as here, they take more)."""


def compare(truth: Any, logits: Any) -> list[tuple[float, float]]:
    found = logits.log_softmax(-1)
    divergence = (truth.exp() * (truth - found)).sum(-1).tolist()
    same = (truth.argmax(-1) == found.argmax(-1)).float().tolist()
    return list(zip(divergence, same, strict=True))


def main(folder: Path) -> None:
    job = json.loads((folder / "job.json").read_text("utf-8"))
    model = transformers.AutoModelForCausalLM.from_pretrained(job["model"], dtype=torch.float32).eval()
    found: dict[str, Any] = {}
    for number, (name, ids) in enumerate(job["stretches"]):
        exact = load_file(str(folder / f"{number}.safetensors"))
        for length in job["lengths"]:
            scored = torch.tensor([ids[length : length + job["scored"]]])
            for system, (backend, options, bits) in SYSTEMS.items():
                cache = transformers.QuantizedCache(backend=backend, config=model.config, **options)
                for index in range(model.config.num_hidden_layers):
                    states = (exact[f"{what} {index}"][:, :, :length] for what in ("keys", "values"))
                    cache.update(*states, index)
                with torch.inference_mode():
                    logits = model(input_ids=scored, past_key_values=cache).logits[0]
                entry = found.setdefault(f"{system} {length}", {"bits": bits, "scores": {}})
                entry["scores"].setdefault(name, []).extend(compare(exact[f"truth {length}"], logits))
    (folder / "found.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
