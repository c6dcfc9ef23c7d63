"""Quality per byte: how far a model drifts when the text before is packed, and what the packed text takes."""

from __future__ import annotations

import json
import math
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from ctxkit.evaluation.benchmarks._kv_texts import LayerStates, Reading, load, model_folder, read, texts
from ctxkit.evaluation.peers import peer_python, run_worker
from ctxkit.evaluation.report import Bar, Report
from ctxkit.kvcache import CompressedCache
from ctxkit.kvcache.codecs.int4 import Int4Codec
from ctxkit.kvcache.compat import cache_argument
from ctxkit.settings import require

__all__ = ["compare", "run", "standard_error"]

LENGTHS = (1024, 4096)
SCORED = 176
SIZES = (1024, 2048, 4096)
CODECS: dict[str, Any] = {"int4": "int4", "int4-hq": "int4-hq", "int8": "int8"}
ABLATION: dict[str, Any] = {
    "int4, no search": Int4Codec(search=False),
    "int4, no rotation": Int4Codec(rotate=False),
    "int4, no offsets": Int4Codec(centre=False),
    "int4, none of them": Int4Codec(rotate=False, search=False, centre=False),
}
"""All at 4.5 bits; at the first length, with `full`."""

Scores = dict[tuple[str, int], dict[str, list[tuple[float, float]]]]
"""By system and length, by text: the divergence and whether the likeliest token is the same, of each scored token."""


def run(data: Path, *, full: bool = False, lengths: tuple[int, ...] = LENGTHS) -> Report:
    """KL divergence from the uncompressed cache, in nats a token, and agreement of the likeliest token in percent, each
    with its standard error.

    A prefix is read exactly, packed, and the next 176 tokens of the text are read on top; the uncompressed reading of
    the same tokens is the truth. Bits and bytes count scales, sinks and window. Peers are given the same states.

    Args:
        full: three stretches of each text (528 scored tokens a text and length), else one (528 in all).
    """
    torch: Any = require("torch", extra="local")
    model = load()
    count = 3 if full else 1
    total = max(lengths) + SCORED
    stretches = list(texts(data, total, count))
    scores: Scores = defaultdict(lambda: defaultdict(list))
    bits: dict[str, float] = {}
    sizes: dict[tuple[str, int], tuple[float, float]] = {}
    python = peer_python("kvcache")
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, ids) in enumerate(stretches):
            reading = read(model, ids, dict.fromkeys(lengths, SCORED))
            if python is not None:
                _hand_over(Path(folder, f"{number}.safetensors"), reading)
            for length in lengths:
                truth = reading.log_probabilities[length]
                given = torch.tensor([ids[length : length + SCORED]])
                systems = CODECS | ABLATION if full and length == lengths[0] else CODECS
                for system, codec in systems.items():
                    cache = _filled(model, reading.prefix(length), codec)
                    bits[system] = _bits(cache)
                    scores[system, length][name] += compare(truth, _read_on(model, given, cache))
            if not sizes:
                sizes = {
                    (system, tokens): _sizes(_filled(model, reading.prefix(tokens), CODECS[system]), tokens)
                    for system in CODECS
                    for tokens in SIZES
                    if tokens <= total
                }
        peers = _peers(python, Path(folder), stretches, lengths)
    report = Report("kvcache quality", f"{len(stretches)} stretches, {SCORED} tokens scored after each prefix")
    if peers is None:
        report.data += "; no peers (make peers)"
    for key, value in (peers or {}).items():
        system, _, tokens = key.rpartition(" ")
        bits[system] = value["bits"]
        for name, found in value["scores"].items():
            scores[system, int(tokens)][name] = [tuple(pair) for pair in found]
    report.rows = [_row(system, length, found, bits[system], sizes) for (system, length), found in scores.items()]
    report.rows.sort(key=lambda row: row["tokens"])
    report.bars = _bars(report.rows, sizes, bool(peers))
    return report


def compare(truth: Any, logits: Any) -> list[tuple[float, float]]:
    """The divergence `KL(truth || found)` in nats, and 1 where the likeliest token is the same, for each token."""
    found = logits.log_softmax(-1)
    divergence = (truth.exp() * (truth - found)).sum(-1).tolist()
    same = (truth.argmax(-1) == found.argmax(-1)).float().tolist()
    return list(zip(divergence, same, strict=True))


def _filled(model: Any, states: LayerStates, codec: Any) -> CompressedCache:
    cache = CompressedCache(model.config, codec=codec)
    for layer, (keys, values) in zip(cache.layers, states, strict=True):
        layer.update(keys, values)
    cache.demote()
    return cache


