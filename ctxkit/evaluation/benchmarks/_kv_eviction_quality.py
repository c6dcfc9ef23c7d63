"""What eviction costs: how far a model drifts, and which pass keys it still finds, when tokens before are gone."""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ctxkit.evaluation.benchmarks._kv_lookups import _pass_keys
from ctxkit.evaluation.benchmarks._kv_quality import _filled, _read_on, compare, standard_error
from ctxkit.evaluation.benchmarks._kv_texts import LayerStates, load, model_folder, read, texts
from ctxkit.evaluation.peers import peer_python, run_worker
from ctxkit.evaluation.report import Bar, Report
from ctxkit.kvcache import CompressedCache
from ctxkit.kvcache.eviction import (
    Eviction,
    Evictor,
    ExpectedAttention,
    KVzip,
    Queries,
    Reading,
    SnapKV,
    evict,
    observe,
    per_layer_masks,
)
from ctxkit.settings import require

__all__ = ["run"]

SCORED = 176
METHODS: dict[str, tuple[Evictor, bool]] = {
    "KVzip": (KVzip(), False),
    "KVzip, even": (KVzip(), True),
    "ExpectedAttention": (ExpectedAttention(), True),
    "SnapKV": (SnapKV(), True),
}
"""By the name in the table: the method, and whether all layers keep equally many."""
SMALLER = 7


@dataclass(frozen=True, slots=True)
class Case:
    """What is read into the cache and evicted from, and what is read on top; `answer` tokens of it are a pass key."""

    name: str
    text: list[int]
    after: list[int]
    answer: int = 0


@dataclass(frozen=True, slots=True)
class _Scored:
    """Scores that were computed once, for more than one eviction."""

    found: list[Any]
    name: ClassVar[str] = "scored"
    observed: ClassVar[int] = 512

    def scores(self, reading: Reading) -> list[Any]:
        return self.found


@dataclass(slots=True)
class _Result:
    pairs: dict[str, list[tuple[float, float]]]
    right: list[bool]
    smaller: list[float]
    seconds: list[float]


Results = dict[tuple[str, int], _Result]


def run(data: Path, *, full: bool = False) -> Report:
    """KL divergence from the whole cache, in nats a token; the question is not known when tokens are evicted.

    `2x` evicts half of the tokens and packs nothing; `7x` evicts about as many, packs the rest with int4 and counts
    every live byte of the idle cache, against FP16. Peers get the same ids and the same share. Pass keys: as in
    `lookups`. `x prefill` is processor time of reading and choosing, over that of reading.

    Args:
        full: three stretches of each text instead of one; and one of each of 4,096 tokens too.
    """
    model = load()
    cases = list(_cases(data, full))
    results: Results = defaultdict(lambda: _Result(defaultdict(list), [], [], []))
    truths: list[Any] = []
    for case in cases:
        started = time.process_time()
        with observe(model, _Scored([])) as queries:
            states = read(model, case.text, {}).states
        prefill = time.process_time() - started
        truths.append(_read_on(model, _row(case.after), _filled(model, states, "none")).log_softmax(-1))
        _evict(model, case, states, queries, truths[-1], prefill, results)
    report = Report("kvcache eviction-quality", f"{len(cases)} prefixes, {SCORED} tokens scored after each text")
    peers = _peers(cases)
    if peers is None:
        report.data += "; no peers (make peers)"
    else:
        _judge(cases, truths, peers, results)
    report.rows = [_as_row(system, tokens, found) for (system, tokens), found in results.items()]
    for row in report.rows:
        if row["system"] in ("KVzip 2x", "KVzip 7x"):
            at = f"{row['system']} @{row['tokens']}"
            report.bars.append(Bar(f"{at} KL", row["KL"], *_limit(row["KL"], 0.01 if "2x" in at else 0.02)))
            if row["right"]:
                report.bars.append(Bar.at_least(f"{at} pass keys of 5", int(row["right"][0]), 5))
            if "7x" in at:
                report.bars.append(Bar.at_least(f"{at} times smaller", row["x smaller"], SMALLER))
    return report


def _limit(value: float, limit: float) -> tuple[str, bool]:
    return f"<= {limit:g}", value <= limit


def _cases(data: Path, full: bool) -> Iterator[Case]:
    for tokens, count in ((1024, 3), (4096, 1)) if full else ((1024, 1),):
        for name, ids in texts(data, tokens + SCORED, count):
            yield Case(name, ids[:tokens], ids[tokens:])
    for _, text, question, answer in _pass_keys(data):
        yield Case("pass key", text, question + answer, len(answer))


def _row(ids: list[int]) -> Any:
    torch: Any = require("torch", extra="local")
    return torch.tensor([ids])


