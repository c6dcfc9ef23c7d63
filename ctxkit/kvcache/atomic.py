"""Files that are whole or absent: written beside their place, brought to the disk, then given their name."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

__all__ = ["TEMPORARY", "create_whole", "write_whole"]

TEMPORARY = ".tmp"
"""How the name of an unfinished file ends."""


def write_whole(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Replace a file: other processes see what was there before, or all of this. Errors: `OSError`."""
    with _beside(path, content, durable) as temporary:
        os.replace(temporary, path)


def create_whole(path: Path, content: bytes, *, durable: bool = True) -> bool:
    """Create a file; False, and nothing changed, where somebody else created it first. Errors: `OSError`."""
    with _beside(path, content, durable) as temporary:
        try:
            os.link(temporary, path)  # unlike a rename it never replaces
        except FileExistsError:
            return False
        except FileNotFoundError:
            raise  # the folder was deleted meanwhile
        except OSError:
            # A file system without hard links: the name is taken first, so that one writer wins.
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
            except FileExistsError:
                return False
            try:
                os.replace(temporary, path)
            except OSError:
                with contextlib.suppress(OSError):
                    path.unlink()  # an empty file would look damaged
                raise
        return True


@contextlib.contextmanager
def _beside(path: Path, content: bytes, durable: bool) -> Iterator[Path]:
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}{TEMPORARY}")
    try:
        with temporary.open("xb", buffering=0) as stream:
            view = memoryview(content)
            while len(view):
                view = view[stream.write(view) :]
            if durable:
                os.fsync(stream.fileno())
        yield temporary
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
