"""Bad input: one clear line with the remedy, exit code 1 or 2, no traceback, and nothing is lost."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

EMBED = ("--embedder", "hash")


def refuses(result: Any, code: int, *words: str) -> None:
    assert result.code == code, (result.code, result.out, result.err)
    lines = result.err.strip().splitlines()
    assert len(lines) == 1, result.err
    assert "Traceback" not in result.err
    for word in words:
        assert word.lower() in lines[0].lower(), lines[0]


def test_one_unreadable_file_does_not_stop_the_batch(ctxkit: Any, notes: Path) -> None:
    (notes / "broken.pdf").write_bytes(b"%PDF-1.7\nnot really a pdf")
    result = ctxkit("ingest", "notes", *EMBED, "--json")
    assert result.code == 1
    assert result.json["documents"] == 3
    (failed,) = result.json["failed"]
    assert failed["source"].endswith("broken.pdf") and failed["error"]
    assert ctxkit("search", "signing key", *EMBED, "--json").json


def test_a_path_that_is_not_there(ctxkit: Any, notes: Path) -> None:
    result = ctxkit("ingest", "nowhere", "notes", *EMBED, "--json")
    assert result.code == 1
    assert result.json["documents"] == 3
    assert "nowhere" in result.json["failed"][0]["source"]


def test_an_empty_folder(ctxkit: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = ctxkit("ingest", "empty", *EMBED, "--json")
    assert result.code == 0 and result.json["documents"] == 0
    assert ctxkit("search", "anything", *EMBED, "--json").json == []
    prompt = ctxkit("assemble", "anything?", *EMBED, "--json")
    assert prompt.code == 0 and not any(segment["sources"] for segment in prompt.json["segments"])


def test_no_store_yet(ctxkit: Any) -> None:
    refuses(ctxkit("search", "anything", *EMBED), 1, "ingest")


def test_a_store_that_is_not_ours(ctxkit: Any, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as database:
        database.execute("create table users (id integer)")
    database.close()
    before = (tmp_path / "other.db").read_bytes()
    refuses(ctxkit("search", "x", *EMBED, "--store", "sqlite:///other.db"), 1, "not a ctxkit store")
    (tmp_path / "x.md").write_text("x")
    refuses(ctxkit("ingest", "x.md", *EMBED, "--store", "sqlite:///other.db"), 1, "not a ctxkit store")
    assert (tmp_path / "other.db").read_bytes() == before
    (tmp_path / "text.db").write_text("this is not a database at all, it is a letter to my aunt " * 30)
    refuses(ctxkit("search", "x", *EMBED, "--store", "sqlite:///text.db"), 1)


def test_a_store_of_a_newer_version(ctxkit: Any, notes: Path, tmp_path: Path) -> None:
    ctxkit("ingest", "notes", *EMBED)
    with sqlite3.connect(tmp_path / ".ctxkit" / "store.db") as database:
        database.execute("update ctxkit_version set version_num = '9999'")
    database.close()
    refuses(ctxkit("search", "x", *EMBED), 1, "9999", "upgrade")


@pytest.mark.parametrize("url", ["nonsense", "mysql://host/db", "sqlite:///no/such/folder/\x00.db"])
def test_an_address_that_is_none(ctxkit: Any, url: str) -> None:
    result = ctxkit("search", "x", *EMBED, "--store", url)
    assert result.code in (1, 2)
    assert len(result.err.strip().splitlines()) == 1


def test_a_server_that_is_not_there(ctxkit: Any) -> None:
    refuses(ctxkit("search", "x", *EMBED, "--store", "postgresql+psycopg://nobody@127.0.0.1:9/none"), 1)


def test_a_model_that_is_not_installed(ctxkit: Any, notes: Path) -> None:
    ctxkit("ingest", "notes", *EMBED)
    refuses(ctxkit("ask", "x", *EMBED, "--model", "local:no-such-model"), 1, "no-such-model", "known")
    refuses(ctxkit("ask", "x", *EMBED, "--model", "nonsense:x"), 2)


def test_a_budget_smaller_than_its_mandatory_parts(ctxkit: Any, notes: Path) -> None:
    ctxkit("ingest", "notes", *EMBED)
    refuses(ctxkit("assemble", "x" * 4000, "--budget", 100, *EMBED), 1, "question", "too many")
    refuses(ctxkit("assemble", "x", "--budget", 0, *EMBED), 2)
    for reserve in (100, -1):
        refuses(ctxkit("assemble", "x", "--budget", 100, "--reserve", reserve, *EMBED), 2, f"--reserve is {reserve}")


def test_wrong_usage(ctxkit: Any, notes: Path) -> None:
    ctxkit("ingest", "notes", *EMBED)
    assert ctxkit("ingest").code == 2
    assert ctxkit("nonsense").code == 2
    refuses(ctxkit("chunk", "notes/keys.md", "--chunker", "nonsense"), 2, "recursive")
    refuses(ctxkit("chunk", "notes/keys.md", "--max-tokens", 0), 2)
    refuses(ctxkit("chunk", "nowhere.md"), 1, "nowhere.md")
    refuses(ctxkit("search", "x", *EMBED, "--filter", "nonsense"), 2, "KEY=VALUE")
    refuses(ctxkit("search", "x", *EMBED, "--now", "yesterday"), 2)
    refuses(ctxkit("search", "x", *EMBED, "-k", 0), 2)
    refuses(ctxkit("search", "x", "--embedder", "nonsense"), 2, "minilm")
    refuses(ctxkit("assemble", "x", *EMBED, "--payload", "{"), 2, "JSON")
    refuses(ctxkit("assemble", "x", *EMBED, "--section", "history"), 2, "--section")
    refuses(ctxkit("assemble", "x", *EMBED, "--template", "nowhere@production"), 1, "nowhere")
    refuses(ctxkit("sessions", "append", "s", "{}", "--raw"), 1)


def test_a_folder_where_one_file_belongs(ctxkit: Any, notes: Path) -> None:
    for command in (("chunk", "notes"), ("compress", "notes", "--query", "x", "--embedder", "none")):
        result = ctxkit(*command)
        refuses(result, 1, "notes", "a folder, not a file", "ingest")
        assert "read_paths" not in result.err, "what a shell has, not what Python has"


def test_names_that_nobody_registered_are_refused_at_once(ctxkit: Any, notes: Path, tmp_path: Path) -> None:
    for chunker in ("graph", "recursive"):
        refuses(ctxkit("ingest", "notes", *EMBED, "--chunker", chunker, "--extractor", "nope"), 2, "extractor", "light")
        refuses(ctxkit("chunk", "notes/keys.md", "--chunker", chunker, "--extractor", "nope"), 2, "extractor", "light")
    refuses(ctxkit("ingest", "notes", "--embedder", "nope"), 2, "embedder", "minilm")
    assert not (tmp_path / ".ctxkit").exists(), "no store was made"


def test_debug_shows_the_traceback(ctxkit: Any) -> None:
    from ctxkit.errors import StorageError

    with pytest.raises(StorageError):
        ctxkit("--debug", "search", "anything", *EMBED)


def test_bytes_depth_and_numbers_from_outside(ctxkit: Any, notes: Path, tmp_path: Path) -> None:
    ctxkit("ingest", "notes", *EMBED)
    (tmp_path / "latin.json").write_bytes(b'{"tone": "caf\xe9"}')
    refuses(ctxkit("assemble", "x", *EMBED, "--payload", "@latin.json"), 2, "UTF-8")
    refuses(ctxkit("assemble", "x", *EMBED, "--payload", "[" * 100_000), 2, "JSON")
    assert ctxkit("search", "key", *EMBED, "--filter", "a=" + "[" * 100_000, "--json").json == []
    for half_life in ("nan", "0", "-1"):
        refuses(ctxkit("search", "key", *EMBED, "--half-life", half_life), 2, f"--half-life is {half_life}", "days")
    for diversity in ("-0.1", "1.1", "nan"):
        refuses(ctxkit("search", "key", *EMBED, "--diversity", diversity), 2, f"--diversity is {diversity}", "0 (relev")
    refuses(ctxkit("ask", "x", *EMBED, "--timeout", 0), 2, "error: timeout is 0.0")
    refuses(ctxkit("runs", "prune"), 2, "--older-than, --session")
    refuses(ctxkit("search", "key", *EMBED, "--tenant", ""), 1, "tenant")
    refuses(ctxkit("ingest", "-", "notes", *EMBED), 2, "alone")
    refuses(ctxkit("ingest", "", *EMBED), 2, "path")


def test_streams_that_are_closed_or_full(tmp_path: Path) -> None:
    import subprocess
    import sys

    def shell(redirect: str) -> subprocess.CompletedProcess[str]:
        command = f"{sys.executable} -m ctxkit models list {redirect}"
        return subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, check=False)

    for redirect, code in ((">&-", 0), ("<&-", 0), (">/dev/full", 1)):
        result = shell(redirect)
        assert result.returncode == code, (redirect, result.stderr)
        assert "Traceback" not in result.stderr


def test_doctor_counts_the_chunks_without_vectors(ctxkit: Any, notes: Path) -> None:
    ctxkit("ingest", "notes", *EMBED)
    (notes / "plain.md").write_text("Only words.")
    ctxkit("ingest", "notes/plain.md", "--embedder", "none")
    checks = {check["check"]: check["detail"] for check in ctxkit("doctor", "--json").json["checks"]}
    assert "1 chunks have none" in checks["embedder hash-64"]
