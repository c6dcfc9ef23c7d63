"""`ctxkit chat` from outside: in a pipe, on a terminal, with a local model and with providers that fail."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxkit.history import check_history
from ctxkit.messages import Message
from ctxkit.storage import Store
from tests.cli.conftest import Result, Run
from tests.models import provider_server as provider
from tests.recall.dialogues import past

OPENAI = ("--model", "openai:gpt-4o")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[provider.Server]:
    with provider.running() as running:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{running.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", running.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test")
        running.script = [provider.answer("Fine, thanks.")]
        yield running


def chat(ctxkit: Run, lines: str, *arguments: object) -> Result:
    return ctxkit("chat", *(arguments or OPENAI), "--session", "s", stdin=lines.encode())


def stored(ctxkit: Run, session: str = "s") -> list[tuple[str, str]]:
    shown = ctxkit("sessions", "show", session, "--json").json
    return [(message["role"], message["content"]) for message in shown]


class TestInAPipe:
    def test_answers_are_printed_and_the_budget_is_shown(self, ctxkit: Run, server: provider.Server) -> None:
        done = chat(ctxkit, "How are you?\n\nAnd your dog?\n")
        assert done.code == 0, done.err
        assert done.out == "Fine, thanks.\nFine, thanks.\n"
        assert "\x1b" not in done.out + done.err, "no colours in a pipe"
        budgets = [line for line in done.err.splitlines() if line.startswith("[")]
        assert len(budgets) == 2
        assert "reused prefix 0" in budgets[0] and "reused prefix 0" not in budgets[1]
        assert all(" tokens: system " in line and "question " in line for line in budgets)
        assert "history" not in budgets[0] and "history" in budgets[1]
        assert stored(ctxkit) == [
            ("user", "How are you?"),
            ("assistant", "Fine, thanks."),
            ("user", "And your dog?"),
            ("assistant", "Fine, thanks."),
        ]
        sent = server.bodies[1]["messages"]
        assert [message["role"] for message in sent] == ["system", "user", "assistant", "user"]

    def test_json_has_a_line_a_turn_with_the_documented_keys(self, ctxkit: Run, server: provider.Server) -> None:
        done = chat(ctxkit, "One\nTwo\n", *OPENAI, "--json")
        first, second = done.lines
        assert set(first) == {
            "session", "question", "answer", "finish_reason", "model", "tokens", "reused_prefix_tokens", "dropped",
            "usage", "fingerprint",
        }  # fmt: skip
        for turn in (first, second):
            tokens = turn["tokens"]
            parts = ("system", "history", "context", "question", "other")
            assert sum(tokens[part] for part in parts) == tokens["used"] <= tokens["allowed"]
        assert 0 == first["reused_prefix_tokens"] < second["reused_prefix_tokens"] < second["tokens"]["used"]
        assert second["usage"]["cached_tokens"] == 4
        assert done.err == ""

    def test_what_is_left_out_is_said(self, ctxkit: Run, server: provider.Server) -> None:
        lines = "".join(f"Message {number} {'of many words ' * 20}\n" for number in range(8))
        for more, window in (((), "tail"), (("--json",), "hysteresis")):
            done = chat(ctxkit, lines, *OPENAI, "--budget", 400, "--window", window, *more)
            assert done.code == 0, done.err
        assert done.lines[-1]["dropped"][0]["section"] == "history"
        assert all(turn["tokens"]["used"] <= 300 for turn in done.lines)
        assert "left out" in chat(ctxkit, lines, *OPENAI, "--budget", 400).err

    def test_a_prefix_is_kept_by_hysteresis_and_not_by_a_tail(self, ctxkit: Run, server: provider.Server) -> None:
        lines = "".join(f"Message {number} {'of many words ' * 8}\n" for number in range(30))
        reused = {}
        for window in ("tail", "hysteresis"):
            done = ctxkit("chat", *OPENAI, "--budget", 900, "--window", window, "--json", stdin=lines.encode())
            reused[window] = sum(turn["reused_prefix_tokens"] for turn in done.lines)
        assert reused["hysteresis"] > 1.5 * reused["tail"]

    def test_documents_are_retrieved_where_there_are_any(
        self, ctxkit: Run, server: provider.Server, notes: Path
    ) -> None:
        assert ctxkit("ingest", notes, "--embedder", "none").code == 0
        (turn,) = chat(ctxkit, "How do I rotate a key?\n", *OPENAI, "--embedder", "none", "--json").lines
        assert turn["tokens"]["context"] > 0
        assert "run `rotate`" in json.dumps(server.bodies[0])

    def test_a_message_of_several_lines_and_one_that_begins_with_a_slash(
        self, ctxkit: Run, server: provider.Server
    ) -> None:
        chat(ctxkit, '"""\ndef f():\n\n    return 1\n"""\n//etc/hosts is what?\n"""\nnever closed')
        asked = [content for role, content in stored(ctxkit) if role == "user"]
        assert asked == ["def f():\n\n    return 1", "/etc/hosts is what?", "never closed"]

    def test_a_message_of_several_lines_is_said_as_it_is(self, ctxkit: Run, server: provider.Server) -> None:
        chat(ctxkit, '"""\n// a comment\nreturn\n"""\n"""\n/undo\n"""\n')
        asked = [content for role, content in stored(ctxkit) if role == "user"]
        assert asked == ["// a comment\nreturn", "/undo"]

    def test_wrong_numbers_and_names_are_said(self, ctxkit: Run, server: provider.Server) -> None:
        done = chat(ctxkit, f"/history {'9' * 5_000}\n/history 9999999999\n/history 0\nHello\n", *OPENAI, "--json")
        assert [line.get("kind") for line in done.lines] == ["ConfigError"] * 3 + [None]
        assert done.lines[-1]["answer"] == "Fine, thanks."
        refused = ctxkit("chat", *OPENAI, "--session", "", stdin=b"Hello\n")
        assert refused.code != 0 and "the session is empty" in refused.err
        silent = ctxkit("chat", *OPENAI, "--session", "other", stdin=b"")
        assert silent.code == 0 and "kept as" not in silent.err

    def test_a_template_with_a_payload(self, ctxkit: Run, server: provider.Server, tmp_path: Path) -> None:
        source = "---\nname: tone\n---\n--- system ---\nBe {{tone}}.\n--- history ---\n--- user ---\n{{question}}\n"
        (tmp_path / "tone.md").write_text(source, encoding="utf-8")
        assert ctxkit("templates", "push", "tone", "tone.md").code == 0
        done = chat(ctxkit, "Hello\n", *OPENAI, "--template", "tone", "--payload", '{"tone": "brief"}')
        assert done.code == 0, done.err
        assert "brief" in server.bodies[0]["messages"][0]["content"]


