"""`ctxkit sessions window`."""

from __future__ import annotations

from typing import Any

import typer

from ctxkit.cli.opening import open_store
from ctxkit.cli.output import JsonOption, StoreOption, TenantOption, emit, say
from ctxkit.errors import ConfigError

__all__ = ["add_to"]


def window(
    session: str = typer.Argument(..., help="The session's id."),
    max_tokens: int = typer.Option(..., "--max-tokens", help="Tokens that the window may have."),
    kind: str = typer.Option(
        "tail", "--window", help="tail, sliding, semantic, time-decay, or another registered one."
    ),
    query: str | None = typer.Option(None, "--query", help="What is asked; default the newest user message."),
    hysteresis: bool = typer.Option(False, "--hysteresis", help="Cut rarely, so that a prompt cache holds."),
    model: str | None = typer.Option(None, "--model", help="Whose tokens count, such as openai:gpt-4o (the default)."),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Print what of a session a window would send, and what it leaves out.

    Example: ctxkit sessions window alice --max-tokens 2000 --window semantic --query "Which seat did I want?"
    """
    from ctxkit.cli.sessions import _message
    from ctxkit.history import Hysteresis, repair
    from ctxkit.models import get_chat_counter
    from ctxkit.registry import create

    if max_tokens < 1:
        raise ConfigError(f"--max-tokens is {max_tokens}", remedy="Give 1 or more.")
    made: Any = create("window", kind)
    if query is not None:
        if not hasattr(made, "asking"):
            raise ConfigError(f"the {kind} window looks at no question", remedy="Leave out --query, or take semantic.")
        made = made.asking(query)
    if hysteresis:
        made = Hysteresis(window=made)
    counter = get_chat_counter(model or "openai:gpt-4o")
    with open_store(store, tenant, keys=True) as opened:
        opened.sessions.info(session)
        messages = opened.sessions.messages(session)
    selected = made.select(messages, max_tokens, counter) if messages else []
    notes = [str(note) for note in repair(messages).notes]
    tokens, total = (counter.count_prompt(some) if some else 0 for some in (selected, messages))
    kept = {message.id for message in selected}
    left_out = [message.id for message in messages if message.id not in kept]
    if as_json:
        emit(
            {
                "session": session,
                "window": kind,
                "max_tokens": max_tokens,
                "tokens": tokens,
                "session_tokens": total,
                "messages": [_message(message) for message in selected],
                "left_out": left_out,
                "repaired": notes,
            }
        )
        return
    for message in selected:
        shown = _message(message)
        say(f"[{shown['sequence']}] {shown['role']}: {shown['content'] or shown.get('tool_calls', '')}")
    say()
    say(
        f"{len(selected)} of {len(messages)} messages, {tokens:,} tokens of at most {max_tokens:,} "
        f"(the session has {total:,})"
    )
    for note in notes:
        say(f"repaired: {note}")


def add_to(app: typer.Typer) -> None:
    app.command()(window)
