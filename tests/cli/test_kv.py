"""`ctxkit kv` and `ctxkit ask --kv`: what is stored, found, checked and thrown away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

PLAIN = ("--embedder", "none")
QUESTION = "how do I rotate the key?"


@pytest.fixture
def ask(ctxkit: Any, notes: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Asks the tiny model about the notes; its prompt is over 256 tokens."""
    monkeypatch.delenv("CTXKIT_KV", raising=False)
    (notes / "keys.md").write_text("# Keys\n\n" + "The key is rotated every month by the user. " * 8)
    assert ctxkit("ingest", "notes/keys.md", *PLAIN).code == 0

    def run(*options: object) -> Any:
        result = ctxkit(
            "ask", QUESTION, "--model", f"local:{tiny_folder}", "--max-tokens", 8, "--json", *PLAIN, *options
        )
        assert result.code == 0, result.err
        return result.json

    return run


def test_an_answer_is_the_same_and_its_prefix_is_read_once(ctxkit: Any, ask: Any, tmp_path: Path) -> None:
    plain = ask()
    assert not (tmp_path / ".ctxkit/kv").exists(), "nothing is stored where nobody asked for it"
    first, second = ask("--kv", "kv"), ask("--kv", "kv")
    assert first["answer"] == second["answer"] == plain["answer"]
    assert (first["usage"]["cached_tokens"], plain["usage"]["cached_tokens"]) == (0, 0)
    assert second["usage"]["cached_tokens"] >= 256
    assert ask("--kv", "kv", "--tenant", "default")["usage"]["cached_tokens"] >= 256
    found = ctxkit("kv", "stats", "--kv", "kv", "--json").json
    assert found["blocks"] == second["usage"]["cached_tokens"] // 64
    assert found["bytes"] == sum(path.stat().st_size for path in (tmp_path / "kv").rglob("*") if path.is_file())
    assert found["kinds"][0]["codec"] == "none/1" and found["kinds"][0]["lineage"] == "exact"
    assert "blocks" in ctxkit("kv", "stats", "--kv", "kv").out


def test_the_environment_and_the_default_folder_switch_it_on(
    ctxkit: Any, ask: Any, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warmed = ctxkit("kv", "warm", QUESTION, "--model", f"local:{tiny_folder}", "--json", *PLAIN)
    assert warmed.code == 0, warmed.err
    assert warmed.json["folder"] == ".ctxkit/kv" and warmed.json["prompts"][0]["reused"] == 0
    assert ask()["usage"]["cached_tokens"] >= 256
    assert ask("--kv", "off")["usage"]["cached_tokens"] == 0
    monkeypatch.setenv("CTXKIT_KV", "off")
    assert ask()["usage"]["cached_tokens"] == 0
    monkeypatch.setenv("CTXKIT_KV", "other")
    assert ask("--kv-codec", "int4")["usage"]["cached_tokens"] == 0
    assert ask("--kv-codec", "int4")["usage"]["cached_tokens"] >= 256


def test_verify_finds_damage_and_gc_frees(ctxkit: Any, ask: Any, tmp_path: Path) -> None:
    ask("--kv", "kv")
    assert ctxkit("kv", "verify", "--kv", "kv").code == 0
    damaged = next((tmp_path / "kv").rglob("*.safetensors"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    result = ctxkit("kv", "verify", "--kv", "kv", "--json")
    assert result.code == 1
    assert result.json["damaged"] == [damaged.parent.name]
    assert ctxkit("kv", "verify", "--kv", "kv").code == 0, "it is out of the way now"
    assert ctxkit("kv", "stats", "--kv", "kv", "--json").json["quarantined"] == 1
    freed = ctxkit("kv", "gc", "--kv", "kv", "--max-bytes", 0, "--json").json
    assert freed["freed_bytes"] > 0 and freed["blocks"] == freed["bytes"] == 0


def test_without_a_store_the_commands_say_how_to_make_one(ctxkit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CTXKIT_KV", raising=False)
    for command in ("stats", "gc", "verify"):
        result = ctxkit("kv", command)
        assert result.code == 1 and "ctxkit kv warm" in result.err


def test_a_store_that_is_off_is_not_written_and_a_remote_model_not_asked(
    ctxkit: Any, ask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments, says in (
        (("warm", QUESTION, "--model", "openai:gpt-4o"), "only a local model"),
        (("warm", QUESTION, "--kv", "off"), "is off"),
        (("stats", "--kv", "off"), "is off"),
    ):
        done = ctxkit("kv", *arguments)
        assert done.code == 2 and says in done.err
    monkeypatch.setenv("CTXKIT_KV", "off")
    assert ctxkit("kv", "gc").code == 2
    packed = ctxkit("ask", QUESTION, "--model", "echo", "--kv-codec", "int8", *PLAIN)
    assert packed.code == 2 and "kv_codec is given" in packed.err
    assert not (tmp_path / ".ctxkit/kv").exists()
