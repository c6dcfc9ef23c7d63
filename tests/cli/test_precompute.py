"""`ctxkit ingest --precompute-kv` and `ctxkit ask --kv-chunks`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

PLAIN = ("--embedder", "none")


@pytest.fixture
def local(notes: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("CTXKIT_KV", raising=False)
    (notes / "keys.md").write_text("# Keys\n\nThe key is rotated every month by the user.")
    return f"local:{tiny_folder}"


def test_chunks_are_read_at_ingest_and_used_by_ask(ctxkit: Any, local: str, tmp_path: Path) -> None:
    first = ctxkit("ingest", "notes/keys.md", "--precompute-kv", local, "--json", *PLAIN)
    assert first.code == 0, first.err
    ahead = first.json["precomputed"]
    assert ahead["chunks"] == ahead["stored"] > 0 and ahead["tokens"] > 0
    assert (tmp_path / ".ctxkit/kv").is_dir()
    again = ctxkit("ingest", "notes/keys.md", "--precompute-kv", local, *PLAIN)
    assert f"{ahead['chunks']} there already" in again.out

    asked = ("ask", "how is the key rotated?", "--model", local, "--max-tokens", 4, *PLAIN)
    used = ctxkit(*asked, "--kv-chunks", "--json")
    assert used.code == 0, used.err
    assert used.json["usage"]["cached_tokens"] > used.json["usage"]["prompt_tokens"] // 3
    assert "chunk reuse" in ctxkit(*asked, "--kv-chunks", "--explain").out
    plain = ctxkit(*asked, "--json")
    assert plain.json["usage"]["cached_tokens"] == 0, "chunks are used where that is asked for, and nowhere else"


def test_what_cannot_be_is_said(ctxkit: Any, local: str) -> None:
    missing = ctxkit("ask", "x", "--model", local, "--kv-chunks", *PLAIN)
    assert missing.code != 0 and "--precompute-kv" in missing.err
    off = ctxkit("ingest", "notes/keys.md", "--precompute-kv", local, "--kv", "off", *PLAIN)
    assert off.code != 0 and "--kv FOLDER" in off.err
    alone = ctxkit("ingest", "notes/keys.md", "--kv", "kv", *PLAIN)
    assert alone.code != 0 and "--precompute-kv" in alone.err
