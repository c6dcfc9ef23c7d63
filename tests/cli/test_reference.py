"""docs/cli-reference.md is what `--help` prints; CTXKIT_WRITE_DOCS=1 makes this test write it anew."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "cli-reference.md"
COMMANDS = [
    *("", "ingest", "search", "chunk", "assemble", "ask", "chat", "replay", "bench", "doctor"),
    *(f"models {verb}" for verb in ("list", "pull", "check")),
    *(f"templates {verb}" for verb in ("push", "list", "show", "search", "diff", "render")),
    *(f"templates {verb}" for verb in ("label", "rollback", "protect", "history", "archive")),
    *(f"templates {verb}" for verb in ("test", "import", "sync", "serve")),
    *(f"payloads {verb}" for verb in ("put", "get", "list")),
    *(f"runs {verb}" for verb in ("list", "prune")),
    *(f"experiments {verb}" for verb in ("start", "status", "assign", "record", "cover", "stop")),
    *(f"graph {verb}" for verb in ("show", "stats")),
    *(f"kv {verb}" for verb in ("stats", "warm", "gc", "verify")),
    *(f"sessions {verb}" for verb in ("list", "show", "append", "export", "import")),
    *(f"sessions {verb}" for verb in ("branch", "prune", "search", "window", "delete")),
]


def test_the_reference_is_what_help_prints(ctxkit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERMINAL_WIDTH", "100")
    parts = ["# Command reference\n\nWhat `ctxkit COMMAND --help` prints; a test compares them.\n"]
    for command in COMMANDS:
        result = ctxkit(*command.split(), "--help")
        assert result.code == 0
        text = "\n".join(line.rstrip() for line in result.out.strip().splitlines())
        parts.append(f"## `{' '.join(['ctxkit', *command.split()])}`\n\n```\n{text}\n```\n")
    page = "\n".join(parts)
    if os.environ.get("CTXKIT_WRITE_DOCS"):
        PAGE.write_text(page, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page, "run with CTXKIT_WRITE_DOCS=1 and look at the difference"
