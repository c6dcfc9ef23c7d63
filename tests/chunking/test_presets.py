"""What each preset cuts at, and the headings it knows."""

from __future__ import annotations

import pytest

from ctxkit.chunking import RecursiveChunker, SentenceChunker
from ctxkit.chunking.separators import LANGUAGES, preset_of
from ctxkit.documents import Chunk, Document
from ctxkit.tokens import get_counter

COUNTER = get_counter("cl100k_base")


def chunks(text: str, max_tokens: int, *, source: str = "", preset: str = "auto", **metadata: str) -> list[Chunk]:
    document = Document.from_text(text, source=source, metadata=metadata)
    return list(RecursiveChunker(max_tokens=max_tokens, counter=COUNTER, preset=preset).chunk(document))


@pytest.mark.parametrize(
    ("source", "metadata", "preset"),
    [
        ("notes/README.md", {}, "markdown"),
        ("C:\\docs\\A.MARKDOWN", {}, "markdown"),
        ("page.html", {}, "html"),
        ("page.htm", {}, "html"),
        ("main.py", {}, "code"),
        ("main.rs", {}, "code"),
        ("book.txt", {}, "text"),
        ("", {}, "text"),
        ("report.pdf", {}, "text"),
        ("report.pdf", {"format": "markdown"}, "markdown"),
        ("page.html", {"format": "markdown"}, "markdown"),
        ("x", {"format": "python"}, "code"),
        ("x", {"format": "code"}, "code"),
        ("main.py", {"format": "pdf"}, "code"),
        ("no.such", {}, "text"),
    ],
)
def test_auto_goes_by_format_and_extension(source: str, metadata: dict[str, str], preset: str) -> None:
    assert preset_of(Document.from_text("x", source=source, metadata=metadata)) == preset


# -------------------------------------------------------------------------------------------------- Markdown

GUIDE = """\
# Guide

Intro words, a handful of them, to begin the guide.

## Install

Run the installer. It takes a minute or two on most machines.

```sh
# not a heading
pip install thing
```

### On Windows

Use the other installer there, and answer every question.

Setext
======

Body of the last part, which stands under its own heading.
"""


def test_markdown_is_cut_before_headings() -> None:
    found = chunks(GUIDE, 36, source="guide.md")
    assert [chunk.text.split("\n")[0] for chunk in found] == ["# Guide", "## Install", "### On Windows"]


def test_an_underlined_heading_stays_with_its_line_and_its_text() -> None:
    text = "".join(f"Part {number}\n------\n\n{'Words of this part. ' * 6}\n\n" for number in range(9))
    assert all(chunk.text.startswith("Part") for chunk in chunks(text, 48, source="a.md"))


def test_heading_paths_of_markdown() -> None:
    found = chunks(GUIDE, 16, source="guide.md")
    paths = {chunk.text.split("\n")[0]: chunk.heading_path for chunk in found}
    assert paths["# Guide"] == ("Guide",)
    assert paths["## Install"] == ("Guide", "Install")
    assert paths["```sh"] == ("Guide", "Install")
    assert paths["### On Windows"] == ("Guide", "Install", "On Windows")
    assert paths["Setext"] == ("Setext",)
    assert all("not a heading" not in path for path in paths.values())


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("# A #\nbody", ("A",)),
        ("#no space\nbody", ()),
        ("####### seven\nbody", ()),
        ("#\nbody", ("",)),
        ("   ## B\nbody", ("B",)),
        ("A\n---\nbody", ("A",)),
        ("- item\n---\nbody", ()),
        ("~~~\n# x\n~~~\nbody", ()),
        ("```\n# x\nbody", ()),
        ("# A\r\nbody", ("A",)),
        ("# A\n### C\n## B\nbody", ("A", "B")),
    ],
)
def test_headings_by_example(text: str, path: tuple[str, ...]) -> None:
    for kind in (RecursiveChunker, SentenceChunker):
        found = list(
            kind(max_tokens=1_000, counter=COUNTER).chunk(Document.from_text(text + "\n\nlast", source="a.md"))
        )
        assert len(found) == 1
        last = list(
            kind(max_tokens=8, counter=COUNTER).chunk(Document.from_text(text + "\n\n" + "word " * 9, source="a.md"))
        )
        assert last[-1].heading_path == path


def test_text_has_no_headings() -> None:
    assert chunks("# not one\n\nbody", 64, source="a.txt")[0].heading_path == ()


def test_a_fence_that_fits_stays_whole_and_one_that_does_not_is_cut_at_its_lines() -> None:
    code = "".join(f"value_{number} = {number}\n" for number in range(12))
    fence = f"```python\n{code}```"
    text = f"Before it. {'Some words. ' * 10}\n\n{fence}\n\nAfter it."
    assert any(fence in chunk.text for chunk in chunks(text, COUNTER.count(fence) + 4, source="a.md"))
    cut = chunks(text, 40, source="a.md")
    assert all(line in [*text.split("\n")] for chunk in cut for line in chunk.text.split("\n") if "value" in line)


