"""From a file, some bytes or a whole folder to documents."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ctxkit import registry
from ctxkit.documents import Document
from ctxkit.errors import ConfigError, CtxkitError, ReadingError
from ctxkit.protocols import Reader
from ctxkit.reading.docx import DocxReader
from ctxkit.reading.formats import Format, detect
from ctxkit.reading.html import HtmlReader
from ctxkit.reading.outcomes import Failed, NothingToRead, Skipped
from ctxkit.reading.pdf import PdfReader
from ctxkit.reading.text import CodeReader, MarkdownReader, TextReader
from ctxkit.reading.walking import Paths, source_of, walk

__all__ = ["MAX_BYTES", "read_bytes", "read_file", "read_paths"]

MAX_BYTES = 64 * 1024 * 1024
"""Files above this are skipped by default: 64 MiB of text is some fifteen million tokens."""

_HEAD = 8192


def read_bytes(data: bytes, *, source: str) -> Document:
    """The document in `data`; the ending of `source` and the content tell the format (`source="stdin.md"`).

    A reader registered under the kind `reader` and the ending without its dot (`epub`) wins over the built-in ones.

    Raises:
        ReadingError: empty, binary, encrypted, damaged, or in an unknown encoding.
        MissingExtraError: its format needs the `readers` extra.

    Example:
        >>> read_bytes(b"# Keys\\n\\nRotate them monthly.", source="keys.md").title
        'Keys'
    """
    if not data:
        raise NothingToRead("an empty file", subject=source)
    reader = _reader(data[:_HEAD], source)
    document = reader.read(data, source=source)
    if not document.text.strip():
        raise NothingToRead("no text in it, only white space", subject=source)
    return replace(document, metadata={**document.metadata, "size": len(data)})


def read_file(
    path: str | os.PathLike[str], *, root: str | os.PathLike[str] | None = None, max_bytes: int = MAX_BYTES
) -> Document:
    """The document in a file. Its source is the path as given, or below `root` (see `source_of`).

    `created_at` is the front matter's date, else the time at which the file was last changed. `metadata` holds
    `path`, `format`, `size` in bytes, `created_from` (`mtime`) where the time is the file's, and what the format's
    reader adds.

    Raises:
        ReadingError: missing, unreadable, not a regular file, larger than `max_bytes`, or as for `read_bytes`.
        MissingExtraError: its format needs the `readers` extra.
    """
    if max_bytes < 1:
        raise ConfigError("max_bytes must be at least 1", subject=str(max_bytes), remedy="Give 1 or more.")
    source = source_of(path, root=root)
    data, modified = _load(Path(path), source, max_bytes)
    document = read_bytes(data, source=source)
    # Only what was a file has a path: pruning asks it whether the file is still there.
    document = replace(document, metadata={**document.metadata, "path": source})
    if document.created_at is not None:
        return document
    return replace(document, created_at=modified, metadata={**document.metadata, "created_from": "mtime"})


def read_paths(
    paths: Paths,
    *,
    hidden: bool = False,
    ignore: bool = True,
    root: str | os.PathLike[str] | None = None,
    max_bytes: int = MAX_BYTES,
) -> Iterator[Document | Skipped | Failed]:
    """Every document under `paths` (see `walk`), one file in memory at a time.

    One bad file never stops the batch: what is not text for us comes as `Skipped` with its reason, what should have
    been read and could not as `Failed` with an error that ends with the remedy.
    """
    if max_bytes < 1:
        raise ConfigError("max_bytes must be at least 1", subject=str(max_bytes), remedy="Give 1 or more.")
    for item in walk(paths, hidden=hidden, ignore=ignore, root=root):
        if not isinstance(item, Path):
            yield item
            continue
        source = source_of(item, root=root)
        try:
            yield read_file(item, root=root, max_bytes=max_bytes)
        except NothingToRead as error:
            yield error.skipped(source)
        except CtxkitError as error:
            yield Failed.of(source, error)
        except Exception as error:  # a third party's reader: its file fails, the batch does not
            yield Failed(
                source, f"its reader failed ({type(error).__name__}: {error}). Report it to the reader's author."
            )


def _reader(head: bytes, source: str) -> Reader:
    ending = os.path.splitext(source)[1].lower().removeprefix(".")
    if ending and ending in registry.names("reader"):
        made = registry.create("reader", ending)
        if not isinstance(made, Reader):
            raise ConfigError(
                "the registered reader has no method read(data, *, source)",
                subject=f"reader {ending}",
                remedy="Register a Reader of ctxkit.protocols.",
            )
        return made
    return _built_in(detect(head, source))


def _built_in(found: Format) -> Reader:
    readers: dict[str, Any] = {
        "docx": DocxReader,
        "html": HtmlReader,
        "markdown": MarkdownReader,
        "pdf": PdfReader,
        "text": TextReader,
    }
    made: Reader = CodeReader(language=found.language) if found.name == "code" else readers[found.name]()
    return made


def _load(path: Path, source: str, max_bytes: int) -> tuple[bytes, datetime]:
    """The bytes of a regular file and when it was changed. Never blocks on a pipe or a device."""
    try:
        _check(path.stat(), source, max_bytes)
        # Between the look and the opening the path may have become a pipe: O_NONBLOCK never waits for a writer.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
        with open(os.open(path, flags), "rb") as file:
            status = os.fstat(file.fileno())
            _check(status, source, max_bytes)
            data = file.read(_HEAD)
            if data and not _is_read_whole(data, source):
                detect(data, source)  # spare a video its gigabytes
            data += file.read(max_bytes + 1 - len(data))
    except FileNotFoundError as error:
        raise ReadingError("the file is not there, or is gone", subject=source, remedy="Check the path.") from error
    except PermissionError as error:
        raise ReadingError("permission denied", subject=source, remedy="Allow this user to read the file.") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ReadingError(f"the file cannot be read: {reason}", subject=source, remedy="Check the disk.") from error
    if len(data) > max_bytes:
        raise _too_large(len(data), source, max_bytes)
    try:
        modified = datetime.fromtimestamp(status.st_mtime, tz=UTC)
    except (OverflowError, OSError, ValueError):
        modified = datetime.fromtimestamp(0, tz=UTC)
    return data, modified


def _is_read_whole(head: bytes, source: str) -> bool:
    return os.path.splitext(source)[1].lower().removeprefix(".") in registry.names("reader")


def _check(status: os.stat_result, source: str, max_bytes: int) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise ReadingError("a folder, not a file", subject=source, remedy="Read it with read_paths().")
    if not stat.S_ISREG(status.st_mode):
        raise NothingToRead("a pipe, socket or device, never opened", subject=source)
    if status.st_size > max_bytes:
        raise _too_large(status.st_size, source, max_bytes)


def _too_large(size: int, source: str, max_bytes: int) -> NothingToRead:
    return NothingToRead(
        f"{size:,} bytes, more than the limit of {max_bytes:,}", subject=source, remedy="Split it, or raise max_bytes."
    )