class TestCommands:
    def test_each_of_them(self, ctxkit: Run, server: provider.Server) -> None:
        lines = (
            "/budget\n/undo\n/retry\nFirst\n/budget\nSecond\n/history 2\n/search first\n/undo\n/history\n/exit\nnever"
        )
        done = chat(ctxkit, lines, *OPENAI, "--json")
        assert done.code == 0, done.err
        budget, undo, retry, first, explained, _, history, found, undone, left = done.lines
        assert (budget["turn"], undo["taken_back"], retry["question"]) == (None, [], None)
        assert explained["turn"]["fingerprint"] == first["fingerprint"]
        assert [message["content"] for message in history["messages"]] == ["Second", "Fine, thanks."]
        assert [message["content"] for message in found["messages"]] == ["First"]
        assert [message["content"] for message in undone["taken_back"]] == ["Second", "Fine, thanks."]
        assert [message["sequence"] for message in left["messages"]] == [1, 2]
        assert len(stored(ctxkit)) == 2

    def test_they_print_for_people(self, ctxkit: Run, server: provider.Server) -> None:
        done = chat(ctxkit, "/help\n/history\nHello\n/budget\n/search nothing-like-this\n")
        assert done.code == 0
        for word in ("/undo", "nothing has been said yet", "stable prefix", "nothing found"):
            assert word in done.out

    def test_an_answer_is_asked_for_again(self, ctxkit: Run, server: provider.Server) -> None:
        server.script = [provider.answer("Bad."), provider.answer("Good.")]
        assert chat(ctxkit, "Hello\n/retry\n").out == "Bad.\nGood.\n"
        assert stored(ctxkit) == [("user", "Hello"), ("assistant", "Good.")]
        assert len(server.bodies[1]["messages"]) == 2, "neither the question nor the bad answer is sent twice"

    @pytest.mark.parametrize("line", ["/nope", "/", "/history many", "/history 0", "/search", "/search  "])
    def test_a_wrong_one_is_one_line_and_the_chat_goes_on(
        self, ctxkit: Run, server: provider.Server, line: str
    ) -> None:
        done = chat(ctxkit, f"{line}\nHello\n")
        assert done.code == 1
        assert [each for each in done.err.splitlines() if each.startswith("error: ")]
        assert done.out == "Fine, thanks.\n"


