"""The one file that a command is given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ctxkit.errors import ReadingError

if TYPE_CHECKING:
    from ctxkit.documents import Document

__all__ = ["read_document", "text_wanted"]


def read_document(file: str) -> Document:
    """The document of a file. Errors: `ReadingError`."""
    from ctxkit.reading import read_file

    if Path(file).is_dir():
        raise ReadingError("a folder, not a file", subject=file, remedy="Give one of its files; ingest takes folders.")
    with text_wanted():
        return read_file(file)


@contextmanager
def text_wanted() -> Iterator[None]:
    """Say what to do where there is no text: a batch reports such a file and goes on, a command has nothing else."""
    from ctxkit.reading import NothingToRead

    try:
        yield
    except NothingToRead as error:
        if error.remedy:
            raise
        raise NothingToRead(error.message, subject=error.subject, remedy="Give a file with text in it.") from error
