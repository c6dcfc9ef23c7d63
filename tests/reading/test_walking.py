"""Folders: order, ignore rules as git has them, links, special files, and one bad file among good ones."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ctxkit import registry
from ctxkit.documents import Document
from ctxkit.errors import ConfigError, ReadingError
from ctxkit.reading import Failed, NothingToRead, Skipped, read_file, read_paths, source_of, walk
from tests.reading import files
from tests.reading.files import found, make


def reasons(items: Iterable[object], root: Path) -> dict[str, str]:
    prefix = f"{root.as_posix()}/"
    return {
        item.source.removeprefix(prefix): item.reason if isinstance(item, Skipped) else item.error
        for item in items
        if isinstance(item, Skipped | Failed)
    }


# Order and sources.


def test_files_come_sorted_and_once(tmp_path: Path) -> None:
    make(tmp_path, dict.fromkeys(("b.md", "a/z.md", "a/b/c.md", "a.md", "Z.md"), "x"))
    expected = ["Z.md", "a/b/c.md", "a/z.md", "a.md", "b.md"]
    assert found(walk(tmp_path), tmp_path) == expected
    again = found(walk([tmp_path, tmp_path / "a", tmp_path / "b.md"]), tmp_path)
    assert again == expected


def test_the_source_is_the_path_as_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, {"docs/a.md": "# A"})
    monkeypatch.chdir(tmp_path)
    for named, source in (
        ("docs", "docs/a.md"),
        ("./docs/", "docs/a.md"),
        (tmp_path / "docs", f"{tmp_path}/docs/a.md"),
    ):
        (document,) = read_paths(named)
        assert isinstance(document, Document)
        assert document.source == document.metadata["path"] == source
    assert read_file("docs/a.md", root="docs").source == "a.md"
    assert read_file("docs/a.md").id == read_file("./docs/../docs/a.md", root=".").id


def test_a_name_that_is_no_utf8_has_a_storable_source(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/bad\xff.md"
    try:
        with open(name, "wb") as file:
            file.write(b"# Odd name")
    except OSError:
        pytest.skip("this file system refuses such names")
    (document,) = read_paths(tmp_path)
    assert isinstance(document, Document)
    assert document.source.endswith("/bad\\xff.md")
    document.source.encode()


def test_created_at_is_when_the_file_was_changed(tmp_path: Path) -> None:
    path = make(tmp_path, {"a.txt": "x", "b.md": "---\ndate: 2020-01-02\n---\nx"}) / "a.txt"
    os.utime(path, (1_700_000_000, 1_700_000_000))
    assert read_file(path).created_at == datetime.fromtimestamp(1_700_000_000, tz=UTC)
    assert read_file(tmp_path / "b.md").created_at == datetime(2020, 1, 2, tzinfo=UTC)


# What is left out.


def test_hidden_names_version_control_and_ignore_files(tmp_path: Path) -> None:
    names = (
        ".env",
        ".git/config",
        ".github/x.md",
        "node_modules/p/readme.md",
        ".ctxkit/store.db",
        "a.md",
        ".gitignore",
    )
    make(tmp_path, dict.fromkeys(names, "x"))
    items = list(walk(tmp_path))
    assert found(items, tmp_path) == ["a.md"]
    assert set(reasons(items, tmp_path)) == {name.split("/")[0] for name in names} - {"a.md"}
    assert found(walk(tmp_path, hidden=True), tmp_path) == [".env", ".github/x.md", "a.md"]
    assert found(walk([tmp_path / ".env"]), tmp_path) == [".env"]


def test_nested_ignore_files(tmp_path: Path) -> None:
    make(
        tmp_path,
        {
            ".gitignore": "*.log\n/build/\n!keep.log\n# comment\n\\#odd\n",
            ".ctxkitignore": "private/\n",
            "a.md": "x",
            "a.log": "x",
            "keep.log": "x",
            "#odd": "x",
            "build/b.md": "x",
            "build/keep.log": "x",
            "private/p.md": "x",
            "sub/build/c.md": "x",
            "sub/.gitignore": "!*.log\nc.md\n",
            "sub/d.log": "x",
            "sub/c.md": "x",
            "sub/deep/c.md": "x",
            "sub/deep/e.log": "x",
        },
    )
    items = list(walk(tmp_path))
    assert found(items, tmp_path) == ["a.md", "keep.log", "sub/d.log", "sub/deep/e.log"]
    why = reasons(items, tmp_path)
    assert why["a.log"] == f"ignored by {tmp_path.as_posix()}/.gitignore: *.log"
    assert why["private"] == f"ignored by {tmp_path.as_posix()}/.ctxkitignore: private/"
    assert len(found(walk(tmp_path, ignore=False), tmp_path)) == 12


def test_the_rules_of_the_repository_around_hold(tmp_path: Path) -> None:
    make(
        tmp_path,
        {".git/info/exclude": "*.tmp\n", ".gitignore": "docs/draft*\nout/\n", "docs/a.md": "x", "docs/draft.md": "x",
         "docs/x.tmp": "x", "out/o.md": "x"},
    )  # fmt: skip
    assert found(walk(tmp_path / "docs"), tmp_path) == ["docs/a.md"]
    assert found(walk(tmp_path / "out"), tmp_path) == ["out/o.md"], "named on purpose"
    assert found(walk(tmp_path / "docs" / "draft.md"), tmp_path) == ["docs/draft.md"]


def test_links(tmp_path: Path) -> None:
    root = make(tmp_path / "root", {"real/a.md": "x", "b.md": "x"})
    make(tmp_path, {"outside/secret.md": "x", "rootless/x.md": "x"})
    (root / "loop").symlink_to(root)
    (root / "real" / "up").symlink_to("..")
    (root / "self").symlink_to("self")
    (root / "gone.md").symlink_to("nothing")
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "out.md").symlink_to(tmp_path / "outside" / "secret.md")
    (root / "sibling").symlink_to(tmp_path / "rootless")
    (root / "inside").symlink_to("real")
    (root / "inside.md").symlink_to("b.md")
    items = list(walk(root))
    assert found(items, root) == ["b.md", "real/a.md"]
    why = reasons(items, root)
    assert "loops" in why["loop"]
    assert "loops" in why["real/up"]
    assert "loops" in why["self"]
    assert "nowhere" in why["gone.md"]
    assert "out of the folder" in why["out"]
    assert "out of the folder" in why["out.md"]
    assert "out of the folder" in why["sibling"]
    assert "inside" in why["inside"]
    assert "inside" in why["inside.md"]
    assert found(walk(root / "out.md"), root) == ["out.md"], "a link that is named itself is followed"


def test_special_files_are_never_opened(tmp_path: Path) -> None:
    make(tmp_path, {"a.md": "x"})
    os.mkfifo(tmp_path / "pipe.md")
    items = list(read_paths(tmp_path))
    assert reasons(items, tmp_path) == {"pipe.md": "a named pipe, never opened"}
    assert [type(item) for item in read_paths([tmp_path / "pipe.md", "/dev/null"])] == [Skipped, Skipped]
    for path in (tmp_path / "pipe.md", Path("/dev/zero")):
        with pytest.raises(NothingToRead, match="never opened"):
            read_file(path)


# Bad files among good ones.


def test_one_bad_file_never_stops_the_batch(tmp_path: Path) -> None:
    make(
        tmp_path,
        {
            "a.md": "# A",
            "b.md": b"\x89PNG\r\n\x1a\n" + bytes(100),
            "c.bin": bytes(range(256)),
            "d.md": "",
            "e.md/inside.md": "# E",
            "f.docx": b"PK\x03\x04 broken",
            "g.pdf": files.pdf(["secret"], password="x"),
            "h.txt": "x" * 2000,
            "i.md": " \n ",
            "j.zip": b"PK\x03\x04" + bytes(50),
            "z.py": "print('last')\n",
        },
    )
    items = list(read_paths(tmp_path))
    titles = [item.title for item in items if isinstance(item, Document)]
    assert titles == ["A", "E", "h", "z.py"]
    why = reasons(items, tmp_path)
    assert why["b.md"] == "binary: a PNG image"
    assert why["c.bin"] == "binary: not text in any known encoding"
    assert why["d.md"] == "an empty file"
    assert why["f.docx"].startswith("the DOCX is damaged")
    assert why["g.pdf"] == "the PDF is encrypted. Remove its password."
    assert why["i.md"] == "no text in it, only white space"
    assert why["j.zip"].startswith("binary: a ZIP archive")
    failed = {item.source.rsplit("/", 1)[1] for item in items if isinstance(item, Failed)}
    assert failed == {"f.docx", "g.pdf"}


def test_files_above_the_limit(tmp_path: Path) -> None:
    make(tmp_path, {"a.txt": "x" * 1000, "b.txt": "x" * 1001})
    first, second = read_paths(tmp_path, max_bytes=1000)
    assert isinstance(first, Document)
    assert isinstance(second, Skipped)
    assert second.reason == "1,001 bytes, more than the limit of 1,000. Split it, or raise max_bytes."


def test_a_file_that_vanishes_between_the_walk_and_the_reading(tmp_path: Path) -> None:
    make(tmp_path, {"a.md": "x", "b.md": "x"})
    items = read_paths(tmp_path)
    assert isinstance(next(items), Document)
    (tmp_path / "b.md").unlink()
    (gone,) = items
    assert isinstance(gone, Failed)
    assert "gone" in gone.error


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    (item,) = read_paths([tmp_path / "none"])
    assert isinstance(item, Failed)
    assert item.error == "it is not there, or is gone. Check the path."
    with pytest.raises(ReadingError, match="not there"):
        read_file(tmp_path / "none")
    with pytest.raises(ReadingError, match="read_paths"):
        read_file(tmp_path)
    with pytest.raises(ReadingError):
        read_file("nul\0name")
    (odd,) = read_paths(["nul\0name"])
    assert isinstance(odd, Failed)


def test_an_empty_folder_is_reported(tmp_path: Path) -> None:
    assert list(read_paths(tmp_path)) == [Skipped(tmp_path.as_posix(), "an empty folder")]
    assert list(read_paths([])) == []


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="the superuser may read everything")
def test_permissions(tmp_path: Path) -> None:
    make(tmp_path, {"a.md": "x", "closed/b.md": "x", "z.md": "x"})
    (tmp_path / "a.md").chmod(0)
    (tmp_path / "closed").chmod(0)
    items = list(read_paths(tmp_path))
    (tmp_path / "closed").chmod(0o700)
    assert [type(item) for item in items] == [Failed, Failed, Document]


def test_errors_of_the_system_become_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as a closed folder and file, where the tests run as the superuser."""
    make(tmp_path, {"a.md": "x", "closed/b.md": "x", "z.md": "x"})
    scandir, open_ = os.scandir, os.open

    def closed_scandir(path: object) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)  # type: ignore[call-overload]

    def closed_open(path: object, *arguments: object, **named: object) -> int:
        if str(path).endswith("a.md"):
            raise PermissionError(13, "Permission denied")
        return open_(path, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "scandir", closed_scandir)
    monkeypatch.setattr(os, "open", closed_open)
    first, second, third = read_paths(tmp_path)
    assert isinstance(first, Failed)
    assert "permission denied" in first.error
    assert isinstance(second, Failed)
    assert "permission denied" in second.error
    assert isinstance(third, Document)


def test_a_third_partys_reader_that_breaks_fails_its_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def read(self, data: bytes, *, source: str) -> Document:
            raise RuntimeError("oops")

    monkeypatch.setitem(registry._registered, ("reader", "odd"), Broken)
    make(tmp_path, {"a.odd": "x", "b.md": "# B"})
    first, second = read_paths(tmp_path)
    assert isinstance(first, Failed)
    assert "RuntimeError: oops" in first.error
    assert isinstance(second, Document)


def test_a_deep_tree(tmp_path: Path) -> None:
    folder = tmp_path
    for _ in range(300):
        folder /= "d"
        folder.mkdir()
    (folder / "a.md").write_text("# Deep")
    (document,) = read_paths(tmp_path)
    assert isinstance(document, Document)


@pytest.mark.parametrize("size", [0, -1])
def test_a_wrong_limit(tmp_path: Path, size: int) -> None:
    with pytest.raises(ConfigError):
        read_file(tmp_path, max_bytes=size)
    with pytest.raises(ConfigError):
        list(read_paths(tmp_path, max_bytes=size))


def test_source_of_is_posix() -> None:
    assert source_of("./a//b/../c.md") == "a/b/../c.md"
