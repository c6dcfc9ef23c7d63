"""`ctxkit sessions list|show|append|export|import|branch|prune|search|delete`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ctxkit.checking import check_number, check_whole
from ctxkit.cli import session_undo, session_window
from ctxkit.cli.opening import open_store
from ctxkit.cli.output import (
    EmbedderOption,
    JsonOption,
    NowOption,
    StoreOption,
    TenantOption,
    emit,
    parse_json,
    parse_moment,
    say,
    table,
    write,
)
from ctxkit.errors import ConfigError, CtxkitError, HistoryError
from ctxkit.messages import Message

if TYPE_CHECKING:
    from ctxkit.documents import Candidate
    from ctxkit.storage import SessionInfo

__all__ = ["app"]

app = typer.Typer(help="Stored dialogues.", no_args_is_help=True)
session_window.add_to(app)
session_undo.add_to(app)


def _info(info: SessionInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "messages": info.message_count,
        "parent": info.parent,
        "fork": info.fork,
        "replaces": info.replaces,
        "archived_through": info.archived_through,
        "deleted_through": info.deleted_through,
        "encrypted": info.encrypted,
        "created_at": info.created_at,
        "updated_at": info.updated_at,
    }


def _message(message: Message) -> dict[str, Any]:
    return {
        "id": message.id,
        "sequence": message.sequence,
        "created_at": message.created_at.isoformat() if message.created_at else None,
        **message.to_openai(),
    }


@app.command("list")
def list_sessions(
    store: str | None = StoreOption, tenant: str | None = TenantOption, as_json: bool = JsonOption
) -> None:
    """List the sessions.

    Example: ctxkit sessions list
    """
    with open_store(store, tenant, keys=True) as opened:
        rows = [_info(info) for info in opened.sessions.list()]
    if as_json:
        emit(rows)
        return
    # What most sessions do not have is left out of the table.
    rare = ("parent", "fork", "replaces", "archived_through", "deleted_through", "encrypted")
    unused = {name for name in rare if not any(row[name] for row in rows)}
    say(table([{name: value for name, value in row.items() if name not in unused} for row in rows]))


@app.command()
def show(
    session: str = typer.Argument(..., help="The session's id."),
    last: int | None = typer.Option(None, help="Only the newest messages."),
    archived: bool = typer.Option(False, "--archived", help="Archived messages too."),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Print the messages of a session, oldest first.

    Example: ctxkit sessions show alice --last 10
    """
    with open_store(store, tenant, keys=True) as opened:
        opened.sessions.info(session)
        messages = [_message(message) for message in opened.sessions.messages(session, last=last, archived=archived)]
    if as_json:
        emit(messages)
        return
    for message in messages:
        say(f"[{message['sequence']}] {message['role']}: {message['content'] or message.get('tool_calls', '')}")


