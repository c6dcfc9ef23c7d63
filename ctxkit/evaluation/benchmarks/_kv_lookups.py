"""Lookups: a pass key in a long text, and values of keys in a JSON object, with the text packed and without."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ctxkit.errors import ConfigError
from ctxkit.evaluation.benchmarks._kv_quality import _filled, _read_on
from ctxkit.evaluation.benchmarks._kv_texts import load, read, texts, tokenizer
from ctxkit.evaluation.report import Bar, Report
from ctxkit.settings import require

__all__ = ["run"]

SYSTEMS = ("none", "int4", "int4-hq", "int8")
PASS_KEY_TOKENS = 1024
KEYS = (4, 8)

Lookup = tuple[str, list[int], list[int], list[int]]
"""The task, and the ids of its text, its question and its answer."""


def run(data: Path, *, full: bool = False) -> Report:
    """Answers of which every token is the likeliest one: what greedy decoding would say, in one pass.

    Args:
        full: 20 key-value prompts of each size instead of 5.
    """
    torch: Any = require("torch", extra="local")
    model = load()
    right: dict[tuple[str, str], list[bool]] = {}
    tokens: dict[str, list[int]] = {}
    for task, text, question, answer in [*_pass_keys(data), *_key_values(data, 20 if full else 5)]:
        tokens.setdefault(task, []).append(len(text))
        reading = read(model, text, {})
        for system in SYSTEMS:
            cache = _filled(model, reading.states, system)
            logits = _read_on(model, torch.tensor([question + answer]), cache)
            said = logits[len(question) - 1 : -1].argmax(-1).tolist()
            right.setdefault((task, system), []).append(said == answer)
    report = Report("kvcache lookups", ", ".join(f"{task}: {len(found)}" for task, found in tokens.items()))
    for task, found in tokens.items():
        report.rows.append(
            {
                "system": f"lookup: {task}",
                "tokens": round(sum(found) / len(found)),
                **{f"right, {system}": f"{sum(right[task, system])}/{len(found)}" for system in SYSTEMS},
            }
        )
    for system in ("int4", "int4-hq"):
        report.bars.append(Bar.at_least(f"{system} pass keys of 5", sum(right["pass key", system]), 5))
        for task in list(tokens)[1:]:
            report.bars.append(
                Bar.at_least(f"{system} {task}, right", sum(right[task, system]), sum(right[task, "none"]))
            )
    return report


def _encode(text: str) -> list[int]:
    ids: list[int] = tokenizer().encode(text, add_special_tokens=False).ids
    return ids


def _pass_keys(data: Path) -> Iterator[Lookup]:
    """Five pass keys at five depths of prose."""
    chance = random.Random(5)
    _, filler = next(texts(data, PASS_KEY_TOKENS, 1))
    for number in range(5):
        key = str(chance.randrange(10_000, 100_000))
        needle = _encode(f"\nThe pass key is {key}. Remember it. {key} is the pass key.\n")
        room = PASS_KEY_TOKENS - len(needle)
        at = room * (2 * number + 1) // 10
        yield (
            "pass key",
            filler[:at] + needle + filler[at:room],
            _encode("\nWhat is the pass key? The pass key is"),
            _encode(f" {key}"),
        )


def _key_values(data: Path, count: int) -> Iterator[Lookup]:
    """The first key-value pairs of `lost_in_middle`: all 75 of a prompt are more than a model of this size can find."""
    file = data / "lost_in_middle" / "kv-retrieval-75_keys.jsonl.gz"
    if not file.is_file():
        raise ConfigError("the data file is not here", subject=str(file), remedy="Set CTXKIT_DATA to its folder.")
    lines = gzip.decompress(file.read_bytes()).decode("utf-8").splitlines()
    for keys in KEYS:
        for number, line in enumerate(lines[:count]):
            pairs = json.loads(line)["ordered_kv_records"][:keys]
            key, value = pairs[number % keys]
            listed = ",\n ".join(f'"{name}": "{text}"' for name, text in pairs)
            text = f"Extract the value of the specified key in the JSON object below.\n\nJSON data:\n{{{listed}}}\n"
            yield f"{keys} keys", _encode(text), _encode(f'\nKey: "{key}"\nCorresponding value: "'), _encode(value)
