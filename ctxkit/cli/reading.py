"""The one file that a command is given."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ctxkit.errors import ReadingError

if TYPE_CHECKING:
    from ctxkit.documents import Document

__all__ = ["read_document"]


def read_document(file: str) -> Document:
    """The document of a file. Errors: `ReadingError`."""
    from ctxkit.reading import read_file

    if Path(file).is_dir():
        raise ReadingError("a folder, not a file", subject=file, remedy="Give one of its files; ingest takes folders.")
    return read_file(file)
