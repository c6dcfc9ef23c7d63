"""Which files there are to read, in a fixed order, and why the others are left out."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ctxkit.reading.ignoring import IGNORE_FILES, IgnoreRules
from ctxkit.reading.outcomes import Failed, Skipped

__all__ = ["Paths", "as_paths", "source_of", "walk"]

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

_OWN = {
    **dict.fromkeys((".git", ".hg", ".svn", ".bzr", ".jj", "_darcs", "CVS"), "version control"),
    ".ctxkit": "a store of ctxkit",
    **dict.fromkeys(("__pycache__", "node_modules"), "installed or generated code"),
}
_KINDS = (
    (stat.S_ISFIFO, "a named pipe, never opened"),
    (stat.S_ISSOCK, "a socket, never opened"),
    (stat.S_ISCHR, "a character device, never opened"),
    (stat.S_ISBLK, "a block device, never opened"),
)


def source_of(path: str | os.PathLike[str], *, root: str | os.PathLike[str] | None = None) -> str:
    """The source of a file: its path as it was given, with forward slashes; below `root` where that is given.

    The same file given in the same way has the same source, and so the same document id, in every run and on every
    system. `./docs/a.md` is `docs/a.md`; `..` stays. Bytes of a name that are no UTF-8 appear as `\\xNN`.
    """
    plain = Path(path)
    if root is not None:
        plain = Path(os.path.relpath(os.path.abspath(plain), os.path.abspath(root)))
    return plain.as_posix().encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def as_paths(paths: Paths) -> list[Path]:
    """One path or several, as a list."""
    return [Path(paths)] if isinstance(paths, str | os.PathLike) else [Path(path) for path in paths]


def walk(
    paths: Paths,
    *,
    hidden: bool = False,
    ignore: bool = True,
    root: str | os.PathLike[str] | None = None,
) -> Iterator[Path | Skipped | Failed]:
    """Every file under `paths`, sorted by name within each folder, and an entry for each thing that is left out.

    A file that is named itself is always given, hidden, ignored or linked. Under a folder:

    - names that begin with a dot are left out unless `hidden` (they hold settings and secrets), and version control,
      ctxkit's own store, `node_modules` and `__pycache__` always;
    - `.gitignore` and `.ctxkitignore` rules hold unless `ignore` is False, those of the repository around included;
    - links are not followed: what they point to inside the folder is read where it is, and the rest was not asked for.
      So there are no loops and no file comes twice;
    - pipes, sockets and devices are never opened.

    A file that several of the paths lead to comes once. Streams: holds one folder's names a level.
    """
    given = as_paths(paths)
    seen: set[str] | None = set() if len(given) > 1 else None
    for path in given:
        for item in _given(path, hidden, ignore, root):
            if seen is not None and isinstance(item, Path):
                real = os.path.realpath(item)
                if real in seen:
                    continue
                seen.add(real)
            yield item


def _given(
    path: Path, hidden: bool, ignore: bool, root: str | os.PathLike[str] | None
) -> Iterator[Path | Skipped | Failed]:
    source = source_of(path, root=root)
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        yield Failed(source, _reason(error))
        return
    if stat.S_ISDIR(mode):
        found = False
        for item in _folder(path, hidden, ignore, root):
            found = True
            yield item
        if not found:
            yield Skipped(source, "an empty folder")
    elif (special := _special(mode)) is not None:
        yield Skipped(source, special)
    else:
        yield path


@dataclass(slots=True)
class _Level:
    """A folder that is being walked: its names left, in reverse order, and the rules inside it."""

    folder: Path
    base: str
    rules: IgnoreRules
    names: list[os.DirEntry[str]]


def _folder(
    top: Path, hidden: bool, ignore: bool, root: str | os.PathLike[str] | None
) -> Iterator[Path | Skipped | Failed]:
    real_top = os.path.realpath(top)
    rules, base = IgnoreRules.above(top) if ignore else (IgnoreRules(), "")
    stack: list[_Level] = []

    def enter(folder: Path, base: str, rules: IgnoreRules) -> Failed | None:
        try:
            with os.scandir(folder) as entries:
                names = sorted(entries, key=lambda entry: entry.name, reverse=True)
        except OSError as error:
            return Failed(source_of(folder, root=root), _reason(error))
        if ignore:
            rules = rules.entered(folder, base, source_of(folder, root=root))
        stack.append(_Level(folder, base, rules, names))
        return None

    if (failed := enter(top, base, rules)) is not None:
        yield failed
    while stack:
        level = stack[-1]
        if not level.names:
            stack.pop()
            continue
        entry = level.names.pop()
        path = level.folder / entry.name
        source = source_of(path, root=root)
        inside = f"{level.base}/{entry.name}" if level.base else entry.name
        try:
            mode = entry.stat(follow_symlinks=False).st_mode
        except OSError as error:
            yield Failed(source, _reason(error))
            continue
        is_folder = stat.S_ISDIR(mode)
        reason = _left_out(entry.name, hidden)
        if reason is None and ignore and (rule := level.rules.match(inside, is_folder=is_folder)) is not None:
            reason = f"ignored by {rule.file}: {rule.pattern}"
        if reason is None and stat.S_ISLNK(mode):
            reason = _link(path, real_top)
        if reason is None:
            reason = _special(mode)
        if reason is not None:
            yield Skipped(source, reason)
        elif is_folder:
            if (failed := enter(path, inside, level.rules)) is not None:
                yield failed
        else:
            yield path


def _left_out(name: str, hidden: bool) -> str | None:
    if name in _OWN:
        return _OWN[name]
    if name in IGNORE_FILES:
        return "an ignore file"
    return "hidden: its name begins with a dot" if name.startswith(".") and not hidden else None


def _link(path: Path, real_top: str) -> str:
    try:
        real = os.path.realpath(path, strict=True)
    except OSError as error:
        # ELOOP: the link leads to itself; else it leads to nothing.
        return (
            "a link that leads nowhere"
            if isinstance(error, FileNotFoundError)
            else f"a link that loops or is closed: {error.strerror}"
        )
    if real != real_top and not real.startswith(os.path.join(real_top, "")):
        return "a link that leads out of the folder, not followed"
    if os.path.join(os.path.realpath(path.parent), "").startswith(os.path.join(real, "")):
        return "a link that loops: it leads to a folder above it"
    return "a link inside the folder, not followed: what it leads to is looked at where it is"


def _special(mode: int) -> str | None:
    return next((reason for is_kind, reason in _KINDS if is_kind(mode)), None)


def _reason(error: OSError | ValueError) -> str:
    """One line on why the system refuses a path, with the remedy."""
    if isinstance(error, FileNotFoundError):
        return "it is not there, or is gone. Check the path."
    if isinstance(error, PermissionError):
        return "permission denied. Allow this user to read it."
    return f"it cannot be opened: {getattr(error, 'strerror', None) or error}."
