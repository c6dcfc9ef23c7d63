"""`--recall`: sessions are searched by question and date, and assemble quotes what was said."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ctxkit.cli.main import app
from ctxkit.messages import Message
from ctxkit.storage import Store
from tests.recall.dialogues import past


@pytest.fixture
def store(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 's.db'}"
    with Store.open(url) as opened:
        opened.sessions.append("alice", past(60))
        late = Message("user", "The violin is with Odd now.", id="late", created_at=datetime(2024, 1, 9, tzinfo=UTC))
        opened.sessions.append("bob", [late])
    return url


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments, "--embedder", "none"])
    assert result.exit_code == 0, result.output
    return result.output


def test_sessions_are_searched_by_question_and_date(store: str) -> None:
    asked = ("sessions", "search", "Who plays the violin, as I said last May?", "--recall", "--store", store)
    rows = json.loads(run(*asked, "--now", "2023-09-01", "--json"))
    assert rows[0]["session"] == "alice"
    assert rows[0]["created_at"].startswith("2023-05")
    assert "last May" in rows[0]["via"]
    assert "(via user, last May)" in run(*asked, "--now", "2023-09-01", "--limit", "3")
    later = json.loads(
        run("sessions", "search", "Who plays it?", "--recall", "--store", store, "--session", "bob", "--json")
    )
    assert all(row["session"] == "bob" for row in later)


def test_assemble_quotes_what_was_said(store: str) -> None:
    asked = ("assemble", "Who plays the violin?", "--session", "alice", "--budget", "700", "--store", store)
    asked = (*asked, "--now", "2023-09-01")
    shown = json.loads(run(*asked, "--recall", "--json"))
    quoted = [one for one in shown["segments"] if one["message"] in ("m2", "m7", "m17")]
    assert quoted
    assert "<earlier-" in run(*asked, "--recall")
    assert "<earlier-" not in run(*asked)


def test_recall_needs_a_session(ctxkit: Any, store: str) -> None:
    for command in ("assemble", "ask"):
        done = ctxkit(command, "Who?", "--recall", "--store", store, "--embedder", "none")
        assert done.code == 2
        assert done.err == "error: --recall needs a session. Give --session NAME, or leave --recall out.\n"