def test_table_rows_stay_whole() -> None:
    row = "| " + " | ".join(f"cell {number}, with words" for number in range(6)) + " |"
    text = "| a |\n|---|\n" + (row + "\n") * 12
    for size in (COUNTER.count(row) + 1, 64, 100):
        for chunk in chunks(text, size, source="a.md"):
            assert all(line in ("| a |", "|---|", row, "") for line in chunk.text.split("\n"))


# ------------------------------------------------------------------------------------------------------ code

PYTHON = '''\
import os


@decorated
@twice(
    os.sep)
def first(argument):
    """Does the first thing with its argument."""
    if argument:
        return os.path.join("a", argument)

    return None


class Second:
    """Holds a number of things."""

    def __init__(self, things):
        self.things = list(things)

    def count(self):
        return len(self.things)


async def third():
    await something()
'''


def test_python_is_cut_before_definitions() -> None:
    found = chunks(PYTHON, 60, source="module.py")
    firsts = [chunk.text.split("\n")[0] for chunk in found]
    assert "class Second:" in firsts
    assert all(chunk.token_count <= 60 for chunk in found)
    assert not any(first.lstrip().startswith('"""') for first in firsts)


def test_indentation_is_kept() -> None:
    found = chunks(PYTHON, 24, source="module.py")
    assert any(chunk.text.startswith("    def count(self):") for chunk in found)
    assert all(PYTHON[: chunk.span.start].endswith("\n") for chunk in found[1:] if chunk.text.startswith(" "))


@pytest.mark.parametrize(
    ("source", "definition"),
    [
        ("a.js", "export async function run(argument) {\n  return call(argument);\n}\n"),
        ("a.ts", "export interface Thing {\n  name: string;\n  size: number;\n}\n"),
        ("A.java", "public final class Thing {\n  private int size = 0;\n}\n"),
        ("a.go", "func Run(argument string) error {\n\treturn call(argument)\n}\n"),
        ("a.rs", "pub(crate) async fn run(argument: &str) -> u32 {\n    call(argument)\n}\n"),
        ("a.c", "static int run(const char *argument)\n{\n    return call(argument);\n}\n"),
        ("a.cpp", "template <typename T>\nT run(T argument)\n{\n    return call(argument);\n}\n"),
        ("a.rb", "def run(argument)\n  call(argument)\n  other(argument)\nend\n"),
    ],
)
def test_other_languages_are_cut_between_definitions(source: str, definition: str) -> None:
    found = chunks(definition * 20, COUNTER.count(definition) * 5 // 2, source=source)
    assert all(chunk.text.startswith(definition.split("\n")[0]) for chunk in found)
    assert all(chunk.text.endswith(definition.rstrip().split("\n")[-1]) for chunk in found)


def test_the_language_may_be_given() -> None:
    text = "x = 1\n" + "def f():\n    return 1\n" * 30
    found = chunks(text, 50, preset="code", language="python")
    assert all(chunk.text.startswith("def f") for chunk in found[1:])


def test_every_language_has_separators() -> None:
    for extension in LANGUAGES:
        assert chunks("word(other); { more }\n" * 40, 32, source=f"file.{extension}")


# ------------------------------------------------------------------------------------------------------ HTML

PAGE = """\
<html><body>
<h1>Guide &amp; help</h1>
<p>Intro words, a handful of them, to begin the guide.</p>
<h2 class="x">Install <em>now</em></h2>
<p>Run the installer. It takes a minute or two on most machines.</p>
<ul><li>First point</li><li>Second point</li></ul>
<h2>Last</h2>
<p>Body of the last part, which stands under its own heading.</p>
</body></html>
"""


def test_html_is_cut_before_blocks() -> None:
    found = chunks(PAGE, 48, source="page.html")
    assert all(chunk.text.startswith("<") for chunk in found)
    assert any(chunk.text.startswith('<h2 class="x">') for chunk in found)


def test_heading_paths_of_html() -> None:
    found = chunks(PAGE, 32, source="page.html")
    paths = [chunk.heading_path for chunk in found]
    assert ("Guide & help", "Install now") in paths
    assert paths[-1] == ("Guide & help", "Last")
    assert found[0].heading_path == ()


def test_unclosed_html_headings_are_none() -> None:
    assert chunks("<h1>open <p>" + "text " * 20, 8, source="a.html")[-1].heading_path == ()


# ------------------------------------------------------------------------------------------------------ text


def test_text_prefers_paragraphs_then_sentences_then_clauses_then_words() -> None:
    paragraph = "One two three four five six seven eight. "
    assert [c.text for c in chunks(f"{paragraph * 2}\n\n{paragraph * 2}", 30)] == [(paragraph * 2).strip()] * 2
    assert all(c.text.endswith(".") for c in chunks(paragraph * 20, 30))
    assert all(c.text.endswith(",") for c in chunks("one two three four, " * 20, 16))
    assert all(set(c.text.split()) == {"word"} for c in chunks("word " * 100, 16))
