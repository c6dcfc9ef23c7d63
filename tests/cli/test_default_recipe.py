"""The default chunker and extractor on the command line, and the ways back."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def test_on_the_command_line(ctxkit: Any, notes: Path) -> None:
    plain = ("--embedder", "none", "--json")
    for command in (("ingest", "notes", "--embedder", "none"), ("chunk", "notes/keys.md")):
        refused = ctxkit(*command, "--overlap", "8")
        assert refused.code == 2
        assert "has no overlap" in refused.err and "--chunker recursive" in refused.err
        assert ctxkit(*command, "--overlap", "8", "--chunker", "recursive").code == 0
    assert ctxkit("ingest", "notes", "--chunker", "recursive", "--extractor", "none", *plain).code == 0
    again = ctxkit("ingest", "notes", *plain).json
    assert again["updated"] == again["documents"] > 0
    assert ctxkit("ingest", "notes", *plain).json["unchanged"] == again["documents"]
    rows = ctxkit("chunk", "-", "--extractor", "none", "--json", stdin=b"Today Ada Lovelace wrote.").lines
    assert rows[0]["entities"] == []
    rows = ctxkit("chunk", "-", "--json", stdin=b"Today Ada Lovelace wrote.").lines
    assert [entity["text"] for entity in rows[0]["entities"]] == ["Ada Lovelace"]