class TestErrors:
    def test_a_provider_that_fails_is_one_line_and_the_chat_goes_on(self, ctxkit: Run, server: provider.Server) -> None:
        server.script = [
            provider.error(401, "no such key"),
            provider.answer("Half an answer that is cut", break_after=3),
            provider.answer("Back."),
        ]
        done = chat(ctxkit, "First\nSecond\nThird\n", *OPENAI, "--json")
        assert done.code == 1
        refused, cut, fine = done.lines
        assert refused["kind"] == "AuthenticationError" and refused["remedy"] and refused["question"] == "First"
        assert cut["question"] == "Second" and "error" in cut
        assert fine["answer"] == "Back."
        assert len(done.err.splitlines()) == 2
        assert stored(ctxkit) == [("user", "First"), ("user", "Second"), ("user", "Third"), ("assistant", "Back.")]

    @pytest.mark.parametrize("model", ["openai:gpt-4o", "anthropic:claude-sonnet-4-6"])
    def test_a_question_that_waits_is_answered_later(self, ctxkit: Run, server: provider.Server, model: str) -> None:
        """The state that a crash between question and answer leaves."""
        with Store.open("sqlite:///.ctxkit/store.db") as store:
            store.sessions.append("s", [Message("user", "Are you there?")])
        again = chat(ctxkit, "/retry\n", "--model", model)
        assert again.code == 0, again.err
        assert "no answer yet" in again.err
        assert stored(ctxkit) == [("user", "Are you there?"), ("assistant", "Fine, thanks.")]

    @pytest.mark.parametrize("model", ["openai:gpt-4o", "anthropic:claude-sonnet-4-6"])
    def test_or_another_one_is_asked(self, ctxkit: Run, server: provider.Server, model: str) -> None:
        with Store.open("sqlite:///.ctxkit/store.db") as store:
            store.sessions.append("s", [Message("user", "Are you there?")])
        assert chat(ctxkit, "Hello?\n", "--model", model).code == 0
        assert "Are you there?" in json.dumps(server.bodies[0])

    @pytest.mark.parametrize(
        ("arguments", "code"),
        [
            (("--model", "nobody:x"), 2),
            (("--model", "local:/no/such/folder"), 1),
            (("--window", "nothing", *OPENAI), 2),
            (("--budget", "999999999", *OPENAI), 2),
            (("--max-tokens", "0", *OPENAI), 2),
            (("--payload", "{", *OPENAI), 2),
        ],
    )
    def test_wrong_usage(self, ctxkit: Run, server: provider.Server, arguments: tuple[str, ...], code: int) -> None:
        refused = ctxkit("chat", *arguments, stdin=b"Hello\n")
        assert refused.code == code
        assert len([line for line in refused.err.splitlines() if line.startswith("error: ")]) == 1

    def test_bad_input(self, ctxkit: Run, server: provider.Server) -> None:
        """Over the budget, 5 MB, NUL, not UTF-8: refused in one line, nothing stored, and the chat goes on."""
        lines = b"word " * 2_000 + b"\n" + b"x" * 5_000_000 + b"\na\x00b\n\xff\xfe\nHello\n"
        done = ctxkit("chat", *OPENAI, "--budget", 1_000, "--session", "s", "--json", stdin=lines)
        assert done.code == 1
        *refused, answered = done.lines
        assert [each["kind"] for each in refused] == ["BudgetError", "BudgetError", "StorageError", "ConfigError"]
        assert all(each["remedy"] for each in refused)
        assert "question" in refused[0]["error"]
        assert answered["answer"] == "Fine, thanks."
        assert stored(ctxkit) == [("user", "Hello"), ("assistant", "Fine, thanks.")]

    def test_a_broken_session_is_repaired_in_what_is_sent(self, ctxkit: Run, server: provider.Server) -> None:
        """Results without calls, an empty message, a clock that went back: nothing of it reaches the provider."""
        from datetime import UTC, datetime

        with Store.open("sqlite:///.ctxkit/store.db") as store:
            store.sessions.append(
                "s",
                [
                    Message("tool", "42", tool_call_id="nobody"),
                    Message("user", "", created_at=datetime(2026, 5, 2, tzinfo=UTC)),
                    Message("assistant", "   "),
                    Message("user", "earlier by the clock", created_at=datetime(2020, 1, 1, tzinfo=UTC)),
                ],
            )
        (turn,) = chat(ctxkit, "Hello\n", "--model", "anthropic:claude-sonnet-4-6", "--json").lines
        assert turn["answer"] == "Fine, thanks."
        assert {one["item"] for one in turn["dropped"]} == {"s:1", "s:3"}
        assert [message["sequence"] for message in ctxkit("sessions", "show", "s", "--json").json] == [1, 2, 3, 4, 5, 6]


def kept(folder: Path) -> list[Message]:
    with Store.open(f"sqlite:///{folder / 'store.db'}") as store:
        return store.sessions.messages("s")


COMMAND = [sys.executable, "-m", "ctxkit", "chat", "--session", "s", "--store", "sqlite:///store.db", *OPENAI]
SLOW = provider.answer("word " * 400, delay=0.02)


