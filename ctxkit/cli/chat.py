"""`ctxkit chat`: a conversation in the terminal, that shows what each turn costs, and keeps the session."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from ctxkit.cli.output import (
    EmbedderOption,
    JsonOption,
    RecallOption,
    StoreOption,
    TenantOption,
    parse_payload,
    progress,
    say,
    write,
)
from ctxkit.errors import ConfigError, CtxkitError

if TYPE_CHECKING:
    from ctxkit.cli.chat_turns import Conversation

__all__ = ["add_to"]

INTERRUPTED = 130
BLOCK = '"""'


class Verbatim(str):
    """A message of several lines: said as it is, whatever it begins with."""

    __slots__ = ()


def chat(
    session: str | None = typer.Option(None, "--session", help="The session to go on with. [default: a new one]"),
    model: str = typer.Option("local", "--model", help="local, local:PATH, openai:NAME or anthropic:NAME."),
    template: str | None = typer.Option(None, "--template", help="A template, such as support@production."),
    payload: str | None = typer.Option(
        None, "--payload", help="The template's variables: JSON, @FILE, or a stored one."
    ),
    budget: int | None = typer.Option(None, "--budget", help="Tokens of prompt and answer. [default: the model's]"),
    max_tokens: int = typer.Option(512, "--max-tokens", help="Of an answer, at most."),
    window: str = typer.Option("hysteresis", "--window", help="What of the history is sent: a registered window."),
    recall: bool = RecallOption,
    candidates: int = typer.Option(20, "-k", "--candidates", help="How many chunks to retrieve, where documents are."),
    temperature: float = typer.Option(0.0, help="0 always gives the likeliest answer."),
    seed: int | None = typer.Option(None, help="The same seed gives the same answer."),
    timeout: float = typer.Option(120.0, help="Seconds for an answer."),
    embedder: str = EmbedderOption,
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Talk with a model; the session is kept, and what each turn costs is shown. /help lists the commands.

    In a pipe each line of standard input is a message. Exit code 1 when one of them got no answer.

    Example: ctxkit chat --session alice --model local
    """
    from ctxkit.cli.chat_turns import Conversation, chat_template
    from ctxkit.cli.chat_view import tell
    from ctxkit.composing import budget_for
    from ctxkit.engine import ContextEngine
    from ctxkit.prompts import CompletionOptions
    from ctxkit.registry import create
    from ctxkit.storage import Encryption

    with ContextEngine.open(
        store,
        tenant=tenant,
        encryption=Encryption.from_environment(),
        window=create("window", window),
        embedder=embedder,
        candidates=candidates,
    ) as engine:
        target = engine.model(model)
        whole = budget_for(budget, target.window, limited=True)
        room = whole.reserve_output or whole.max_tokens
        name = _new_name() if session is None else session
        engine.store.sessions.check(name)
        conversation = Conversation(
            engine=engine,
            session=name,
            model=model,
            budget=whole,
            options=CompletionOptions(
                max_tokens=min(max_tokens, room), temperature=temperature, seed=seed, timeout=timeout
            ),
            template=template or chat_template(documents=bool(engine.store.statistics()["documents"])),
            payload=parse_payload(payload),
            recall=recall,
        )
        if not as_json:
            tell(f"session {name}, model {target.name}, {whole.available:,} tokens a prompt; /help lists the commands")
            if waiting := conversation.waiting():
                tell(f"the last question has no answer yet, /retry asks it: {' '.join(waiting.split())[:120]}")
        code = _talk(conversation, as_json=as_json)
        if not as_json and engine.store.sessions.messages(name, last=1):
            tell(f"kept as session {name}; go on with: ctxkit chat --session {name}")
    raise typer.Exit(code)


def _new_name() -> str:
    import secrets

    return f"chat-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def _talk(conversation: Conversation, *, as_json: bool) -> int:
    """Read and answer until the input ends; the exit code."""
    from ctxkit.cli.chat_view import report_error, tell

    watched = sys.stdin.isatty()
    failed = False
    lines = _typed() if watched else _piped()
    while True:
        try:
            message = next(lines, None)
            if message is None:
                break
            if isinstance(message, CtxkitError):
                raise message
            ended = _one(message, conversation, as_json=as_json)
        except KeyboardInterrupt:
            if not watched:
                return INTERRUPTED
            tell("\n(/exit or Ctrl-D ends)")
            lines = _typed()
            continue
        except CtxkitError as error:
            failed = True
            report_error(error, as_json=as_json, session=conversation.session, question=_shown(message))
            continue
        if ended:
            break
    return int(failed and not watched)


def _shown(message: object) -> str | None:
    return message if isinstance(message, str) else None


def _one(message: str, conversation: Conversation, *, as_json: bool) -> bool:
    """Answer one message, or run one command; whether the chat is over."""
    from ctxkit.cli.chat_commands import run_command
    from ctxkit.cli.chat_view import answer_command

    if isinstance(message, Verbatim):
        pass
    elif message.startswith("/") and not message.startswith("//"):
        outcome = run_command(message, conversation)
        if outcome.ask is None:
            if outcome.values is not None:
                name = message[1:].split(maxsplit=1)[0].lower()
                answer_command(name, outcome.text, outcome.values, as_json=as_json)
            return outcome.end
        message = outcome.ask
    elif message.startswith("//"):
        message = message[1:]
    _ask(message, conversation, as_json=as_json)
    return False


def _ask(question: str, conversation: Conversation, *, as_json: bool) -> None:
    """Print the answer as it comes. An interrupt ends the answer; in a pipe it ends the chat too."""
    from ctxkit.cli.chat_view import report

    before, interrupted, printed = conversation.last, False, False
    answer = conversation.say(question)
    try:
        with progress("", quiet=as_json or not sys.stdin.isatty()):
            text = next(answer, None)
        while text is not None:
            if not as_json:
                write(text)
                printed = True
            text = next(answer, None)
    except KeyboardInterrupt:
        answer.close()
        interrupted = True
    finally:
        if printed:
            say()
    if conversation.last is not None and conversation.last is not before:
        report(conversation.last, conversation.session, as_json=as_json)
    if interrupted and not sys.stdin.isatty():
        raise KeyboardInterrupt


def _typed() -> Iterator[str | CtxkitError]:
    """Messages from a terminal, with line editing where the platform has it."""
    import contextlib

    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  # importing it gives input() its editing and its history
    yield from _messages(_prompted())


def _prompted() -> Iterator[str | CtxkitError]:
    while True:
        try:
            yield input("> ") if sys.stdout.isatty() else sys.stdin.readline().removesuffix("\n") or "/exit"
        except EOFError:
            say()
            return
        except UnicodeDecodeError:
            yield ConfigError("the message is not UTF-8", remedy="Set the terminal to UTF-8.")


def _piped() -> Iterator[str | CtxkitError]:
    yield from _messages(_decoded())


def _decoded() -> Iterator[str | CtxkitError]:
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            yield ConfigError("the line is not UTF-8", subject=f"line {number}", remedy="Convert the input to UTF-8.")


def _messages(lines: Iterator[str | CtxkitError]) -> Iterator[str | CtxkitError]:
    """Lines as messages: blank ones are skipped, and those between two lines of three quotes are one, as it is."""
    block: list[str] | None = None
    for line in lines:
        if isinstance(line, CtxkitError):
            yield line
        elif line.strip() == BLOCK:
            if block:
                yield Verbatim("\n".join(block))
            block = [] if block is None else None
        elif block is not None:
            block.append(line)
        elif line.strip():
            yield line.strip()
    if block:
        yield Verbatim("\n".join(block))


def add_to(app: typer.Typer) -> None:
    app.command()(chat)
