"""Names a model by its content, so that stored vectors are never compared with another model's."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from functools import cache
from pathlib import Path

from ctxkit.errors import EmbeddingError
from ctxkit.settings import cache_dir

__all__ = ["fingerprint_folder"]

_CONFIGURATION = (".json", ".txt", ".model")
_WEIGHTS = (".safetensors", ".bin")


@cache
def fingerprint_folder(folder: Path) -> str:
    """`st-` and 128 bits of a SHA-256 over the model's weights and configuration, wherever the folder lies.

    Hashing gigabytes at every start would cost seconds, so the hash is remembered under `cache_dir()`, keyed by every
    file's name, size and modification time; where nothing can be written it is computed again.
    """
    files = _files(folder)
    if not files:
        raise EmbeddingError("the folder holds no model", subject=str(folder), remedy="It needs weights and a config.")
    stamps = [(path.relative_to(folder).as_posix(), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    key = hashlib.sha256(json.dumps([str(folder), stamps]).encode()).hexdigest()
    remembered = cache_dir() / "fingerprints" / key
    with contextlib.suppress(OSError, ValueError):
        known = remembered.read_text("ascii")
        if len(known) == 35 and known.startswith("st-"):
            return known
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as stream:
            own = hashlib.file_digest(stream, "sha256").hexdigest()
        digest.update(f"{path.relative_to(folder).as_posix()}\0{own}\n".encode())
    fingerprint = f"st-{digest.hexdigest()[:32]}"
    with contextlib.suppress(OSError):
        _write(remembered, fingerprint)
    return fingerprint


def _files(folder: Path) -> list[Path]:
    """What the vectors depend on: the files of the folder and of its modules, `.bin` only without safetensors."""
    folders = [folder, *(path.parent for path in sorted(folder.glob("*/config.json")))]
    found = []
    for each in folders:
        files = sorted(path for path in each.iterdir() if path.is_file())
        weights = [path for path in files if path.suffix == ".safetensors"] or [
            path for path in files if path.suffix in _WEIGHTS
        ]
        found += weights + [path for path in files if path.suffix in _CONFIGURATION]
    return found


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "w", encoding="ascii") as stream:
        stream.write(text)
    os.replace(name, path)
