"""`ctxkit kv plan`: the memory of a model and a context, before anything is loaded."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ctxkit.cli.output import JsonOption, emit, say, table
from ctxkit.errors import ConfigError, KVCacheError

if TYPE_CHECKING:
    from ctxkit.kvcache.architecture import Architecture
    from ctxkit.kvcache.planning import Plan

__all__ = ["add_to", "parse_bytes"]

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZES = {"float32": 4, "bfloat16": 2, "float16": 2}


def add_to(app: typer.Typer) -> None:
    app.command("plan")(plan)


def plan(
    model: str = typer.Argument(
        "local",
        help="local, an installed model, a folder, a config.json, or numbers: layers=30,kv_heads=3,head_dim=64.",
    ),
    context: int = typer.Option(4096, "--context", min=1, help="Tokens of prompt and answer together."),
    batch: int = typer.Option(1, "--batch", min=1, help="Sequences."),
    memory: str | None = typer.Option(
        None, "--memory", help="To fit into, such as 8GB or 512MiB. [default: what is free]"
    ),
    codec: list[str] = typer.Option([], "--codec", help="Only these codecs; repeat for more."),
    dtype: str = typer.Option("float32", "--dtype", help="Of the computation: float32, bfloat16 or float16."),
    prefill: int = typer.Option(256, "--prefill", min=1, help="Tokens that are read at once."),
    as_json: bool = JsonOption,
) -> None:
    """Say what a context takes by codec, the longest context and the largest batch that fit. Loads no model.

    Exit code 1 where the context fits with no codec.

    Example: ctxkit kv plan local --context 8192 --memory 2GB
    """
    from ctxkit.kvcache.available import memory_state
    from ctxkit.kvcache.planning import fitting_codecs
    from ctxkit.kvcache.planning import plan as plan_memory

    if dtype not in _SIZES:
        raise ConfigError(f"dtype is {dtype!r}", remedy=f"Use one of {', '.join(_SIZES)}.")
    room = parse_bytes(memory) if memory is not None else memory_state().free
    one = architecture(model)
    found = plan_memory(
        one,
        context=context,
        batch=batch,
        itemsize=_SIZES[dtype],
        memory=room,
        codecs=tuple(dict.fromkeys(codec)) or fitting_codecs(one),
        prefill=prefill,
    )
    if as_json:
        emit({"model": model, **found.to_json()})
    else:
        _say(model, dtype, room, found)
    if not found.fits:
        raise typer.Exit(1)


def _say(model: str, dtype: str, room: int, found: Plan) -> None:
    from ctxkit.kvcache.diagnosis import in_words

    one = found.architecture
    sliding = f", {one.sliding_layers} of them over {one.sliding_window:,} tokens" if one.sliding_layers else ""
    say(f"{model}: {one.layers} layers{sliding}, {one.kv_heads} heads of {one.head_dim}, {dtype}")
    say(f"weights {in_words(found.weights)}, peak of reading {in_words(found.prefill_peak)}, memory {in_words(room)}")
    rows = [
        {
            "codec": row.codec,
            "bits": round(row.bits, 2),
            "bytes a token": round(row.bytes_per_token),
            "idle": in_words(row.idle),
            "active": in_words(row.active),
            "total": in_words(row.total),
            "longest context": f"{row.longest_context:,}",
            "largest batch": f"{row.largest_batch:,}",
        }
        for row in found.rows
    ]
    say(table(rows))
    say("fits" if found.fits else "does not fit")


def architecture(model: str) -> Architecture:
    """Of a model by name or path, of a `config.json`, or of numbers.

    Errors: `ConfigError`, `ModelNotFoundError`, `KVCacheError`.
    """
    from ctxkit.kvcache.architecture import Architecture

    if "=" in model and not Path(model).exists():
        return Architecture(**_numbers(model))
    path = Path(model.removeprefix("local:"))
    file = path / "config.json" if path.is_dir() else path
    if file.suffix == ".json" and file.is_file():
        return Architecture.of(_config(file))
    from ctxkit.models.catalogue import resolve

    return Architecture.of(_config(resolve(model.removeprefix("local:")).folder() / "config.json"))


def _numbers(text: str) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        try:
            numbers[name.strip()] = int(value)
        except ValueError:
            raise ConfigError(
                "a number of the architecture is none", subject=part, remedy="Write layers=30,kv_heads=3,head_dim=64."
            ) from None
    from dataclasses import fields

    from ctxkit.kvcache.architecture import Architecture

    known = {field.name for field in fields(Architecture)}
    wrong = sorted({*numbers} - known) or sorted({"layers", "kv_heads", "head_dim"} - {*numbers})
    if wrong:
        raise ConfigError(
            f"{wrong[0]} is missing or not known",
            subject=text,
            remedy=f"Give layers, kv_heads and head_dim; also {', '.join(sorted(known))}.",
        )
    return numbers


def _config(file: Path) -> dict[str, Any]:
    try:
        loaded = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise KVCacheError(
            f"the configuration cannot be read ({error})", subject=str(file), remedy="Give a config.json of a model."
        ) from error
    if not isinstance(loaded, dict):
        raise KVCacheError("the configuration is no object", subject=str(file), remedy="Give a config.json of a model.")
    return loaded


def parse_bytes(text: str) -> int:
    """`8GB`, `512MiB`, `1.5g` or a number of bytes. Errors: `ConfigError`."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", text, re.IGNORECASE)
    if not found or len(found[1]) > 30:  # so many digits that no float holds them
        raise ConfigError("no amount of memory", subject=text, remedy="Write 8GB, 512MiB, or a number of bytes.")
    return int(float(found[1]) * _UNITS[(found[2] or "").lower()])
