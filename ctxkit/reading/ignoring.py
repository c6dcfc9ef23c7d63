"""The rules of `.gitignore` and `.ctxkitignore` files, nested, as git reads them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

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
    regex: object


@dataclass(frozen=True)
class IgnoreRules:
    """The rules that hold in one folder: its own, and those of the folders above it.

    A folder that is ignored is not entered, so nothing below it can be taken back: git's own rule. Each path is
    matched by itself alone; that its parents are not ignored is known by having come here.

    Args:
        base: the folder's path below the outermost one, posix, "" for the outermost.
        rules: of this folder's own files, in order.
        parent: the rules of the folder above.

    Source: gitignore(5). Globs become regular expressions by pathspec.
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
        while level is not None:
            inside = path[len(level.base) + 1 :] if level.base else path
            for rule in reversed(level.rules):
                if rule.folders_only and not is_folder:
                    continue
                found = rule.regex.match(inside)  # type: ignore[attr-defined]
                # The group is set where the pattern names a parent of the path rather than the path.
                if found is not None and found.groupdict().get("ps_d") is None:
                    return rule if rule.ignores else None
            level = level.parent
        return None


def _read(path: Path, label: str) -> tuple[Rule, ...]:
    try:
        if not path.is_file():
            return ()
        with path.open("rb") as file:
            text = file.read(_LIMIT).decode("utf-8-sig", "replace")
    except OSError:
        return ()  # what rules it has is not known; the files below are reported if they cannot be read either
    rules = (_rule(line, label) for line in text.split("\n"))
    return tuple(rule for rule in rules if rule is not None)


def _rule(line: str, label: str) -> Rule | None:
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

    line = line.removesuffix("\r")
    stripped = line.rstrip(" ")
    if stripped.endswith("\\") and stripped != line:
        stripped += " "
    folders_only = stripped.endswith("/")
    if folders_only:
        stripped = stripped[:-1]
    if not stripped.lstrip("!"):
        return None
    try:
        pattern = GitIgnoreSpecPattern(stripped)
    except ValueError:
        return None  # git ignores what is no pattern, too
    if pattern.include is None or pattern.regex is None:
        return None
    return Rule(line.strip(), label, bool(pattern.include), folders_only, pattern.regex)
