"""Law 9: importing, resolving, counting and asking a local model touch no network."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

GUARD = """
import socket

def refuse(*arguments, **named):
    raise AssertionError(f"the network was touched: {arguments!r}")

class Blocked(socket.socket):
    def connect(self, address):
        refuse(address)
    connect_ex = connect
    sendto = connect

socket.socket = Blocked
socket.create_connection = refuse
socket.getaddrinfo = refuse
socket.gethostbyname = refuse
"""


def run(code: str, **environment: str) -> str:
    """Run code in a fresh Python in which every connection and every look-up of a name fails."""
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", GUARD + code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    if "is not installed" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_guard_holds() -> None:
    done = subprocess.run(
        [sys.executable, "-c", GUARD + "import urllib.request as r; r.urlopen('http://127.0.0.1:9/')"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "the network was touched" in done.stderr


def test_importing_and_counting() -> None:
    out = run(
        """
import ctxkit, ctxkit.models
from ctxkit import Message
from ctxkit.models import get_chat_counter, get_model, get_window
from ctxkit.models import catalogue
for spec in ("openai:gpt-4o", "openai:gpt-4", "anthropic:claude-sonnet-4-6", "echo", "cl100k_base"):
    print(spec, get_chat_counter(spec).count_prompt([Message("user", "hello")]) > 0, get_window(spec) > 0)
get_model("openai:gpt-4o"), get_model("anthropic:claude-sonnet-4-6")
catalogue.list_models()
"""
    )
    assert out.count("True True") == 5


def test_asking_a_local_model(tiny_folder: Path) -> None:
    out = run(
        f"""
from ctxkit import Message
from ctxkit.models import get_chat_counter, get_model
from ctxkit.prompts import CompletionOptions
from ctxkit.testing.models import prompt_of
spec = {f"local:{tiny_folder}"!r}
model = get_model(spec)
prompt = prompt_of(Message("user", "hello"), counter=get_chat_counter(spec))
completion = model.complete(prompt, CompletionOptions(max_tokens=4))
print(completion.usage.prompt_tokens == prompt.token_count)
"""
    )
    assert out.strip() == "True"


@pytest.mark.model
def test_asking_the_small_model() -> None:
    """Resolved, counted and loaded from this machine alone; a name that is not here is not looked for elsewhere."""
    out = run(
        """
from ctxkit import Message
from ctxkit.errors import ModelNotFoundError
from ctxkit.models import get_chat_counter, get_model
from ctxkit.prompts import CompletionOptions
from ctxkit.testing.models import prompt_of
prompt = prompt_of(Message("user", "Say yes."), counter=get_chat_counter("local"))
print(get_model("local").complete(prompt, CompletionOptions(max_tokens=2)).usage.completion_tokens > 0)
try:
    get_model("local:nobody/has-this-model")
except ModelNotFoundError as error:
    print(bool(error.remedy))
"""
    )
    assert out.split() == ["True", "True"]
