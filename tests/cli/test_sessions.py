"""`ctxkit sessions`, from outside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def alice(ctxkit: Any, tmp_path: Path) -> str:
    """A session with a tool call, made by an import."""
    messages = [
        {"role": "user", "content": "Weather in Oslo?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
        },
        {"role": "tool", "content": "rain", "tool_call_id": "c"},
        {"role": "assistant", "content": "It rains."},
    ]
    (tmp_path / "alice.json").write_text(json.dumps(messages), encoding="utf-8")
    done = ctxkit("sessions", "import", "alice", "alice.json", "--format", "openai", "--json")
    assert done.code == 0, done.err
    assert done.json == {"session": "alice", "format": "openai", "read": 4, "appended": 4, "notes": []}
    return "alice"


def test_importing_again_changes_nothing(ctxkit: Any, alice: str) -> None:
    again = ctxkit("sessions", "import", alice, "alice.json", "--format", "openai")
    assert again.out == "alice: 0 messages appended, 4 were there\n"
    assert len(ctxkit("sessions", "show", alice, "--json").json) == 4


@pytest.mark.parametrize("form", ["jsonl", "openai", "anthropic"])
def test_a_session_goes_out_and_in_again(ctxkit: Any, alice: str, form: str) -> None:
    exported = ctxkit("sessions", "export", alice, "--format", form, "-o", "out.txt")
    assert exported.code == 0 and "4 messages written" in exported.out
    assert ("note: ids and times" in exported.err) == (form != "jsonl")
    printed = ctxkit("sessions", "export", alice, "--format", form)
    assert printed.out == Path("out.txt").read_text(encoding="utf-8")
    done = ctxkit("sessions", "import", "copy", "-", "--format", form, stdin=printed.out.encode())
    assert done.out.startswith("copy: 4 messages appended")
    first, second = (ctxkit("sessions", "show", name, "--json").json for name in (alice, "copy"))
    assert [{**message, "id": ""} for message in second] == [{**message, "id": ""} for message in first]
    strict = ctxkit("sessions", "export", alice, "--format", form, "--strict")
    assert strict.code == (0 if form == "jsonl" else 1)
    assert {"session", "format", "messages", "notes", "content"} == set(
        ctxkit("sessions", "export", alice, "--format", form, "--json").json
    )


def test_branches(ctxkit: Any, alice: str) -> None:
    made = ctxkit("sessions", "branch", alice, 1, "--json").json
    assert (made["id"], made["parent"], made["fork"], made["messages"]) == ("alice~1", "alice", 1, 1)
    edited = ctxkit("sessions", "branch", alice, 1, "--edit", "Weather in Rome?", "--name", "rome", "--json").json
    assert edited["replaces"].startswith("import:1:") and edited["fork"] == 0
    assert ctxkit("sessions", "show", "rome").out == "[1] user: Weather in Rome?\n"
    listed = ctxkit("sessions", "list").out
    assert "parent" in listed and "replaces" in listed
    refused = ctxkit("sessions", "delete", alice)
    assert refused.code == 1 and "branches" in refused.err and len(refused.err.splitlines()) == 1
    assert ctxkit("sessions", "delete", alice, "--branches", "--json").json["deleted"] == 5
    assert ctxkit("sessions", "branch", "nobody", 1).code == 1


def test_pruning_says_what_went(ctxkit: Any, alice: str) -> None:
    done = ctxkit("sessions", "prune", alice, "--keep", 2, "--archive")
    assert done.out.startswith("alice: 3 messages archived; 1 kept"), "a call went with its result"
    assert len(ctxkit("sessions", "show", alice, "--json").json) == 1
    assert len(ctxkit("sessions", "show", alice, "--archived", "--json").json) == 4
    assert len(ctxkit("sessions", "export", alice).lines) == 4, "an export has the archive"
    assert len(ctxkit("sessions", "export", alice, "--active").lines) == 1
    pruned = ctxkit("sessions", "prune", alice, "--keep", 0, "--json").json
    assert (pruned["deleted"], pruned["kept"]) == (4, 0)
    for wrong in ((), ("--keep", -1), ("--days", "nan")):
        assert ctxkit("sessions", "prune", alice, *wrong).code == 2


def test_search(ctxkit: Any, alice: str) -> None:
    found = ctxkit("sessions", "search", "RAIN", "--json").json
    assert [(match["session"], match["sequence"]) for match in found] == [("alice", 4), ("alice", 3)]
    assert ctxkit("sessions", "search", "oslo").out == "alice [1] user: Weather in Oslo?\n"
    ctxkit("sessions", "append", "bob", "Hello.")
    assert ctxkit("sessions", "search", "oslo", "--session", "bob", "--json").json == []


@pytest.mark.parametrize(
    "command",
    [
        ("show",),
        ("delete",),
        ("export",),
        ("branch", 1),
        ("window", "--max-tokens", 100),
        ("prune", "--keep", 1),
        ("undo",),
    ],
)
def test_an_unknown_session_is_the_same_error_everywhere(ctxkit: Any, alice: str, command: tuple[Any, ...]) -> None:
    refused = ctxkit("sessions", command[0], "alcie", *command[1:])
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == (
        "error: alcie: there is no such session. Did you mean 'alice'? List them: ctxkit sessions list.\n"
    )
    far = ctxkit("sessions", command[0], "zzz", *command[1:])
    assert far.err == "error: zzz: there is no such session. List them: ctxkit sessions list.\n"
    for search in ((), ("--recall", "--embedder", "none")):
        assert ctxkit("sessions", "search", "rain", "--session", "alcie", *search).err == refused.err


def test_a_session_whose_messages_all_went_is_still_one(ctxkit: Any, alice: str) -> None:
    ctxkit("sessions", "prune", alice, "--keep", 0)
    assert ctxkit("sessions", "show", alice, "--json").json == []
    window = ctxkit("sessions", "window", alice, "--max-tokens", 100, "--json").json
    assert (window["messages"], window["tokens"], window["session_tokens"]) == ([], 0, 0)
    assert ctxkit("sessions", "delete", alice, "--json").json["deleted"] == 0


def test_what_is_wrong_is_said_in_options(ctxkit: Any, alice: str) -> None:
    for wrong, words in (
        ((), "Give --keep, --days or --bytes."),
        (("--keep", -1), "--keep is -1"),
        (("--bytes", -1), "--bytes is -1"),
        (("--days", "nan"), "--days is nan"),
        (("--days", "1e300"), "--days is 1e+300"),
    ):
        refused = ctxkit("sessions", "prune", alice, *wrong)
        assert refused.code == 2 and words in refused.err, refused.err
    ctxkit("sessions", "branch", alice, 1)
    assert "--branches" in ctxkit("sessions", "delete", alice).err


@pytest.mark.parametrize("form", ["openai", "anthropic"])
def test_an_import_in_the_wrong_format_names_the_right_option(ctxkit: Any, alice: str, form: str) -> None:
    exported = ctxkit("sessions", "export", alice, "--format", form).out.encode()
    refused = ctxkit("sessions", "import", "copy", "-", stdin=exported)
    assert refused.code == 1 and f"--format {form}" in refused.err and "export_history" not in refused.err
    assert ctxkit("sessions", "show", "copy").code == 1, "nothing was made"
    neither = ctxkit("sessions", "import", "copy", "-", stdin=b"Dear aunt")
    assert neither.code == 1 and "not JSON" in neither.err and "It reads with" not in neither.err


def test_undo_takes_back_the_newest_question_and_what_came_after_it(ctxkit: Any) -> None:
    for text, role in (
        ("One?", "user"),
        ("1", "assistant"),
        ("Two?", "user"),
        ("2", "assistant"),
        ("Really.", "assistant"),
    ):
        ctxkit("sessions", "append", "s", text, "--role", role)
    answers = ctxkit("sessions", "undo", "s", "--answer", "--json").json
    assert [message["content"] for message in answers["taken_back"]] == ["2", "Really."]
    done = ctxkit("sessions", "undo", "s")
    assert done.out == "s: 1 message taken back, 2 left\n[3] user: Two?\n"
    assert [message["content"] for message in ctxkit("sessions", "show", "s", "--json").json] == ["One?", "1"]
    assert ctxkit("sessions", "undo", "s").code == 0
    nothing = ctxkit("sessions", "undo", "s")
    assert (nothing.code, nothing.out) == (0, "s: 0 messages taken back, 0 left\n")


def test_undo_leaves_what_a_branch_shares(ctxkit: Any, alice: str) -> None:
    ctxkit("sessions", "branch", alice, 4)
    refused = ctxkit("sessions", "undo", alice)
    assert refused.code == 1 and "branch" in refused.err
    assert len(ctxkit("sessions", "show", alice, "--json").json) == 4


def test_keys_from_the_environment(ctxkit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = "00" * 32, "QUFB" * 10 + "QUE="
    monkeypatch.setenv("CTXKIT_SESSION_KEYS", old)
    ctxkit("sessions", "append", "s", "first")
    monkeypatch.setenv("CTXKIT_SESSION_KEYS", f"{new}, {old}")
    ctxkit("sessions", "append", "s", "second")
    assert [message["content"] for message in ctxkit("sessions", "show", "s", "--json").json] == ["first", "second"]
    assert ctxkit("sessions", "list", "--json").json[0]["encrypted"] is True
    sent = ctxkit("assemble", "What now?", "--session", "s", "--embedder", "none", "--json")
    assert [message["content"] for message in sent.json["messages"][1:3]] == ["first", "second"]
    recorded = ctxkit("assemble", "What now?", "--session", "s", "--embedder", "none", "--record", "--json").json
    again = ctxkit("replay", recorded["fingerprint"], "--diff", "--embedder", "none", "--json").json
    assert (again["now"], again["error"]) == (recorded["fingerprint"], None)
    monkeypatch.delenv("CTXKIT_SESSION_KEYS")
    for command in (("show", "s"), ("append", "s", "third"), ("export", "s"), ("search", "first")):
        refused = ctxkit("sessions", *command)
        assert refused.code == 1 and "encrypted" in refused.err
        assert "Traceback" not in refused.err and len(refused.err.splitlines()) == 1
    for wrong in ("zz", "QUFB", "é"):
        monkeypatch.setenv("CTXKIT_SESSION_KEYS", wrong)
        assert ctxkit("sessions", "list").code == 2


@pytest.mark.parametrize(
    ("content", "form", "code"),
    [
        (b"not json", "jsonl", 1),
        (b"\xff\xfe", "openai", 2),
        (b'[{"role": "wizard", "content": "x"}]', "openai", 2),
        (b'[{"role": "user", "content": "a\\u0000b"}]', "openai", 1),
        (b'[{"role": "user", "content": "\\ud800"}]', "openai", 1),
        (b"{}", "anthropic", 1),
        (b"[]", "xml", 2),
    ],
)
def test_what_cannot_be_imported_is_one_line_and_changes_nothing(
    ctxkit: Any, content: bytes, form: str, code: int
) -> None:
    refused = ctxkit("sessions", "import", "s", "-", "--format", form, stdin=content)
    assert (refused.code, len(refused.err.splitlines())) == (code, 1), refused.err
    assert ctxkit("sessions", "list", "--store", "sqlite:///.ctxkit/store.db", "--json").out in ("", "[]\n")
    assert ctxkit("sessions", "import", "s", "no-such-file").code == 2


@pytest.mark.parametrize("verb", ["export", "import", "branch", "prune", "search"])
def test_every_command_has_help_with_an_example_and_json(ctxkit: Any, verb: str) -> None:
    result = ctxkit("sessions", verb, "--help")
    assert result.code == 0
    assert f"Example: ctxkit sessions {verb}" in " ".join(result.out.split())
    assert "--json" in result.out
