"""The commands of releases: templates and their labels, payloads, and replayed prompts."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

EMBED = ("--embedder", "hash")
SOURCE = "--- system ---\nAnswer in a {{tone}} tone.\n--- user ---\n{{context}}\n\n{{question}}\n"


@pytest.fixture
def answer(ctxkit: Any, tmp_path: Path) -> Any:
    """Two versions of the template `answer`."""
    source = tmp_path / "answer.txt"
    source.write_text(SOURCE)
    first = ctxkit("templates", "push", "answer", source, "-m", "First", "--by", "ann", "--json")
    assert first.code == 0, first.err
    source.write_text(SOURCE.replace("Answer", "Please answer"))
    second = ctxkit("templates", "push", "answer", source, "--json")
    assert [first.json["version"], second.json["version"]] == [1, 2]
    return ctxkit


def test_pushing_the_same_again_says_which_version_it_was(answer: Any, tmp_path: Path) -> None:
    (tmp_path / "same.txt").write_text(SOURCE)
    again = answer("templates", "push", "answer", "same.txt", "--json").json
    assert (again["version"], again["new"]) == (1, False)
    assert "stored already" in answer("templates", "push", "answer", "same.txt").out


def test_a_label_moves_rolls_back_and_tells_its_history(answer: Any) -> None:
    for version in (1, 2):
        assert answer("templates", "label", "answer", "production", version, "--by", "ann").code == 0
    back = answer("templates", "rollback", "answer", "production", "-m", "Tone was wrong", "--json")
    assert (back.json["version"], back.json["previous"]) == (1, 2)
    assert answer("templates", "rollback", "answer", "production").code == 1, "it was nowhere before"
    assert answer("templates", "label", "answer", "production", 2, "--expected", 2).code == 1
    rows = answer("templates", "history", "answer", "production", "--json").json
    assert [(row["action"], row["from"], row["to"]) for row in rows] == [
        ("move", None, 1),
        ("move", 1, 2),
        ("rollback", 2, 1),
    ]
    assert rows[0]["by"] == "ann" and rows[2]["message"] == "Tone was wrong"
    assert "Tone was wrong" in answer("templates", "history", "answer", "production").out


def test_a_protected_label_moves_by_force_alone(answer: Any) -> None:
    answer("templates", "label", "answer", "production", 1)
    assert answer("templates", "protect", "answer", "production", "--json").json["changed"]
    refused = answer("templates", "label", "answer", "production", 2)
    assert refused.code == 1 and "--force" in refused.err
    assert answer("templates", "list", "--json").json[0]["protected"] == ["production"]
    assert "(protected)" in answer("templates", "list").out
    assert answer("templates", "label", "answer", "production", 2, "--force").code == 0
    assert answer("templates", "protect", "answer", "production", "--undo").code == 0
    assert answer("templates", "rollback", "answer", "production").code == 0
    events = answer("templates", "history", "answer", "--json").json
    assert [event["action"] for event in events] == ["protect", "unprotect"]


def test_archive_hides_and_deletes_nothing(answer: Any) -> None:
    answer("templates", "label", "answer", "production", 2)
    assert answer("templates", "archive", "answer@2").code == 1, "a label is on it"
    assert answer("templates", "archive", "answer@1", "--json").json["changed"]
    assert answer("templates", "label", "answer", "staging", 1).code == 1
    assert "(archived)" in answer("templates", "show", "answer@1").out
    assert answer("templates", "archive", "answer").code == 0
    assert answer("templates", "list", "--json").json == []
    assert answer("templates", "list", "--archived", "--json").json[0]["archived_at"]
    assert "archived_at" in answer("templates", "list", "--archived").out
    assert answer("templates", "show", "answer@production", "--json").json["version"] == 2
    assert answer("templates", "archive", "answer", "--undo").code == 0
    assert len(answer("templates", "list", "--json").json) == 1
    assert answer("templates", "archive", "answer@production").code == 2


def test_diff_as_text_and_as_json(answer: Any) -> None:
    text = answer("templates", "diff", "answer@1", "answer").out
    assert "-Answer in a {{tone}} tone." in text and "+Please answer in a {{tone}} tone." in text
    changes = answer("templates", "diff", "answer@1", "answer@2", "--json").json["changes"]
    assert [change["change"] for change in changes.pop("messages")] == ["changed"]
    assert changes == {}
    assert answer("templates", "diff", "answer@1", "answer@1").out == ""


def test_search(answer: Any) -> None:
    (found,) = answer("templates", "search", "TONE", "--json").json
    assert (found["name"], found["version"], found["found_in"]) == ("answer", 2, ["slot", "text"])
    assert answer("templates", "search", "first", "--in", "text", "--json").json[0]["version"] == 1
    assert answer("templates", "search", "first", "--in", "name", "--json").json == []
    assert "answer" in answer("templates", "search", "answer").out
    assert answer("templates", "search", "x", "--in", "nowhere").code == 2


def test_show_tells_who_and_why(answer: Any) -> None:
    shown = answer("templates", "show", "answer@1", "--json").json
    assert (shown["by"], shown["message"], shown["archived_at"]) == ("ann", "First", None)
    assert shown["schema"]["properties"].keys() == {"tone"}
    assert "by ann  First" in answer("templates", "show", "answer@1").out


def test_payloads_by_key_version_and_hash(answer: Any) -> None:
    first = answer("payloads", "put", "brand", '{"tone": "brief"}', "--by", "ann", "--json").json
    assert (first["version"], first["new"]) == (1, True)
    assert answer("payloads", "put", "brand", '{"tone": "long"}').out.startswith("brand@2")
    assert not answer("payloads", "put", "brand", '{"tone": "brief"}', "--json").json["new"]
    assert answer("payloads", "get", "brand").json == {"tone": "brief"}, "put again, the key points at it again"
    assert answer("payloads", "get", "brand@2").json == {"tone": "long"}
    assert answer("payloads", "get", f"sha256:{first['hash'][:12]}").json == {"tone": "brief"}
    assert answer("payloads", "get", "brand@1", "--json").json["by"] == "ann"
    assert [row["versions"] for row in answer("payloads", "list", "--json").json] == [2]
    assert [row["version"] for row in answer("payloads", "list", "brand", "--json").json] == [1, 2]
    found = answer("payloads", "list", "--containing", '{"tone": "brief"}', "--json").json
    assert [row["hash"] for row in found] == [first["hash"]]
    rendered = answer("templates", "render", "answer@1", "--payload", "brand@2", "--json").json
    assert "long" in rendered[0]["content"]


@pytest.mark.parametrize(
    "text", ['{"a": 1, "a": 2}', '{"a": NaN}', r'{"a": "\u0000"}', r'{"a": "\ud800"}', '{"a":' * 5_000, "[1]", "x"]
)
def test_what_is_no_payload_is_refused_before_anything_is_written(answer: Any, text: str) -> None:
    refused = answer("payloads", "put", "brand", text)
    assert refused.code in (1, 2) and len(refused.err.splitlines()) == 1
    assert answer("payloads", "list", "--json").json == []


def test_a_prompt_is_recorded_and_replayed(answer: Any, notes: Path) -> None:
    answer("ingest", "notes", *EMBED)
    answer("templates", "label", "answer", "production", 1)
    answer("payloads", "put", "brand", '{"tone": "brief"}')
    asked = ("assemble", "rotate keys?", "--template", "answer@production", "--payload", "brand", *EMBED, "--json")
    assert answer("replay", answer(*asked).json["fingerprint"]).code == 1, "nobody asked to record it"
    prompt = answer(*asked, "--record").json
    shown = [word for word in asked if word != "--json"]
    assert f"recorded as {prompt['fingerprint'][:16]}" in answer(*shown, "--record").out
    assert "recorded" not in answer(*shown).out
    unknown = answer("replay", "0" * 8)
    assert unknown.code == 1 and unknown.err.startswith("error: 00000000: no such prompt")
    replayed = answer("replay", prompt["fingerprint"][:16], "--json").json
    assert {name: replayed[name] for name in prompt} == prompt
    assert replayed["payload"] == {"tone": "brief"}
    assert "byte for byte" in answer("replay", prompt["fingerprint"], "--diff", *EMBED).out

    (notes / "keys.md").write_text("# Keys\n\nKeys rotate by themselves.\n")
    answer("ingest", "notes", *EMBED)
    answer("templates", "label", "answer", "production", 2)
    answer("payloads", "put", "brand", '{"tone": "long"}')
    shown = answer("replay", prompt["fingerprint"], "--diff", *EMBED, "--json").json
    assert any("keys.md has another text" in change for change in shown["changes"])
    assert "template answer@production is version 2 now, with another content" in shown["changes"]
    assert "payload brand is version 2 now, with another content" in shown["changes"]
    assert "+Please answer" in shown["diff"] and shown["now"] != prompt["fingerprint"]
    assert "changed: payload brand" in answer("replay", prompt["fingerprint"], "--diff", *EMBED).out
    assert answer("replay", prompt["fingerprint"], "--json").json["messages"] == prompt["messages"]
    assert "answer@1" in answer("replay", prompt["fingerprint"], "--explain").out
    assert "Answer in a" in answer("replay", prompt["fingerprint"]).out

    assert answer("runs", "list", "--json").json[0]["fingerprint"] == prompt["fingerprint"]
    assert "rotate keys?" in answer("runs", "list").out
    assert answer("runs", "prune").code == 2
    assert answer("runs", "prune", "--older-than", "1d", "--json").json == {"pruned": 0}
    assert answer("runs", "prune", "--older-than", "0d", "--json").json == {"pruned": 1}
    assert answer("replay", prompt["fingerprint"]).code == 1


@pytest.mark.parametrize(
    "command",
    [f"templates {verb}" for verb in ("search", "diff", "rollback", "protect", "history", "archive")]
    + [f"payloads {verb}" for verb in ("put", "get", "list")]
    + ["replay", "runs list", "runs prune"],
)
def test_every_command_has_help_with_an_example_and_json(ctxkit: Any, command: str) -> None:
    result = ctxkit(*command.split(), "--help")
    assert result.code == 0
    assert f"Example: ctxkit {command}" in " ".join(result.out.split())
    assert "--json" in result.out


def test_a_template_from_standard_input(ctxkit: Any) -> None:
    assert ctxkit("templates", "push", "hello", "-", stdin=b"Hello,\r\n{{name}}!").code == 0
    assert ctxkit("templates", "show", "hello").out.endswith("Hello,\n{{name}}!\n\n")
    assert ctxkit("templates", "push", "hello", "-", stdin=b"\xff").code == 2


def test_the_record_of_a_template_that_is_not_there(answer: Any) -> None:
    for given in (("anser",), ("anser", "production")):
        missing = answer("templates", "history", *given)
        assert missing.code == 1 and "Known: answer" in missing.err


def test_times_are_written_by_iso_8601(answer: Any) -> None:
    for row in answer("templates", "list", "--json").json:
        assert datetime.fromisoformat(row["updated_at"]).isoformat() == row["updated_at"]


def test_a_list_that_is_missing_inside_of_a_section(ctxkit: Any) -> None:
    source = b"{{#items}}{{.title}}{{#tags}}{{.}}{{/tags}}{{/items}}"
    assert ctxkit("templates", "push", "digest", "-", stdin=source).code == 0
    missing = ctxkit("templates", "render", "digest", "--payload", '{"items": [{"title": "a", "tags": []}]}')
    assert missing.code == 1 and "write {{#.tags}} … {{/.tags}}" in missing.err