def _read_on(model: Any, ids: Any, cache: Any) -> Any:
    torch: Any = require("torch", extra="local")
    with torch.inference_mode():
        return model(input_ids=ids, **{cache_argument(model): cache}).logits[0]


def _bits(cache: CompressedCache) -> float:
    layer = cache.compressed_layers[0]
    keys, _ = layer.keys_values(0, 1)
    heads, dim = keys.shape[1], keys.shape[3]
    return 8 * layer.memory().packed / int(2 * heads * dim * layer.packed.tokens)


def _sizes(cache: CompressedCache, tokens: int) -> tuple[float, float]:
    """How many times smaller than FP16, idle and active."""
    keys, values = cache.keys_values(0, 1)[0]
    half = 2 * len(cache.layers) * (keys.numel() + values.numel()) * tokens
    idle = cache.memory_bytes
    cache.activate()
    return half / idle, half / cache.memory_bytes


def _row(
    system: str, length: int, found: dict[str, list[tuple[float, float]]], bits: float, sizes: dict[Any, Any]
) -> dict[str, Any]:
    means = {name: statistics.fmean(pair[0] for pair in pairs) for name, pairs in found.items()}
    errors = [standard_error([pair[0] for pair in pairs]) for pairs in found.values()]
    same = [100 * pair[1] for pairs in found.values() for pair in pairs]
    idle, active = sizes.get((system, length), ("", ""))
    return {
        "system": system,
        "tokens": length,
        "bits": round(bits, 2),
        "KL": round(statistics.fmean(means.values()), 6),
        "KL +-": round(math.hypot(*errors) / len(errors), 6),
        "top-1 %": round(statistics.fmean(same), 2),
        "top-1 +-": round(standard_error(same), 2),
        **{f"KL {name}": round(value, 6) for name, value in means.items()},
        "scored": len(same),
        "x smaller, idle": idle and round(idle, 2),
        "x smaller, active": active and round(active, 2),
    }


def standard_error(values: list[float]) -> float:
    """The standard error of a mean, of tokens as if they were independent."""
    return statistics.stdev(values) / math.sqrt(len(values))


def _bars(rows: list[dict[str, Any]], sizes: dict[Any, Any], peers: bool) -> list[Bar]:
    bars = []
    by_key = {(row["system"], row["tokens"]): row for row in rows}
    targets = {"int4": (0.0025, 97.5, 4.5), "int4-hq": (0.0015, 98.3, 4.75), "int8": (0.0001, None, None)}
    for (system, length), row in by_key.items():
        if system not in targets:
            continue
        divergence, same, bits = targets[system]
        bars.append(Bar(f"{system} KL @{length}", row["KL"], f"<= {divergence:g}", row["KL"] <= divergence))
        if same is not None and bits is not None:
            bars.append(Bar.at_least(f"{system} top-1 @{length}", row["top-1 %"], same))
            bars.append(Bar.at_most(f"{system} bits @{length}", row["bits"], bits))
    for (system, tokens), (idle, _) in sizes.items():
        if system == "int4":
            target = {1024: 2.6, 2048: 3.0, 4096: 3.3}[tokens]
            bars.append(Bar.at_least(f"int4 idle, times smaller than FP16 @{tokens}", idle, target))
    if peers:
        for length in sorted({row["tokens"] for row in rows}):
            best = min(
                row["KL"]
                for row in rows
                if row["tokens"] == length and not row["system"].startswith("int") and 4 <= row["bits"] <= 4.6
            )
            ours = by_key["int4", length]["KL"]
            bars.append(Bar.at_least(f"best peer at 4.5 bits, KL times ours @{length}", best / ours, 3))
    return bars


def _hand_over(file: Path, reading: Reading) -> None:
    """Write what the model computed, for a process that has no ctxkit."""
    tensors = {f"truth {length}": found for length, found in reading.log_probabilities.items()}
    for number, (keys, values) in enumerate(reading.states):
        tensors |= {f"keys {number}": keys.contiguous(), f"values {number}": values.contiguous()}
    require("safetensors.torch", extra="local").save_file(tensors, str(file))


def _peers(
    python: Path | None, folder: Path, stretches: list[tuple[str, list[int]]], lengths: tuple[int, ...]
) -> dict[str, Any] | None:
    """What the caches of transformers score in an environment of their own; None where it is not there."""
    if python is None:
        return None
    worker = Path(__file__).with_name("_kv_peers_worker.py")
    job = {"model": str(model_folder()), "lengths": lengths, "scored": SCORED, "stretches": stretches}
    Path(folder, "job.json").write_text(json.dumps(job), encoding="utf-8")
    run_worker(python, worker, folder)
    found: dict[str, Any] = json.loads(Path(folder, "found.json").read_text(encoding="utf-8"))
    return found
