"""Arrays in a file that can always be built again: written atomically, checked when read, never trusted.

The format is numpy's uncompressed `.npz` with a JSON header. A file that is missing, cut off, damaged or not ours reads
as None, and the caller builds it anew.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import secrets
import time
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["read_arrays", "write_arrays"]

_HEADER = "header"
_LEFT_OVER_AFTER = 3600
"""Seconds after which an unfinished file belongs to a process that was killed."""


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], header: Mapping[str, str]) -> None:
    """Write arrays and a header: other processes see the file that was there before, or the whole new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = np.frombuffer(json.dumps(dict(header), sort_keys=True).encode("ascii"), dtype=np.uint8)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as stream:
            np.savez(stream, allow_pickle=False, **{_HEADER: facts, **arrays})
        os.replace(temporary, path)
    finally:
        _remove(temporary)
    for left in path.parent.glob(f"{glob.escape(path.name)}.*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _LEFT_OVER_AFTER:
                _remove(left)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def read_arrays(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]] | None:
    """The arrays and the header of a file, or None when it is not there or not whole. Checks every byte's CRC-32."""
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.testzip() is not None:
                return None
        with np.load(path, allow_pickle=False) as content:
            arrays = {name: content[name] for name in content.files}
        header = json.loads(arrays.pop(_HEADER).tobytes())
    except (OSError, ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error):
        return None
    return arrays, header
