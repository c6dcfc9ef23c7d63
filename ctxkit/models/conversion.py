"""Converts a GGUF file once into a folder that loads fast: safetensors, config, tokenizer, chat template.

The tokenizer is converted by itself (seconds), so that counting needs no weights; the weights (half a minute for a
small model) when a model is first asked. Both appear whole or not at all: they are written beside their place and
renamed, and a lock keeps two processes from doing the same work.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from hashlib import sha256
from pathlib import Path
from typing import Any

from ctxkit.errors import ModelError
from ctxkit.settings import cache_dir, require

__all__ = ["converted_tokenizer", "converted_weights", "offline_transformers", "place_atomically"]

_SAMPLES = ("Hello, world!\n", "  two  spaces 1234\t5.6", "这是一个句子。", "👍🏽 e\u0301 \x00", "<|im_start|>system\n")


def converted_tokenizer(gguf: Path) -> Path:
    """The folder with the tokenizer and template of a GGUF file; converted when it is not there."""
    whole = _target(gguf)
    if (whole / "tokenizer.json").is_file():
        return whole
    target = whole.with_name(f"{whole.name}-tokenizer")
    return place_atomically(target, lambda folder: _convert_tokenizer(gguf, folder))


def converted_weights(gguf: Path) -> Path:
    """The folder with everything of a GGUF file; converted when it is not there."""

    def fill(folder: Path) -> None:
        tokenizer = converted_tokenizer(gguf)
        for path in tokenizer.iterdir():
            shutil.copy2(path, folder / path.name)
        _convert_weights(gguf, folder)

    return place_atomically(_target(gguf), fill)


def place_atomically(target: Path, fill: Callable[[Path], None]) -> Path:
    """Have `fill` write a folder beside `target`, then rename it there; other processes wait and find it done."""
    if target.is_dir():
        return target
    filelock = require("filelock", extra="local", subject=str(target))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(str(target.with_name(f".{target.name}.lock"))):
            if target.is_dir():
                return target
            temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
            try:
                fill(temporary)
                temporary.chmod(0o755)
                for path in temporary.iterdir():
                    path.chmod(0o644)
                os.replace(temporary, target)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise
    except OSError as error:
        raise ModelError(
            f"the model's folder cannot be written ({error})",
            subject=str(target),
            remedy="Free some space there, or point CTXKIT_CACHE to another folder.",
        ) from error
    return target


def _target(gguf: Path) -> Path:
    """The cache folder of this very file, by its name, size and both ends."""
    size = gguf.stat().st_size
    digest = sha256(str(size).encode())
    with gguf.open("rb") as file:
        digest.update(file.read(1 << 20))
        file.seek(max(0, size - (1 << 20)))
        digest.update(file.read())
    return cache_dir() / "models" / f"{gguf.stem.lower()}-{digest.hexdigest()[:16]}"


@contextmanager
def offline_transformers() -> Iterator[Any]:
    """transformers, quiet, and never asking the hub (law 9); its settings are put back."""
    transformers = require("transformers", extra="local")
    require("gguf", extra="local")
    hub: Any = require("huggingface_hub.constants", extra="local")
    before, verbosity = hub.HF_HUB_OFFLINE, transformers.logging.get_verbosity()
    hub.HF_HUB_OFFLINE = True
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        yield transformers
    finally:
        hub.HF_HUB_OFFLINE = before
        transformers.logging.set_verbosity(verbosity)
        transformers.logging.enable_progress_bar()


def _convert_tokenizer(gguf: Path, folder: Path) -> None:
    with offline_transformers() as transformers, _explained(gguf):
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
        tokenizer.save_pretrained(str(folder))
        fields = require("gguf", extra="local").GGUFReader(str(gguf)).fields
    if "tokenizer.ggml.pre" in fields and fields["tokenizer.ggml.pre"].contents() == "smollm":
        _split_digits(folder / "tokenizer.json")
    _check_tokenizer(gguf, folder)


def _split_digits(path: Path) -> None:
    """SmolLM cuts every digit off before it merges; the conversion knows the merges but not that."""
    state = json.loads(path.read_text(encoding="utf-8"))
    digits = {"type": "Digits", "individual_digits": True}
    state["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [digits, state["pre_tokenizer"]]}
    path.write_text(json.dumps(state, ensure_ascii=False), encoding="utf-8")


def _check_tokenizer(gguf: Path, folder: Path) -> None:
    """What went in must come out, and data must not become control tokens."""
    from ctxkit.models.local_tokenizer import LocalTokenizer

    tokenizer = LocalTokenizer(folder)
    for text in _SAMPLES:
        ids = tokenizer.encode_data(text)
        if tokenizer.decode(ids) != text or tokenizer.control_ids.intersection(ids):
            raise ModelError(
                f"the converted tokenizer does not give {text!r} back",
                subject=str(gguf),
                remedy="Use the model's original tokenizer.json: save it in a folder and name that folder.",
            )


def _convert_weights(gguf: Path, folder: Path) -> None:
    with offline_transformers() as transformers, _explained(gguf), _no_bar_in_a_pipe():
        torch = require("torch", extra="local")
        read = transformers.AutoModelForCausalLM.from_pretrained(
            str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32
        )
        # A model read from GGUF refuses to be saved in some versions; one made afresh with its weights does not.
        config = read.config
        if hasattr(config, "quantization_config"):
            del config.quantization_config
        fresh = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        fresh.load_state_dict(read.state_dict())
        fresh.tie_weights()
        generation = getattr(read, "generation_config", None)
        if generation is not None:
            fresh.generation_config = generation
        fresh.save_pretrained(str(folder))
    path = folder / "config.json"
    config_values = json.loads(path.read_text(encoding="utf-8"))
    if config_values.pop("quantization_config", None) is not None:
        path.write_text(json.dumps(config_values, indent=2, sort_keys=True), encoding="utf-8")


@contextmanager
def _no_bar_in_a_pipe() -> Iterator[None]:
    """transformers draws its progress bar of this conversion everywhere; it is for terminals."""
    if sys.stderr is None or sys.stderr.isatty():
        yield
        return
    with redirect_stderr(io.StringIO()):
        yield


@contextmanager
def _explained(gguf: Path) -> Iterator[None]:
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise ModelError(
            f"the GGUF file cannot be converted ({type(error).__name__}: {error})",
            subject=str(gguf),
            remedy="Check that the file is complete and that transformers supports its architecture.",
        ) from error
