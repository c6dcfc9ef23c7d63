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
import struct
import time
import zipfile
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["map_arrays", "read_arrays", "write_arrays"]

_HEADER = "header"
_LEFT_OVER_AFTER = 3600
"""Seconds after which an unfinished file belongs to a process that was killed."""


def write_arrays(
    path: Path, arrays: Mapping[str, NDArray[Any]], header: Mapping[str, str], *, sync: bool = False
) -> None:
    """Write arrays and a header: other processes see the file that was there before, or the whole new one.

    With `sync` the bytes are on the disk before the name is; without it a power cut may leave a file that reads as
    None.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = np.frombuffer(json.dumps(dict(header), sort_keys=True).encode("ascii"), dtype=np.uint8)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as stream:
            np.savez(stream, allow_pickle=False, **{_HEADER: facts, **arrays})
            if sync:
                stream.flush()
                os.fsync(stream.fileno())
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
    return map_arrays(path, mapped=())


def map_arrays(path: Path, *, mapped: Collection[str]) -> tuple[dict[str, NDArray[Any]], dict[str, str]] | None:
    """As `read_arrays`, but the arrays of these names stay in the file, mapped read-only.

    They are checked like the others, once; and since files are replaced and never changed, they stay as they are while
    somebody holds them.
    """
    try:
        with path.open("rb") as stream:
            with zipfile.ZipFile(stream) as archive:
                if archive.testzip() is not None:
                    return None
                members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as content:
                arrays = {name: content[name] for name in content.files if name not in mapped}
                for name in mapped:
                    if name in content.files:
                        arrays[name] = _mapped(stream, members[name])
        header = json.loads(arrays.pop(_HEADER).tobytes())
    except (OSError, ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error):
        return None
    return arrays, header


def _mapped(stream: IO[bytes], member: zipfile.ZipInfo) -> NDArray[Any]:
    """An array that is stored as it is in an archive."""
    if member.compress_type != zipfile.ZIP_STORED:
        raise ValueError("the array is compressed")
    stream.seek(member.header_offset)
    name, extra = struct.unpack("<26xHH", stream.read(30))
    stream.seek(name + extra, os.SEEK_CUR)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("the array has a header of another version")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    if fortran or dtype.hasobject:
        raise ValueError("the array lies in another order")
    if 0 in shape:
        return np.zeros(shape, dtype=dtype)
    return np.memmap(stream, dtype=dtype, mode="r", offset=stream.tell(), shape=shape)
