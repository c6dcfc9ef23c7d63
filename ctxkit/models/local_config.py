"""What a model folder says about the model, read without torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxkit.errors import ModelError, ModelNotFoundError
from ctxkit.settings import require

if TYPE_CHECKING:
    from ctxkit.models.catalogue import ModelSource

__all__ = ["LocalConfig", "check_decoder", "read_config", "read_window", "verify_weights"]

_WINDOWS = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length", "n_ctx")
_DEFAULT_WINDOW = 2048


@dataclass(frozen=True, slots=True)
class LocalConfig:
    """The window in tokens, and the ids that end an answer by the model's own configuration."""

    window: int
    stop_ids: frozenset[int]
    architecture: str


def read_config(folder: Path) -> LocalConfig:
    """Read `config.json` and `generation_config.json`. Errors: `ModelNotFoundError`, `ModelError`."""
    config = _read(folder / "config.json")
    if config is None:
        raise ModelNotFoundError(
            "the folder holds no config.json",
            subject=str(folder),
            remedy="Give a folder that save_pretrained() wrote, or a GGUF file.",
        )
    text: dict[str, Any] = nested if isinstance(nested := config.get("text_config"), dict) else {}
    window = next((int(value) for key in _WINDOWS if (value := config.get(key) or text.get(key))), _DEFAULT_WINDOW)
    stops: set[int] = set()
    for values in (config, text, _read(folder / "generation_config.json") or {}):
        eos = values.get("eos_token_id")
        stops.update(eos if isinstance(eos, list) else [] if eos is None else [eos])
    names = config.get("architectures") or [config.get("model_type", "")]
    return LocalConfig(window, frozenset(stops), str(names[0]))


def read_window(source: ModelSource) -> int:
    """The window of a model that was found; of a GGUF file by its own header, so that nothing is converted."""
    if source.kind == "folder":
        return read_config(source.path).window
    gguf = require("gguf", extra="local", subject=str(source.path))
    return _gguf_window(gguf, source.path, source.path.stat().st_mtime_ns)


@lru_cache(maxsize=8)
def _gguf_window(gguf: Any, path: Path, _changed: int) -> int:
    fields = gguf.GGUFReader(str(path)).fields
    architecture = fields["general.architecture"].contents()
    found = fields.get(f"{architecture}.context_length")
    return int(found.contents()) if found is not None else _DEFAULT_WINDOW


def verify_weights(folder: Path) -> list[Path]:
    """The folder's weight files, after checking that each is whole. Errors: `ModelError`, `ModelNotFoundError`.

    A safetensors file declares its own length: eight bytes, a JSON header, and offsets; a cut file is found by them.
    """
    index = _read(folder / "model.safetensors.index.json")
    names = sorted(set(index["weight_map"].values())) if index else ["model.safetensors"]
    files = [folder / name for name in names]
    for file in files:
        if not file.is_file():
            raise ModelNotFoundError(
                f"the weights {file.name} are missing",
                subject=str(folder),
                remedy="Fetch the model again; only safetensors weights are loaded.",
            )
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            size = file.stat().st_size
            try:
                header: dict[str, Any] = json.loads(opened.read(length)) if length < size else {}
                ends = [entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__"]
            except (ValueError, KeyError, TypeError):
                ends = []
        if not ends or 8 + length + max(ends) != size:
            raise ModelError(
                "the weights are damaged or cut short",
                subject=str(file),
                remedy="Delete the folder and fetch or convert the model again.",
            )
    return files


def check_decoder(folder: Path) -> None:
    """Errors: `ModelError` for an encoder-decoder, of which transformers would load one half with random weights."""
    config = _read(folder / "config.json") or {}
    if config.get("is_encoder_decoder"):
        raise ModelError(
            "an encoder-decoder answers no prompts by itself",
            subject=str(folder),
            remedy="Use a causal language model (a decoder).",
        )


def _read(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(
            f"not JSON ({error})", subject=str(path), remedy="Delete the folder and fetch the model again."
        ) from error
    return loaded if isinstance(loaded, dict) else None