@app.command()
def append(
    session: str = typer.Argument(..., help="The session's id; it is made when it is new."),
    content: str = typer.Argument(..., help="The text, or with --raw a message as JSON."),
    role: str = typer.Option("user", help="user, assistant or system."),
    raw: bool = typer.Option(False, "--raw", help="CONTENT is an OpenAI-style message, or @FILE."),
    message_id: str = typer.Option("", "--id", help="Appending the same id again changes nothing."),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Append a message to a session.

    Example: ctxkit sessions append alice "How do I rotate the key?"
    """
    data = parse_json(content, what="message") if raw else {"role": role, "content": content}
    if message_id:
        data["id"] = message_id
    with open_store(store, tenant, create=True, keys=True) as opened:
        (saved,) = opened.sessions.append(session, [Message.from_openai(data)])
    emit(_message(saved)) if as_json else say(f"{session}: message {saved.id} is number {saved.sequence}")


@app.command("export")
def export_session(
    session: str = typer.Argument(..., help="The session's id."),
    form: str = typer.Option("jsonl", "--format", help="jsonl (holds everything), openai or anthropic."),
    output: Path | None = typer.Option(None, "--output", "-o", help="The file. [default: standard output]"),
    archived: bool = typer.Option(True, "--archived/--active", help="With archived messages, or without."),
    strict: bool = typer.Option(False, "--strict", help="Fail where the format cannot hold something."),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Write a session in a message format; what the format cannot hold is said on standard error.

    Example: ctxkit sessions export alice --format openai -o alice.json
    """
    from ctxkit.history.formats import export_history

    with open_store(store, tenant, keys=True) as opened:
        opened.sessions.info(session)
        messages = opened.sessions.messages(session, archived=archived)
    exported = export_history(messages, form, strict=strict)
    text = exported.value if exported.value.endswith("\n") or not exported.value else exported.value + "\n"
    if output is not None:
        output.write_text(text, encoding="utf-8")
    if as_json:
        said = {"session": session, "format": form, "messages": len(messages), "notes": exported.notes}
        emit(said if output is not None else {**said, "content": exported.value})
        return
    if output is None:
        write(text)
    else:
        say(f"{session}: {len(messages)} messages written to {output}")
    _say_notes(exported.notes)


@app.command("import")
def import_session(
    session: str = typer.Argument(..., help="The session's id; it is made when it is new."),
    file: str = typer.Argument(..., help="The file, or - for standard input."),
    form: str = typer.Option("jsonl", "--format", help="jsonl, openai or anthropic."),
    strict: bool = typer.Option(False, "--strict", help="Fail where something would be left out."),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Append the messages of a file, all or none; importing it again changes nothing.

    Example: ctxkit sessions import alice alice.jsonl
    """
    from ctxkit.history.formats import FORMATS, import_history

    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        text = raw.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the file cannot be read ({error})", subject=file, remedy="Give a UTF-8 file.") from error
    try:
        imported = import_history(text, form, strict=strict)
    except HistoryError as error:
        others = [f"--format {each}" for each in FORMATS if each != form and _reads(text, each)]
        if others:
            error.remedy = f"It reads with {' and with '.join(others)}."
        raise
    with open_store(store, tenant, create=True, keys=True) as opened:
        known = {info.id: info.last_sequence for info in opened.sessions.list()}.get(session, 0)
        saved = opened.sessions.append(session, imported.value)
    new = len({message.sequence for message in saved if message.sequence > known})
    if as_json:
        emit({"session": session, "format": form, "read": len(saved), "appended": new, "notes": imported.notes})
        return
    say(f"{session}: {new} messages appended, {len(saved) - new} were there")
    _say_notes(imported.notes)


def _reads(text: str, form: str) -> bool:
    """Whether a text is a dialogue in this format."""
    from ctxkit.history.formats import import_history

    try:
        return bool(import_history(text, form).value)
    except CtxkitError:
        return False


def _say_notes(notes: Sequence[str]) -> None:
    for note in notes:
        typer.echo(f"note: {note}", err=True)


@app.command()
def branch(
    session: str = typer.Argument(..., help="The session's id."),
    at: str = typer.Argument(..., help="The last message that both have: its number, or its id."),
    name: str | None = typer.Option(None, help="The branch's id. [default: SESSION~1, SESSION~2 …]"),
    edit: str | None = typer.Option(None, help="A text that stands on the branch in place of the message AT."),
    role: str = typer.Option("user", help="Of the text: user, assistant or system."),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Make a session that shares the past of another; the original stays as it is.

    Example: ctxkit sessions branch alice 4 --edit "How do I revoke it?"
    """
    # No session has a number of more digits, and Python reads none of more than 4,300.
    place = int(at) if at.isdecimal() and at.isascii() and len(at) < 19 else at
    with open_store(store, tenant, keys=True) as opened:
        if edit is None:
            info = opened.sessions.branch(session, at=place, name=name)
        else:
            info = opened.sessions.edit(session, place, Message.from_openai({"role": role, "content": edit}), name=name)
    emit(_info(info)) if as_json else say(f"{info.id}: shares {info.fork} messages with {info.parent}")


@app.command()
def prune(
    session: str = typer.Argument(..., help="The session's id."),
    keep: int | None = typer.Option(None, help="Keep at most so many messages."),
    days: float | None = typer.Option(None, help="Keep none older than so many days."),
    size: int | None = typer.Option(None, "--bytes", help="Keep at most so many bytes."),
    archive: bool = typer.Option(False, "--archive", help="Archive what goes, instead of deleting it."),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Delete or archive the oldest messages; a call and its results go together.

    Example: ctxkit sessions prune alice --keep 200 --archive
    """
    from dataclasses import asdict
    from datetime import timedelta

    from ctxkit.storage import Keep

    if keep is None and days is None and size is None:
        raise ConfigError("nothing says what to keep", remedy="Give --keep, --days or --bytes.")
    for value, option in ((keep, "--keep"), (size, "--bytes")):
        if value is not None:
            check_whole(value, option, minimum=0)
    if days is not None:
        check_number(days, "--days", minimum=0, maximum=365_000)
    limits = Keep(messages=keep, age=None if days is None else timedelta(days=days), size=size)
    with open_store(store, tenant, keys=True) as opened:
        done = (opened.sessions.archive if archive else opened.sessions.prune)(session, keep=limits)
    if as_json:
        emit(asdict(done))
        return
    shared = f", {done.shared} of them still read by branches" if done.shared else ""
    what = f"{done.archived} messages archived" if archive else f"{done.deleted} messages deleted"
    say(f"{session}: {what}{shared}; {done.kept} kept, {done.size:,} bytes")


@app.command()
def search(
    text: str = typer.Argument(..., help="Words that a message must hold; with --recall a question."),
    session: str | None = typer.Option(None, help="Look only into this session."),
    limit: int = typer.Option(20, help="At most so many messages."),
    recall: bool = typer.Option(False, "--recall", help="Rank by words, meaning, speaker and dates in the question."),
    now: str | None = NowOption,
    embedder: str = EmbedderOption,
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Find messages by words, the newest first, or with --recall those that bear on a question, the best first.

    Example: ctxkit sessions search "What did I plan for last May?" --recall
    """
    with open_store(store, tenant, keys=True) as opened:
        if session is not None:
            opened.sessions.info(session)
        if recall:
            from ctxkit.cli.stages import moment_for
            from ctxkit.composing import default_embedder, part_of
            from ctxkit.recall import HistoryRetriever

            part: Any = part_of("embedder", default_embedder() if embedder == "auto" else embedder)
            retriever = HistoryRetriever(opened, part)
            sessions = None if session is None else [session]
            _say_recalled(
                retriever.search(text, limit, sessions=sessions, now=moment_for(parse_moment(now), None, recall=True)),
                as_json,
            )
            return
        found = opened.sessions.search(text, session=session, limit=limit)
    if as_json:
        emit([{"session": match.session, **_message(match.message)} for match in found])
        return
    for match in found:
        message = _message(match.message)
        said = " ".join(str(message["content"] or message.get("tool_calls", "")).split())
        say(f"{match.session} [{message['sequence']}] {message['role']}: {said[:200]}")


def _say_recalled(found: Sequence[Candidate], as_json: bool) -> None:
    rows = [
        {**one.chunk.metadata, "content": one.text, "via": list(one.via), "scores": dict(one.scores)} for one in found
    ]
    if as_json:
        emit(rows)
        return
    for row in rows:
        day = f"{row['created_at'][:10]} " if row["created_at"] else ""
        via = f"  (via {', '.join(row['via'])})" if row["via"] else ""
        said = " ".join(row["content"].split())[:200]
        say(f"{row['session']} [{row['sequence']}] {day}{row['name'] or row['role']}: {said}{via}")


@app.command()
def delete(
    session: str = typer.Argument(..., help="The session's id."),
    branches: bool = typer.Option(False, "--branches", help="Its branches too."),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Delete a session with its messages.

    Example: ctxkit sessions delete alice
    """
    with open_store(store, tenant, keys=True) as opened:
        opened.sessions.info(session)
        count = opened.sessions.delete(session, branches=branches)
    emit({"session": session, "deleted": count}) if as_json else say(f"{session}: {count} messages deleted")
