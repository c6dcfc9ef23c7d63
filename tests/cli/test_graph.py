"""`ctxkit graph`: a document's page by id or source, its JSON, and the size of the whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ctxkit.documents import Document
from ctxkit.storage import Store

PLAIN = ("--embedder", "none")


@pytest.fixture
def store(ctxkit: Any, notes: Path) -> str:
    """Two documents that name Ada, one that names nothing."""
    (notes / "keys.md").write_text(
        "# Keys\n\nYesterday Ada Lovelace met Charles Babbage.\n\nThen Lovelace left <b>Paris</b>.\n"
    )
    (notes / "budget.md").write_text("In London lives Ada Lovelace.\n")
    assert ctxkit("ingest", "notes", *PLAIN, "--extractor", "light", "--max-tokens", "12").code == 0
    return "sqlite:///.ctxkit/store.db"


def test_the_page_of_a_document(ctxkit: Any, store: str, tmp_path: Path) -> None:
    result = ctxkit("graph", "show", "notes/keys.md", "--output", "keys.html")
    assert result.code == 0
    assert result.out.startswith("keys.html: ")
    page = (tmp_path / "keys.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "&lt;b&gt;" in page and "<b>Paris" not in page
    assert "Ada Lovelace" in page and "<svg" in page
    assert ctxkit("graph", "show", "notes/keys.md").out == page, "without a file it goes to standard output"


def test_by_id_and_as_json(ctxkit: Any, store: str) -> None:
    found = ctxkit("graph", "show", "notes/keys.md", "--json").json
    assert ctxkit("graph", "show", found["document"]["id"], "--json").json == found
    assert {"document", "chunks", "cuts", "nodes", "edges"} == found.keys()
    assert len(found["cuts"]) == len(found["chunks"]) - 1
    assert "ada lovelace" in [node["name"] for node in found["nodes"]]
    assert "london" not in [node["name"] for node in found["nodes"]], "of this document alone"


def test_the_size_of_the_graph(ctxkit: Any, store: str) -> None:
    found = ctxkit("graph", "stats", "--json", "--top", "1").json
    assert found["documents"] == 2
    assert found["top"] == [{"name": "ada lovelace", "label": "NAME", "chunks": 3}]
    assert found["labels"]["NAME"] == found["entities"]
    said = ctxkit("graph", "stats").out
    assert said.startswith("documents 2") and "ada lovelace" in said


def test_another_tenant_has_none(ctxkit: Any, store: str) -> None:
    assert ctxkit("graph", "stats", "--tenant", "other", "--json").json["entities"] == 0
    assert ctxkit("graph", "show", "notes/keys.md", "--tenant", "other").code == 1


def test_what_cannot_be_shown(ctxkit: Any, store: str) -> None:
    for arguments, code, words in (
        (("show", "nowhere.md"), 1, "no document"),
        (("show", "notes/keys.md", "--output", "no/such/folder.html"), 1, "no/such"),
        (("show", "notes/keys.md", "--store", "sqlite:///none.db"), 1, "no store here"),
    ):
        result = ctxkit("graph", *arguments)
        assert result.code == code
        assert words in result.err and len(result.err.splitlines()) == 1
    with Store.open(store) as opened:
        for name in ("one", "two"):
            opened.documents.put(Document(name, "x", source="twice.md"), [], recipe="r")
    result = ctxkit("graph", "show", "twice.md")
    assert result.code == 2
    assert "one, two" in result.err


def test_an_extractor_that_is_not_there(ctxkit: Any, notes: Path) -> None:
    result = ctxkit("ingest", "notes", *PLAIN, "--extractor", "nonsense")
    assert result.code == 2
    assert "light" in result.err


def test_a_path_that_is_not_there_names_the_nearest(ctxkit: Any, store: str, tmp_path: Path) -> None:
    for wrong in ("keys.md", "other/keys.md", str(tmp_path / "notes" / "keys.md"), "notes/kyes.md", "NOTES/KEYS.MD"):
        refused = ctxkit("graph", "show", wrong)
        assert refused.code == 1
        assert "Did you mean 'notes/keys.md'? " in refused.err, wrong
        assert len(refused.err.splitlines()) == 1
    far = ctxkit("graph", "show", "zzz")
    assert far.code == 1 and "Did you mean" not in far.err and "ctxkit ingest" in far.err