class TestStopping:
    def test_an_interrupt_on_a_terminal_stops_the_answer_and_the_chat_goes_on(
        self, server: provider.Server, tmp_path: Path
    ) -> None:
        server.script = [SLOW]
        main, terminal = pty.openpty()
        process = subprocess.Popen(
            COMMAND, stdin=terminal, stdout=terminal, stderr=terminal, cwd=tmp_path, start_new_session=True
        )
        os.close(terminal)
        screen = b""

        def read_until(text: bytes) -> None:
            nonlocal screen
            deadline = time.monotonic() + 60
            while text not in screen:
                assert time.monotonic() < deadline and process.poll() is None, screen
                if select.select([main], [], [], 0.2)[0]:
                    screen += os.read(main, 4096)
            screen = screen[screen.index(text) + len(text) :]

        try:
            read_until(b"> ")
            os.write(main, b"Hello\n")
            read_until(b"word word word")
            process.send_signal(signal.SIGINT)
            read_until(b"what came of the answer is kept")
            partial = kept(tmp_path)
            assert [message.role for message in partial] == ["user", "assistant"]
            assert 14 <= len(partial[1].text) < 2_000
            read_until(b"> ")
            process.send_signal(signal.SIGINT)  # at the prompt: it ends nothing
            read_until(b"Ctrl-D ends")
            read_until(b"> ")
            os.write(main, b"\x04")
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()
            os.close(main)
        check_history(kept(tmp_path))

    def test_an_interrupt_in_a_pipe_ends_with_130_and_keeps_a_valid_history(
        self, server: provider.Server, tmp_path: Path
    ) -> None:
        server.script = [SLOW]
        with subprocess.Popen(
            COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(b"Hello\nNever asked\n")
            process.stdin.flush()
            process.stdout.read(20)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
        assert process.returncode == 130
        messages = kept(tmp_path)
        assert [message.role for message in messages] == ["user", "assistant"]
        check_history(messages)

    def test_a_kill_between_question_and_answer_loses_nothing_that_was_acknowledged(
        self, ctxkit: Run, server: provider.Server, tmp_path: Path
    ) -> None:
        server.script = [SLOW, provider.answer("Fine, thanks.")]
        with subprocess.Popen(
            COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=tmp_path
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(b"Hello\n")
            process.stdin.flush()
            process.stdout.read(5)
            process.kill()
        assert [message.text for message in kept(tmp_path)] == ["Hello"]
        done = chat(ctxkit, "/retry\n", *OPENAI, "--store", "sqlite:///store.db")
        assert (done.code, done.out) == (0, "Fine, thanks.\n")
        assert [message.text for message in kept(tmp_path)] == ["Hello", "Fine, thanks."]


def test_a_tiny_local_model_through_standard_input(ctxkit: Run, tiny_folder: Path) -> None:
    done = chat(ctxkit, "Hello\nAnd again\n", "--model", f"local:{tiny_folder}", "--max-tokens", 8, "--json")
    assert done.code == 0, done.err
    first, second = done.lines
    assert second["usage"]["prompt_tokens"] == second["tokens"]["used"], "what is counted is what is fed"
    assert second["reused_prefix_tokens"] > first["tokens"]["system"]
    assert [role for role, _ in stored(ctxkit)] == ["user", "assistant"] * 2


@pytest.mark.model
def test_the_small_model_talks(ctxkit: Run) -> None:
    done = ctxkit("chat", "--max-tokens", 24, "--json", stdin=b"What is the capital of France?\nAnd of Italy?\n")
    assert done.code == 0, done.err
    first, second = done.lines
    assert "Paris" in first["answer"]
    assert second["usage"]["prompt_tokens"] == second["tokens"]["used"]
    assert second["tokens"]["history"] > 0 and second["reused_prefix_tokens"] > first["tokens"]["system"]


def test_recall_quotes_what_the_window_leaves_out(ctxkit: Run, server: provider.Server) -> None:
    with Store.open("sqlite:///.ctxkit/store.db") as store:
        store.sessions.append("s", past(60))
    asked = "Who plays the violin?\n"
    options = (*OPENAI, "--budget", 900, "--max-tokens", 100, "--embedder", "none")
    assert chat(ctxkit, asked, *options, "--recall").code == 0
    assert "<earlier-" in json.dumps(server.bodies[0])
    assert chat(ctxkit, asked, *options).code == 0
    assert "<earlier-" not in json.dumps(server.bodies[1])


def test_recall_in_a_new_session(ctxkit: Run, server: provider.Server) -> None:
    done = chat(ctxkit, "How are you?\n", *OPENAI, "--recall", "--embedder", "none")
    assert (done.code, done.out) == (0, "Fine, thanks.\n"), done.err
