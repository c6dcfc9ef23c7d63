"""A folder of template files: one `NAME.prompt` each, read and written without ever leaving the folder.

Nothing is executed and no symlink is followed: a link below the root, to a file or a folder, is an error that names it,
since what it points to may be anything on the machine. A name is a path of plain segments; `..`, hidden folders and
names that differ by case alone, which some file systems take for one, are refused. Files are replaced whole.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ctxkit.errors import ConfigError, CtxkitError, TemplateError

__all__ = ["SUFFIX", "TemplateFile", "TemplateFolder", "replace_file", "text_hash"]

SUFFIX = ".prompt"
MAX_BYTES = 4_000_000
_PARTIAL = (".ctxkit-", ".partial")
_ABANDONED = 3600.0
_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")


class TemplateFile(NamedTuple):
    """A file of the folder: the template's name, and its text or why it cannot be read.

    A folder that cannot be read is one too: its name ends with a slash, that of the root is empty.
    """

    name: str
    text: str = ""
    error: CtxkitError | None = None


def text_hash(text: str) -> str:
    """SHA-256 of a file's text."""
    return hashlib.sha256(text.encode()).hexdigest()


class TemplateFolder:
    """The folder at `root`. Raises `ConfigError` where there is none."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        if not self.root.is_dir():
            raise ConfigError("there is no such folder", subject=str(root), remedy="Create it, or name another.")

    def path(self, name: str) -> Path:
        """Where the template of this name is kept. Raises `TemplateError` for a name that is no safe path."""
        segments = name.split("/")
        if not all(_SEGMENT.match(segment) and segment[-1] != "." for segment in segments):
            raise TemplateError(
                "this name cannot be a file's",
                subject=name[:100],
                remedy="Between slashes use letters, digits and . _ -, with a letter or digit first and no dot last.",
            )
        return self.root.joinpath(*segments[:-1], segments[-1] + SUFFIX)

    def files(self) -> Iterator[TemplateFile]:
        """Every template file below the root, by name."""
        found = dict(self._walk(self.root, ""))
        seen: dict[str, str] = {}
        for name in sorted(found):
            error = found[name]
            twin = seen.setdefault(name.lower(), name)
            if error is None and twin != name:
                error = TemplateError(
                    f"differs from {twin!r} by case alone",
                    subject=name,
                    remedy="Rename one: some file systems hold only one of them.",
                )
            if error is not None:
                yield TemplateFile(name, error=error)
                continue
            try:
                yield TemplateFile(name, self.read(name))
            except CtxkitError as problem:
                yield TemplateFile(name, error=problem)

    def _walk(self, folder: Path, prefix: str) -> Iterator[tuple[str, CtxkitError | None]]:
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            yield prefix, _unreadable(prefix, error)
            return
        for entry in entries:
            name = prefix + entry.name
            if entry.name.startswith("."):
                continue
            if entry.is_symlink():
                if entry.name.endswith(SUFFIX):
                    yield name.removesuffix(SUFFIX), _link(name)
                elif not entry.is_file():  # a folder, or one that is not there now: its templates are not gone
                    yield f"{name}/", _link(name)
            elif entry.is_dir():
                yield from self._walk(folder / entry.name, f"{name}/")
            elif entry.name.endswith(SUFFIX) and entry.name != SUFFIX:
                template = name.removesuffix(SUFFIX)
                try:
                    self.path(template)
                except TemplateError as problem:
                    yield template, problem
                else:
                    yield template, None

    def read(self, name: str) -> str:
        """The text of a template's file. Raises `TemplateError` for a link, a device, too much, or no UTF-8."""
        path = self.path(name)
        self._check_parents(path)
        try:
            descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        except OSError as error:
            raise _link(name) if path.is_symlink() else _unreadable(name, error) from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise TemplateError("not a regular file", subject=name, remedy="Only files hold templates.")
        with open(descriptor, "rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise TemplateError(
                f"the file has more than {MAX_BYTES:,} bytes", subject=name, remedy="A template is text of some pages."
            )
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise TemplateError(
                f"not UTF-8 at byte {error.start}", subject=name, remedy="Save the file as UTF-8."
            ) from error

    def write(self, name: str, text: str) -> None:
        """Put a text in place of a template's file: at once, or not at all."""
        path = self.path(name)
        self._check_parents(path)
        if path.is_symlink():
            raise _link(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, text)
        except OSError as error:
            raise _unwritable(name, error) from error

    def sweep(self) -> None:
        """Delete what writers left that were killed an hour ago or longer."""
        for folder, inner, names in os.walk(self.root):
            inner[:] = [name for name in inner if not name.startswith(".")]
            for name in names:
                if name.startswith(_PARTIAL[0]) and name.endswith(_PARTIAL[1]):
                    left = Path(folder, name)
                    with suppress(OSError):
                        if time.time() - left.lstat().st_mtime > _ABANDONED:
                            left.unlink()

    def remove(self, name: str) -> None:
        """Delete a template's file, and folders that are empty then."""
        path = self.path(name)
        self._check_parents(path)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise _unwritable(name, error) from error
        for parent in path.relative_to(self.root).parents:
            if parent.parts:
                try:
                    (self.root / parent).rmdir()
                except OSError:
                    break

    def _check_parents(self, path: Path) -> None:
        for parent in path.relative_to(self.root).parents:
            if parent.parts and (self.root / parent).is_symlink():
                raise _link(str(parent))


def replace_file(path: Path, text: str) -> None:
    """Write a file beside `path` and move it there, so that no reader sees half of it."""
    descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=_PARTIAL[0], suffix=_PARTIAL[1])
    try:
        with open(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(partial, 0o644)
        os.replace(partial, path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise


def _link(name: str) -> TemplateError:
    return TemplateError(
        "this is a symbolic link", subject=name, remedy="Put the file itself there: links are never followed."
    )


def _unreadable(name: str, error: OSError) -> TemplateError:
    return TemplateError(
        f"cannot be read ({error.strerror or error})",
        subject=name or ".",
        remedy="Check that it is there, and its permissions.",
    )


def _unwritable(name: str, error: OSError) -> TemplateError:
    return TemplateError(
        f"its file cannot be written ({error.strerror or error})",
        subject=name,
        remedy="Check what stands in its place, the permissions, and the room on the disk.",
    )
