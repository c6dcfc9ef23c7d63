"""The rules of `.gitignore` and `.ctxkitignore` files, nested, as git reads them."""

from __future__ import annotations

import codecs
import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ctxkit.reading.globs import Matcher, glob_matcher

__all__ = ["IGNORE_FILES", "IgnoreRules", "Rule"]

IGNORE_FILES = (".gitignore", ".ctxkitignore")
"""Read in this order in every folder: what the second says wins."""

_LIMIT = 1 << 20


class Rule(NamedTuple):
    """One line of an ignore file, and where it stands."""

    pattern: str
    file: str
    ignores: bool
    folders_only: bool
    by_name: bool
    """Whether the last name of a path decides, at any depth, or the whole path."""
    matches: Matcher


@dataclass(frozen=True)
class IgnoreRules:
    """The rules that hold in one folder: its own, and those of the folders above it.

    A folder that is ignored is not entered, so nothing below it can be taken back: git's own rule. Each path is
    matched by itself alone; that its parents are not ignored is known by having come here.

    Args:
        base: the folder's path below the outermost one, posix, "" for the outermost.
        rules: of this folder's own files, in order.
        parent: the rules of the folder above.

    Source: gitignore(5).
    """

    base: str = ""
    rules: tuple[Rule, ...] = ()
    parent: IgnoreRules | None = None

    @classmethod
    def above(cls, folder: Path) -> tuple[IgnoreRules, str]:
        """The rules that the repository around `folder` has above it, and the folder's path in that repository.

        Without a repository around, nothing above counts. A folder that these rules ignore was named on purpose: they
        are left out then.
        """
        here = folder.resolve()
        outer = next((parent for parent in [here, *here.parents] if (parent / ".git").exists()), None)
        if outer is None:
            return cls(), ""
        rules = cls(rules=_read(outer / ".git" / "info" / "exclude", ".git/info/exclude"))
        if outer == here:
            return rules, ""
        steps = here.relative_to(outer).parts
        for depth, name in enumerate(steps):
            base = "/".join(steps[:depth])
            rules = rules.entered(outer.joinpath(*steps[:depth]), base)
            if rules.match(f"{base}/{name}" if base else name, is_folder=True) is not None:
                return cls(), ""
        return rules, "/".join(steps)

    def entered(self, folder: Path, base: str, label: str = "") -> IgnoreRules:
        """The rules inside `folder`, whose path below the outermost one is `base`."""
        rules: list[Rule] = []
        for name in IGNORE_FILES:
            where = label or base
            rules.extend(_read(folder / name, f"{where}/{name}" if where else name))
        return IgnoreRules(base=base, rules=tuple(rules), parent=self) if rules else self

    def match(self, path: str, *, is_folder: bool) -> Rule | None:
        """The rule that ignores `path` (posix, below the outermost), or None. The innermost, last rule decides."""
        level: IgnoreRules | None = self
        whole = os.fsencode(path)
        name = whole.rpartition(b"/")[2]
        while level is not None:
            inside = whole[len(os.fsencode(level.base)) + 1 :] if level.base else whole
            for rule in reversed(level.rules):
                if (is_folder or not rule.folders_only) and rule.matches(name if rule.by_name else inside):
                    return rule if rule.ignores else None
            level = level.parent
        return None


def _read(path: Path, label: str) -> tuple[Rule, ...]:
    try:
        if not path.is_file():
            return ()
        with path.open("rb") as file:
            data = file.read(_LIMIT)
    except OSError:
        return ()  # what rules it has is not known; the files below are reported if they cannot be read either
    rules = (_rule(line, label) for line in data.removeprefix(codecs.BOM_UTF8).split(b"\n"))
    return tuple(rule for rule in rules if rule is not None)


def _rule(line: bytes, label: str) -> Rule | None:
    """The rule of one line; None for a comment, a blank line, and what matches nothing."""
    line = line.removesuffix(b"\r")
    if line.startswith(b"#"):
        return None
    pattern = _without_blanks(line)
    ignores = not pattern.startswith(b"!")
    pattern = pattern.removeprefix(b"!")
    folders_only = pattern.endswith(b"/")
    pattern = pattern.removesuffix(b"/")
    by_name = b"/" not in pattern
    matches = glob_matcher(pattern.removeprefix(b"/"))
    if not pattern or matches is None:
        return None
    return Rule(line.decode("utf-8", "backslashreplace").strip(), label, ignores, folders_only, by_name, matches)


def _without_blanks(line: bytes) -> bytes:
    """Without the spaces at its end; one with a backslash before it stays."""
    stripped = line.rstrip(b" ")
    backslashes = len(stripped) - len(stripped.rstrip(b"\\"))
    return line[: len(stripped) + 1] if backslashes % 2 else stripped
