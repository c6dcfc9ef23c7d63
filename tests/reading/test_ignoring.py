"""Ignore rules: the same files as git leaves, and no pattern that takes long."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.reading import walk
from ctxkit.reading.globs import glob_matcher
from tests.reading.files import found, make
from tests.timing import at_most

PATTERNS = [
    "*", "*.md", "!*.md", "a", "!a", "a/", "!a/", "/a", "!/a", "a/b", "!a/b", "a/*", "!a/*", "a/**", "!a/**",
    "**/b", "!**/b", "a/**/c", "**/a/**", "*/", "!*/", "b*", "?", "[ab]", "[!ab]", "!c.md", "/*/b", " a", "a ", "a\\ ",
    "**", "*/*", "/**", "/b/", "b/c/", "#a", "\\#a", "\\!a", "[", "", "/", "a/**/", "**/",
    "*c*m*", "!*c*m*", "*x*o*", "*b*x*", "?*.*", "*.*d", "!*.*?", "**/*c*/**/*.*", "/**/?/**/*t*", "a*/**/*d", "***",
    "*/**/*", "**/**/b*t", "a/***", "*[!b]*.*g", "[[:alpha:]]", "[^a-c]*", "[]a]", "[a-]", "\\*", "c\\.*d",
    "*[.]*[x-z]*",
    "[[:nope:]]*", "[[:lower:]", "a\\", "!/a/**/*c*", "//a", "a//b", "\\a", "x.lo[g", "[x-]*", "[\\]x]*",
]  # fmt: skip


@pytest.mark.skipif(shutil.which("git") is None, reason="compares with git, which is not installed")
@pytest.mark.parametrize("seed", range(150))
def test_the_same_files_as_git(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    names = [
        "/".join([*folders, leaf])
        for folders in ((), ("a",), ("b",), ("a", "b"), ("b", "a"), ("a", "b", "c"))
        for leaf in ("c.md", "b.txt", "d", "x.log")
    ]
    make(tmp_path, dict.fromkeys(names, "x"))
    for folder in chance.sample(["", "a/", "a/b/", "b/"], k=2):
        lines = chance.sample(PATTERNS, k=chance.randint(1, 5))
        (tmp_path / f"{folder}.gitignore").write_text("\n".join(lines) + "\n")
    git = ["git", "-C", str(tmp_path), "-c", "core.excludesFile=", "-c", "core.quotePath=false"]
    subprocess.run([*git, "init", "-q"], check=True)
    listed = subprocess.run(
        [*git, "ls-files", "--others", "--exclude-standard"], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    expected = sorted(name for name in listed if not name.endswith(".gitignore"))
    assert sorted(found(walk(tmp_path), tmp_path)) == expected


def reference(pattern: str, text: str) -> bool:
    """Globs of one segment by the table of all prefixes: slow and plain."""
    row = [True] + [False] * len(text)
    for wild in pattern:
        before, row = row, [row[0] and wild == "*"]
        for at, character in enumerate(text):
            row.append(before[at + 1] or row[at] if wild == "*" else before[at] and wild in ("?", character))
    return row[-1]


@given(st.text("ab*?", max_size=12), st.text("ab", max_size=14))
def test_globs_match_what_they_say(pattern: str, text: str) -> None:
    matches = glob_matcher(pattern.encode())
    assert matches is not None
    assert bool(matches(text.encode())) == (reference(pattern, text))


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 100 + "*b", "a" * 255),
        ("a*" * 100 + "b", "a" * 255),
        ("*?" * 100 + "b", "a" * 255),
        ("*[ab]" * 100 + "c", "a" * 255),
        ("**/a/" * 60 + "b", "a/" * 2000 + "a"),
        ("**/a*/" * 60 + "b", "a/" * 2000 + "a"),
        ("**/*a*a*/" * 60 + "b", "aaaa/" * 800 + "a"),
        ("*" * 4000 + "b", "a" * 255),
        ("/**" * 1000 + "/b", "a/" * 2000 + "a"),
    ],
)
def test_no_pattern_takes_long(pattern: str, path: str) -> None:
    with at_most(1):
        matches = glob_matcher(pattern.encode())
        assert matches is not None
        assert not matches(path.encode())


def test_a_hostile_ignore_file_does_not_hold_up_the_walk(tmp_path: Path) -> None:
    lines = ["a*a*a*a*a*a*b", "*a" * 50 + "*b", "**/" * 30 + "*a*a*a*a*a*b", "*[!b]" * 400, "x" * 100_000 + "*"]
    make(tmp_path, {".gitignore": "\n".join(lines), f"{'a' * 200}/{'a' * 200}": "x", "aXaXaXaaab": "x"})
    with at_most(2):
        assert found(walk(tmp_path), tmp_path) == [f"{'a' * 200}/{'a' * 200}"]
