"""Prefix reuse: time to the first token from memory and, after a restart, from disk; and that no bit changes."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ctxkit.evaluation.benchmarks._kv_texts import load, texts
from ctxkit.evaluation.report import Bar, Report
from ctxkit.kvcache.compat import cache_argument
from ctxkit.kvcache.reuse import PrefixCache
from ctxkit.kvcache.store import GIBIBYTE, BlockStore
from ctxkit.models.decoding import FreshCache, KeyValueCache, prefill_spans
from ctxkit.settings import require

__all__ = ["run"]

LENGTHS = (1024, 2048, 4096)
SUFFIX = 64
FROM_MEMORY = {1024: 6.0, 2048: 12.0, 4096: 18.0}
FROM_DISK = {1024: 4.0, 2048: 8.0, 4096: 13.0}


def run(data: Path, *, full: bool = False, repeats: int | None = None) -> Report:
    """Ratios of wall time, a cold prefill in turn with a warm one; the median of them. Beside it of processor time,
    which a busy machine disturbs less and which leaves out waiting for the disk.

    The prefix was stored by a request with another suffix. From disk: a process of its own opens the folder, and so
    finds nothing in memory; the files may be in the system's cache.

    Args:
        full: five repetitions and not two.
        repeats: instead of these.
    """
    repeats = repeats or (5 if full else 2)
    model = load()
    name, ids = next(texts(data, max(LENGTHS) + 2 * SUFFIX, 1))
    report = Report("kvcache prefix", f"{name}, a suffix of {SUFFIX} tokens, {repeats} repetitions, one machine")
    with tempfile.TemporaryDirectory() as folder:
        for codec, memory in (("none", 2 * GIBIBYTE), ("int4", GIBIBYTE)):
            store = BlockStore(None if codec == "none" else folder, memory_bytes=memory, durable=False)
            with PrefixCache(store, codec=codec, tenant="bench") as cache:
                other = [*ids[: max(LENGTHS)], *ids[-SUFFIX:]]
                first_token(model, other, cache, give=True)
                cache.flush()
                if codec == "none":
                    for length in LENGTHS:
                        prompt = ids[: length + SUFFIX]
                        report.rows.append({"from": "memory", "codec": codec, **compare(model, prompt, cache, repeats)})
        command = [sys.executable, "-m", "ctxkit.evaluation.benchmarks._kv_prefix"]
        job = {"folder": folder, "ids": ids, "repeats": repeats}
        done = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True, check=True)
        report.rows += [{"from": "disk", "codec": "int4", **row} for row in json.loads(done.stdout.splitlines()[-1])]
    for row in report.rows:
        length, memory = row["tokens"] - SUFFIX, row["from"] == "memory"
        target = (FROM_MEMORY if memory else FROM_DISK)[length]
        label = "none from memory" if memory else "int4 from disk"
        report.bars.append(Bar.at_least(f"{label}, time to first token, times @{length}", row["times"], target))
        report.bars.append(Bar.at_least(f"{label}, full blocks hit @{length}", row["reused"] / length, 1.0))
        if memory:
            report.bars.append(Bar.at_most(f"{label}, largest difference of a logit @{length}", row["difference"], 0.0))
    return report


def compare(model: Any, prompt: list[int], cache: PrefixCache, repeats: int, *, reopen: Path | None = None) -> Any:
    """A row: cold and warm in turn. With `reopen` each warm run opens the folder anew, with nothing in memory."""
    reused, difference, same = 0, 0.0, True
    seconds: list[tuple[float, float]] = []
    processor: list[tuple[float, float]] = []
    for _ in range(repeats):
        started = time.process_time()
        cold, cold_logits, _ = first_token(model, prompt, FreshCache())
        between = time.process_time()
        if reopen is not None:
            cache = PrefixCache(BlockStore(reopen), codec=cache.codec, tenant=cache.tenant)
        warm, warm_logits, reused = first_token(model, prompt, cache)
        difference = max(difference, float((cold_logits - warm_logits).abs().max()))
        same &= int(cold_logits.argmax()) == int(warm_logits.argmax())
        seconds.append((cold, warm))
        processor.append((between - started, time.process_time() - between))
    return {
        "tokens": len(prompt),
        "reused": reused,
        "times": round(statistics.median(cold / warm for cold, warm in seconds), 2),
        "times, processor": round(statistics.median(cold / warm for cold, warm in processor), 2),
        "cold s": round(statistics.median(cold for cold, _ in seconds), 3),
        "warm s": round(statistics.median(warm for _, warm in seconds), 3),
        "difference": difference,
        "same token": "yes" if same else "no",
    }


def first_token(model: Any, ids: list[int], cache: KeyValueCache, *, give: bool = False) -> tuple[float, Any, int]:
    """Seconds from the ids to the logits after the last of them, these logits, and how many ids were reused."""
    torch: Any = require("torch", extra="local")
    started = time.perf_counter()
    holder, reused = cache.take(model, ids)
    arguments = {cache_argument(model): holder, "use_cache": True, "logits_to_keep": 1}
    with torch.inference_mode():
        for start, end in prefill_spans(reused, len(ids)):
            logits = model(input_ids=torch.tensor([ids[start:end]]), **arguments).logits[0, -1]
        int(logits.argmax())
    seconds = time.perf_counter() - started
    if give:
        cache.give(model, ids, holder)
    return seconds, logits, reused


def _worker() -> None:
    job = json.loads(sys.stdin.read())
    folder, ids = Path(job["folder"]), job["ids"]
    model = load()
    with PrefixCache(BlockStore(folder), codec="int4", tenant="bench") as cache:
        cache.take(model, ids[:SUFFIX])  # the identity of the weights, which belongs to loading them
        rows = [compare(model, ids[: length + SUFFIX], cache, job["repeats"], reopen=folder) for length in LENGTHS]
    sys.stdout.write(json.dumps(rows) + "\n")


if __name__ == "__main__":
    _worker()