def _evict(
    model: Any, case: Case, states: LayerStates, queries: Queries, truth: Any, prefill: float, results: Results
) -> None:
    tokens = len(case.text)
    packed = _filled(model, states, "int4")
    layer = packed.compressed_layers[0]
    keys, _ = layer.keys_values(0, 1)
    half = 4 * keys.shape[1] * keys.shape[3]  # bytes of a token's keys and values in a layer
    a_token = layer.memory().packed / layer.packed.tokens
    fitting = int((tokens * half / SMALLER - layer.settings.sinks * half) / a_token)
    scored: dict[str, tuple[_Scored, float]] = {}
    for system, (method, even) in METHODS.items():
        if method.name not in scored:
            started = time.process_time()
            reading = Reading(cache=_filled(model, states, "none"), model=model, ids=case.text, queries=queries)
            scored[method.name] = _Scored(method.scores(reading)), time.process_time() - started
        scores, seconds = scored[method.name]
        sizes = [("2x", "none", Eviction(method=scores, keep=0.5, even=even))]
        if not even:
            packing = Eviction(method=scores, keep=fitting, even=even, align=layer.settings.block)
            sizes.append((f"{SMALLER}x", "int4", packing))
        for size, codec, eviction in sizes:
            cache = CompressedCache(model.config, codec=codec, window=0)
            for held, pair in zip(cache.layers, states, strict=True):
                held.update(*pair)
            evict(cache, eviction)
            if codec == "int4":
                cache.demote()
            bytes_whole = tokens * half * len(states) * (1 if codec == "int4" else 2)
            result = results[f"{system} {size}", _rounded(tokens)]
            result.smaller.append(bytes_whole / cache.memory_bytes)
            result.seconds.append(1 + seconds / prefill)
            with per_layer_masks(model):
                logits = _read_on(model, _row(case.after), cache)
            _add(result, case, truth, logits)


def _rounded(tokens: int) -> int:
    return round(tokens / 1024) * 1024


def _add(result: _Result, case: Case, truth: Any, logits: Any) -> None:
    if case.answer:
        said = logits[-case.answer - 1 : -1].argmax(-1).tolist()
        result.right.append(said == case.after[-case.answer :])
    else:
        result.pairs[case.name] += compare(truth, logits)


def _as_row(system: str, tokens: int, found: _Result) -> dict[str, Any]:
    means = {name: sum(pair[0] for pair in pairs) / len(pairs) for name, pairs in found.pairs.items()}
    errors = [standard_error([pair[0] for pair in pairs]) for pairs in found.pairs.values()]
    same = [pair[1] for pairs in found.pairs.values() for pair in pairs]
    return {
        "system": system,
        "tokens": tokens,
        "KL": round(sum(means.values()) / len(means), 4),
        "KL +-": round(math.hypot(*errors) / len(errors), 4),
        "top-1 %": round(100 * sum(same) / len(same), 1),
        **{f"KL {name}": round(value, 4) for name, value in means.items()},
        "x smaller": round(sum(found.smaller) / len(found.smaller), 2),
        "right": f"{sum(found.right)}/{len(found.right)}" if found.right else "",
        "x prefill": round(sorted(found.seconds)[len(found.seconds) // 2], 2),
    }


def _judge(cases: list[Case], truths: list[Any], folder: tempfile.TemporaryDirectory[str], results: Results) -> None:
    with folder as name:
        logits = require("safetensors.torch", extra="local").load_file(str(Path(name, "found.safetensors")))
        measured = json.loads(Path(name, "found.json").read_text(encoding="utf-8"))
    for press, rows in measured.items():
        for number, (case, truth, (smaller, seconds)) in enumerate(zip(cases, truths, rows, strict=True)):
            result = results[f"kvpress {press} 2x", _rounded(len(case.text))]
            result.smaller.append(smaller)
            result.seconds.append(seconds)
            _add(result, case, truth, logits[f"{press} {number}"])


def _peers(cases: list[Case]) -> tempfile.TemporaryDirectory[str] | None:
    """The folder of what presses of kvpress found, in an environment of their own; None where it is not there."""
    python = peer_python("kvcache")
    if python is None:
        return None
    folder = tempfile.TemporaryDirectory()
    listed = [{"text": case.text, "after": case.after} for case in cases]
    job = {"model": str(model_folder()), "keep": 0.5, "cases": listed}
    Path(folder.name, "job.json").write_text(json.dumps(job), encoding="utf-8")
    worker = Path(__file__).with_name("_kv_presses_worker.py")
    run_worker(python, worker, Path(folder.name))
    return folder
