"""The documentation is true: its Python snippets run, its links lead somewhere, its pages are in the index.

A snippet runs in the namespace of the snippets above it on its page, in a folder that holds the project's documents.
A comment above it says what is special: `<!-- needs: model -->`, or `<!-- not run: why -->`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
SNIPPET = re.compile(r"(?:^<!-- (needs|not run): ([^>]+) -->\n)?^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INGESTED = ["docs/laws.md", "docs/quickstart.md", "docs/concepts/assembly.md", "docs/concepts/tokens.md"]
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Snippet:
    page: str
    line: int
    code: str
    needs: str
    skipped: str


def snippets(page: Path) -> list[Snippet]:
    text = page.read_text("utf-8")
    found = []
    for match in SNIPPET.finditer(text):
        what, detail = match.group(1), (match.group(2) or "").strip()
        found.append(
            Snippet(
                page=str(page.relative_to(ROOT)),
                line=text.count("\n", 0, match.start(3)) + 1,
                code=match.group(3),
                needs=detail if what == "needs" else "",
                skipped=detail if what == "not run" else "",
            )
        )
    return found


def run(page: Path) -> int:
    """Run the snippets of a page in order, in one namespace; how many ran."""
    module = types.ModuleType("snippet")
    sys.modules["snippet"] = module  # where dataclasses and pickles look
    namespace: dict[str, Any] = vars(module)
    ran = 0
    for snippet in snippets(page):
        if snippet.skipped:
            continue
        # The line numbers of the page, so that a failure points into it.
        code = compile("\n" * (snippet.line - 1) + snippet.code, str(ROOT / snippet.page), "exec", dont_inherit=True)
        exec(code, namespace)
        ran += 1
    engine = namespace.get("engine")
    if engine is not None:
        engine.close()
    return ran


WITH_SNIPPETS = [page for page in PAGES if any(not snippet.skipped for snippet in snippets(page))]
WITH_MODEL = [page for page in PAGES if any(snippet.needs == "model" for snippet in snippets(page))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # What the pages ingest: a few pages are enough to be found, and each takes time to embed.
    for page in INGESTED:
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / page, tmp_path / page)
    shutil.copy(ROOT / "README.md", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CTXKIT_STORE", raising=False)
    return tmp_path


@pytest.mark.model
@pytest.mark.parametrize("page", WITH_SNIPPETS, ids=name_of)
def test_the_snippets_run(page: Path, folder: Path) -> None:
    assert run(page) > 0


def test_the_stages_of_the_conformance_page_conform(tmp_path: Path) -> None:
    """The page as a reader would type it into a test file: its conformance classes run and pass."""
    page = ROOT / "docs" / "conformance.md"
    code = "\n\n".join(snippet.code for snippet in snippets(page) if not snippet.skipped)
    classes = re.findall(r"^class (Test\w+)\(", code, re.MULTILINE)
    assert len(classes) >= 2
    file = tmp_path / "test_page.py"
    file.write_text(code, "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", str(file)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"::{name}::" in done.stdout for name in classes), done.stdout


def test_readme_and_quickstart_have_snippets() -> None:
    assert {"README.md", "docs/quickstart.md", "docs/errors.md"} <= {name_of(page) for page in WITH_SNIPPETS}
    assert {"README.md", "docs/quickstart.md"} <= {name_of(page) for page in WITH_MODEL}


def test_a_snippet_that_is_not_run_says_why() -> None:
    for page in PAGES:
        for snippet in snippets(page):
            assert snippet.needs in ("", "model"), f"{snippet.page}:{snippet.line}"
            assert not snippet.skipped or len(snippet.skipped) > 10, f"{snippet.page}:{snippet.line}"


def anchors(page: Path) -> set[str]:
    """The anchors that headings make, as GitHub derives them."""
    found = set()
    for heading in re.findall(
        r"^#+ (.+)$", re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S), re.M
    ):
        plain = re.sub(r"[^\w\- ]", "", heading.strip().lower())
        found.add(plain.replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.findall(re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_every_page_is_reached_from_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in LINK.findall(index.read_text("utf-8"))}
    decisions = set((ROOT / "docs" / "decisions").glob("*.md"))
    pages = {page for page in (ROOT / "docs").rglob("*.md") if page != index}
    assert {name_of(page) for page in pages - linked - decisions} == set()
    assert (ROOT / "docs" / "decisions") in linked


def test_decisions_are_numbered() -> None:
    names = sorted(page.name for page in (ROOT / "docs" / "decisions").glob("*.md"))
    numbers = [name[:4] for name in names]
    assert len(set(numbers)) == len(numbers), "two decisions have one number"
    for name in names:
        title = (ROOT / "docs" / "decisions" / name).read_text("utf-8").splitlines()[0]
        assert re.match(rf"# {name[:4]}: \S", title), f"{name} begins with {title!r}"


def test_every_law_is_proved_by_tests_that_exist() -> None:
    page = (ROOT / "docs" / "laws.md").read_text("utf-8")
    laws = dict(re.findall(r"^## Law (\d+): .+?\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert list(map(int, laws)) == list(range(1, 13))
    for number, body in laws.items():
        named = re.findall(r"`(tests/[\w/.*]+)`", body)
        assert f"tests/laws/test_law_{int(number):02}_*.py" in named, f"law {number} names no law test"
        for pattern in named:
            assert list(ROOT.glob(pattern)), f"law {number} names {pattern}, which is not there"


def test_the_page_of_the_command_lists_every_command() -> None:
    import typer.main

    from ctxkit.cli.main import app

    real: set[str] = set()
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        real |= {f"{name} {sub}" for sub in inner} if inner else {name}
    page = (ROOT / "docs" / "cli.md").read_text("utf-8")
    listed: set[str] = set()
    table = page.partition("## Commands")[2].partition("## JSON keys")[0]
    for row in re.findall(r"^\| (`ctxkit .+?) \|", table, re.MULTILINE):
        first, *more = re.findall(r"`([^`]+)`", row)
        words = first.removeprefix("ctxkit ").split()
        group = bool(more) or f"{words[0]} {words[-1]}" in real
        listed |= {f"{words[0]} {sub}" for sub in [words[1], *more]} if group else {words[0]}
    assert listed == real
