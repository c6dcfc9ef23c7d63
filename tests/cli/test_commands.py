"""The commands on real files, and the JSON keys that others rely on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

EMBED = ("--embedder", "hash")


def test_ingest_reports_what_it_did(ctxkit: Any, notes: Path) -> None:
    (notes / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00")
    first = ctxkit("ingest", "notes", *EMBED, "--json")
    assert first.code == 0
    report = first.json
    assert {"documents", "chunks", "unchanged", "updated", "deleted", "skipped", "failed", "seconds"} <= set(report)
    assert (report["documents"], report["unchanged"], report["failed"]) == (3, 0, [])
    assert report["chunks"] >= 3
    (skipped,) = report["skipped"]
    assert skipped["source"].endswith("picture.png") and "binary" in skipped["reason"]

    again = ctxkit("ingest", "notes", *EMBED, "--json").json
    assert (again["documents"], again["unchanged"], again["chunks"]) == (3, 3, 0)

    os.utime(notes / "budget.md", (1_700_000_000, 1_700_000_000))
    assert ctxkit("ingest", "notes", *EMBED, "--json").json["unchanged"] == 3, "touched is not changed"

    (notes / "budget.md").write_text("# Budgets\n\nBudgets changed.\n")
    assert ctxkit("ingest", "notes", *EMBED, "--json").json["updated"] == 1

    (notes / "keys.md").unlink()
    kept = ctxkit("ingest", "notes", *EMBED, "--json").json
    assert kept["deleted"] == 0
    pruned = ctxkit("ingest", "notes", *EMBED, "--prune", "--json").json
    assert pruned["deleted"] == 1
    assert all("keys.md" not in row["source"] for row in ctxkit("search", "signing key", *EMBED, "--json").json)


def test_pruning_one_folder_leaves_the_others(ctxkit: Any, notes: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.md").write_text("Alpha.")
    ctxkit("ingest", "notes", "other", *EMBED)
    assert ctxkit("ingest", "notes", *EMBED, "--prune", "--json").json["deleted"] == 0
    (other / "a.md").unlink()
    assert ctxkit("ingest", "other", *EMBED, "--prune", "--json").json["deleted"] == 1


def test_pruning_never_deletes_below_a_folder_that_could_not_be_read(ctxkit: Any, notes: Path, tmp_path: Path) -> None:
    ctxkit("ingest", "notes", *EMBED)
    notes.rename(tmp_path / "elsewhere")
    result = ctxkit("ingest", "notes", *EMBED, "--prune", "--json")
    assert result.code == 1
    assert result.json["deleted"] == 0
    (tmp_path / "elsewhere").rename(notes)
    for path in notes.iterdir():
        path.unlink()
    assert ctxkit("ingest", "notes", *EMBED, "--prune", "--json").json["deleted"] == 3, "an empty folder has nothing"


def test_chunk_prints_one_object_a_line(ctxkit: Any, notes: Path) -> None:
    result = ctxkit("chunk", "notes/keys.md", "--chunker", "recursive", "--max-tokens", "16", "--json")
    assert result.code == 0
    text = (notes / "keys.md").read_text()
    assert len(result.lines) > 2
    for row in result.lines:
        assert set(row) == {"start", "end", "token_count", "text", "entities", "heading_path", "context"}
        assert text[row["start"] : row["end"]] == row["text"]
        assert 0 < row["token_count"] <= 16
    assert ["Keys", "Rotation"] in [row["heading_path"] for row in result.lines]


def test_chunk_reads_standard_input(ctxkit: Any) -> None:
    result = ctxkit("chunk", "-", "--name", "x.md", "--json", stdin="# A\n\nB 中文\n".encode())
    assert "".join(row["text"] for row in result.lines).split() == ["#", "A", "B", "中文"]


def test_search_finds_and_says_why(ctxkit: Any, notes: Path) -> None:
    ctxkit("ingest", "notes", *EMBED)
    rows = ctxkit("search", "rotate the signing key", "-k", 2, *EMBED, "--json").json
    assert 1 <= len(rows) <= 2
    best = rows[0]
    assert set(best) == {"document", "source", "start", "end", "text", "score", "scores", "via"}
    assert best["source"].endswith("keys.md")
    assert 0 <= best["score"] <= 1 and "lexical" in best["scores"]
    assert (notes / "keys.md").read_text()[best["start"] : best["end"]] == best["text"]
    chinese = ctxkit("search", "旧密钥", *EMBED, "--json").json
    assert chinese[0]["source"].endswith("中文.md")
    only = ctxkit("search", "key", "--filter", "source=*budget.md", *EMBED, "--json").json
    assert {row["source"].split("/")[-1] for row in only} <= {"budget.md"}


def test_search_says_through_which_names_and_takes_in_neighbours(ctxkit: Any, tmp_path: Path) -> None:
    folder = tmp_path / "films"
    folder.mkdir()
    (folder / "film.md").write_text("Red Harbour is a film that was directed by Ilse Brandt.")
    (folder / "brandt.md").write_text("For years Ilse Brandt lived in Lisbon, her place of birth.")
    (folder / "tea.md").write_text("Tea is brewed below the boiling point.")
    ctxkit("ingest", str(folder), "--extractor", "light", *EMBED)
    for options in ((), ("--neighbours",)):
        rows = ctxkit("search", "Who directed Red Harbour?", *EMBED, *options, "--json").json
        via = {row["source"].split("/")[-1]: row["via"] for row in rows}
        assert "Ilse Brandt" in via["brandt.md"]
    prompt = ctxkit("assemble", "Who directed Red Harbour?", "--neighbours", *EMBED, "--explain")
    assert any(" via " in line and "Ilse Brandt" in line for line in prompt.out.splitlines())


def test_assemble_holds_the_budget_and_names_every_source(ctxkit: Any, notes: Path) -> None:
    ctxkit("ingest", "notes", *EMBED)
    result = ctxkit("assemble", "how do I rotate a key?", "--budget", 400, "--reserve", 100, *EMBED, "--json")
    assert result.code == 0
    prompt = result.json
    assert {
        "messages",
        "segments",
        "token_count",
        "max_tokens",
        "reserve_output",
        "stable_prefix_tokens",
        "fingerprint",
        "dropped",
    } <= set(prompt)
    assert prompt["token_count"] <= prompt["max_tokens"] - prompt["reserve_output"] == 300
    assert prompt["messages"][-1]["role"] == "user"
    assert "how do I rotate a key?" in prompt["messages"][-1]["content"]
    for segment in prompt["segments"]:
        assert {"section", "role", "token_count", "trust", "sources"} <= set(segment)
    context = [segment for segment in prompt["segments"] if segment["sources"]]
    assert context and all(segment["section"] == "context" for segment in context)
    explained = ctxkit("assemble", "how do I rotate a key?", "--budget", 400, *EMBED, "--explain")
    assert "keys.md" in explained.out and "of 300 tokens" in explained.out


def test_compressed_context_is_sentences_of_the_sources(ctxkit: Any, notes: Path) -> None:
    long = "Filler about the weather goes on and on. " * 30
    (notes / "long.md").write_text(f"{long}\n\nThe signing key rotates on the first of each month.\n\n{long}\n")
    ctxkit("ingest", "notes", *EMBED)
    options = ("--budget", 420, "--reserve", 100, "--compress", *EMBED, "--json")
    prompt = ctxkit("assemble", "when does the signing key rotate?", *options).json
    assert prompt["token_count"] <= 320
    text = prompt["messages"][-1]["content"]
    assert "The signing key rotates on the first of each month." in text
    kept = [source for segment in prompt["segments"] for source in segment["sources"] if "long.md" in source["source"]]
    document = (notes / "long.md").read_text()
    assert any("signing key rotates" in document[source["start"] : source["end"]] for source in kept)
    assert sum(source["end"] - source["start"] for source in kept) < len(document) / 2


def test_sessions_and_history(ctxkit: Any, notes: Path) -> None:
    ctxkit("ingest", "notes", *EMBED)
    first = ctxkit("sessions", "append", "alice", "Hello there", "--id", "m1", "--json").json
    assert (first["sequence"], first["role"]) == (1, "user")
    ctxkit("sessions", "append", "alice", "Hello there", "--id", "m1")
    ctxkit("sessions", "append", "alice", "Hi.", "--role", "assistant")
    shown = ctxkit("sessions", "show", "alice", "--json").json
    assert [(message["sequence"], message["role"]) for message in shown] == [(1, "user"), (2, "assistant")]
    assert ctxkit("sessions", "list", "--json").json[0]["messages"] == 2
    prompt = ctxkit("assemble", "and keys?", "--session", "alice", *EMBED, "--json").json
    assert [message["content"] for message in prompt["messages"] if message["role"] == "assistant"] == ["Hi."]
    assert ctxkit("sessions", "delete", "alice", "--json").json["deleted"] == 2


def test_templates(ctxkit: Any, notes: Path, tmp_path: Path) -> None:
    ctxkit("ingest", "notes", *EMBED)
    source = tmp_path / "answer.txt"
    source.write_text("--- system ---\nAnswer in a {{tone}} tone.\n--- user ---\n{{context}}\n\n{{question}}\n")
    pushed = ctxkit("templates", "push", "answer", source, "--json")
    assert pushed.code == 0, pushed.err
    assert pushed.json["version"] == 1
    assert ctxkit("templates", "push", "answer", source, "--json").json["version"] == 1
    source.write_text(source.read_text().replace("Answer", "Please answer"))
    assert ctxkit("templates", "push", "answer", source, "--json").json["version"] == 2
    assert ctxkit("templates", "label", "answer", "production", 2, "--json").code == 0
    assert ctxkit("templates", "label", "answer", "production", 1, "--expected", 1).code == 1
    assert ctxkit("templates", "list", "--json").json[0]["labels"] == {"production": 2}
    assert "tone" in ctxkit("templates", "show", "answer@production", "--json").json["variables"]
    rendered = ctxkit("templates", "render", "answer@1", "--payload", '{"tone": "brief"}', "--json").json
    assert rendered[0]["role"] == "system" and "brief" in rendered[0]["content"]
    prompt = ctxkit("assemble", "keys?", "--template", "answer@production", "--payload", '{"tone": "brief"}', *EMBED)
    assert "Please answer" in prompt.out
    missing = ctxkit("assemble", "keys?", "--template", "answer@production", *EMBED)
    assert missing.code == 1 and "tone" in missing.err and len(missing.err.splitlines()) == 1


def test_doctor_names_what_is_installed_and_what_is_wrong(ctxkit: Any, notes: Path) -> None:
    ctxkit("ingest", "notes", *EMBED)
    result = ctxkit("doctor", "--json")
    assert result.code == 0 and result.json["ok"]
    assert ctxkit("doctor", "--store", "sqlite:///nowhere.db").code == 1


def test_bench_lists_and_refuses(ctxkit: Any) -> None:
    listed = ctxkit("bench", "--list", "--json").json
    assert {"chunking", "retrieval", "assembly"} <= {row["name"] for row in listed}
    assert all(row["measures"] for row in listed)
    assert ctxkit("bench", "nonsense").code == 2


@pytest.mark.parametrize(
    "command",
    ["ingest", "search", "chunk", "assemble", "ask", "bench", "doctor", "models list", "models pull", "models check"]
    + [f"templates {verb}" for verb in ("push", "list", "show", "render", "label")]
    + [f"sessions {verb}" for verb in ("list", "show", "append", "delete")],
)
def test_every_command_has_help_with_an_example_and_json(ctxkit: Any, command: str) -> None:
    result = ctxkit(*command.split(), "--help")
    assert result.code == 0
    assert f"Example: ctxkit {command}" in " ".join(result.out.split())
    assert "--json" in result.out
