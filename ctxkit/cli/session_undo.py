"""`ctxkit sessions undo`."""

from __future__ import annotations

import typer

from ctxkit.cli.opening import open_store
from ctxkit.cli.output import JsonOption, StoreOption, TenantOption, emit, say

__all__ = ["add_to"]


def undo(
    session: str = typer.Argument(..., help="The session's id."),
    answer: bool = typer.Option(False, "--answer", help="Only what came after the question, which stays."),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Take back the newest question and all that came after it.

    Example: ctxkit sessions undo alice
    """
    from ctxkit.cli.chat_turns import newest_turn
    from ctxkit.cli.sessions import _message

    with open_store(store, tenant, keys=True) as opened:
        opened.sessions.info(session)
        messages = opened.sessions.messages(session)
        count = newest_turn(messages, question=not answer)
        gone = opened.sessions.rewind(session, count, expected=messages[-1].sequence) if count else []
    shown = [_message(message) for message in gone]
    if as_json:
        emit({"session": session, "taken_back": shown})
        return
    noun = "message" if len(gone) == 1 else "messages"
    say(f"{session}: {len(gone)} {noun} taken back, {len(messages) - len(gone)} left")
    for message in shown:
        said = " ".join(str(message["content"] or message.get("tool_calls", "")).split())
        say(f"[{message['sequence']}] {message['role']}: {said[:200]}")


def add_to(app: typer.Typer) -> None:
    app.command()(undo)
