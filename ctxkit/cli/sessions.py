"""`ctxkit sessions list|show|append|delete`."""

from __future__ import annotations

from typing import Any

import typer

from ctxkit.cli.output import JsonOption, StoreOption, TenantOption, emit, parse_json, say, table
from ctxkit.messages import Message

__all__ = ["app"]

app = typer.Typer(help="Stored dialogues.", no_args_is_help=True)


def _store(store: str | None, tenant: str | None, *, create: bool = False) -> Any:
    from ctxkit.settings import default_store, default_tenant
    from ctxkit.storage import Store

    return Store.open(
        default_store() if store is None else store,
        tenant=default_tenant() if tenant is None else tenant,
        create=create,
    )


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
    with _store(store, tenant) as opened:
        rows = [
            {
                "id": info.id,
                "messages": info.message_count,
                "created_at": info.created_at,
                "updated_at": info.updated_at,
            }
            for info in opened.sessions.list()
        ]
    emit(rows) if as_json else say(table(rows))


@app.command()
def show(
    session: str = typer.Argument(..., help="The session's id."),
    last: int | None = typer.Option(None, help="Only the newest messages."),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Print the messages of a session, oldest first.

    Example: ctxkit sessions show alice --last 10
    """
    with _store(store, tenant) as opened:
        messages = [_message(message) for message in opened.sessions.messages(session, last=last)]
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
    with _store(store, tenant, create=True) as opened:
        (saved,) = opened.sessions.append(session, [Message.from_openai(data)])
    emit(_message(saved)) if as_json else say(f"{session}: message {saved.id} is number {saved.sequence}")


@app.command()
def delete(
    session: str = typer.Argument(..., help="The session's id."),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Delete a session with its messages.

    Example: ctxkit sessions delete alice
    """
    with _store(store, tenant) as opened:
        count = opened.sessions.delete(session)
    emit({"session": session, "deleted": count}) if as_json else say(f"{session}: {count} messages deleted")
