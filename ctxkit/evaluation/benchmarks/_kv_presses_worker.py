"""Runs in the peers' environment, where ctxkit is not: the presses of kvpress on the same ids.

The folder it is given holds `job.json`: the model, and cases of the ids that are read into the cache and those that are
read on top. What is written, `found.safetensors`: by press, share and case the logits of what was read on top; and
`found.json`: live bytes of the cache over those of 16 bits, and seconds of reading and pressing, over those of reading.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

import torch
import transformers
from kvpress import ExpectedAttentionPress, KVzipPress, SnapKVPress
from safetensors.torch import save_file

PRESSES = {"ExpectedAttention": ExpectedAttentionPress, "SnapKV": SnapKVPress, "KVzip": KVzipPress}


def live_bytes(cache: Any) -> int:
    storages = {
        x.untyped_storage().data_ptr(): x.untyped_storage().nbytes()
        for layer in cache.layers
        for x in (layer.keys, layer.values)
    }
    return sum(storages.values())


def main(folder: Path) -> None:
    logging.disable(logging.WARNING)
    job = json.loads((folder / "job.json").read_text("utf-8"))
    model = transformers.AutoModelForCausalLM.from_pretrained(job["model"], dtype=torch.float32).eval()
    logits: dict[str, Any] = {}
    found: dict[str, Any] = {}
    with torch.inference_mode():
        for number, case in enumerate(job["cases"]):
            text, after = torch.tensor([case["text"]]), torch.tensor([case["after"]])
            started = time.process_time()
            model.model(input_ids=text, past_key_values=transformers.DynamicCache())
            plain = time.process_time() - started
            for name, press in PRESSES.items():
                cache = transformers.DynamicCache()
                started = time.process_time()
                with press(compression_ratio=1 - job["keep"])(model):
                    model.model(input_ids=text, past_key_values=cache)
                seconds = time.process_time() - started
                held = sum(2 * layer.keys.shape[1] * layer.keys.shape[3] for layer in cache.layers) * text.shape[1] * 4
                found.setdefault(name, []).append([held / live_bytes(cache), seconds / plain])
                positions = torch.arange(text.shape[1], text.shape[1] + after.shape[1])[None]
                read = model(input_ids=after, past_key_values=cache, position_ids=positions)
                logits[f"{name} {number}"] = read.logits[0].contiguous()
                for layer in model.model.layers:  # KVzip leaves its masks behind
                    layer.self_attn.masked_key_indices = None
    save_file(logits, str(folder / "found.safetensors"))
    (folder / "found.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
