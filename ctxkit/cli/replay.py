"""`ctxkit replay`, and `ctxkit runs list|prune`."""

from __future__ import annotations

import difflib
import json
from typing import Any

import typer

from ctxkit.cli.assembling import prompt_json
from ctxkit.cli.opening import open_engine
from ctxkit.cli.output import (
    EmbedderOption,
    JsonOption,
    StoreOption,
    TenantOption,
    emit,
    parse_moment,
    say,
    table,
)
from ctxkit.errors import ConfigError, CtxkitError

__all__ = ["add_to"]

runs = typer.Typer(help="Recorded prompts.", no_args_is_help=True)


def replay(
    fingerprint: str = typer.Argument(..., help="Of a recorded prompt, or its first 8 digits or more."),
    diff: bool = typer.Option(False, "--diff", help="What changed since, and how the prompt would differ now."),
    explain: bool = typer.Option(False, "--explain", help="Print where every token came from."),
    embedder: str = EmbedderOption,
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Print a recorded prompt again, byte for byte; ctxkit assemble --record and ask --record make one.

    Example: ctxkit replay 46b64cfd7e1655a9 --diff
    """
    from ctxkit.replaying import changes_since, read_prompt

    if not diff:
        with open_engine(store, tenant) as engine:
            recorded = read_prompt(engine.store, fingerprint)
        _print(recorded, as_json=as_json, explain=explain)
        return
    with open_engine(store, tenant, keys=True, embedder=embedder) as engine:
        recorded = read_prompt(engine.store, fingerprint)
        changes = changes_since(engine.store, recorded)
        try:
            again, problem = engine.assemble(**recorded.arguments), ""
        except CtxkitError as error:
            again, problem = None, str(error)
    lines = "" if again is None else _difference(recorded.prompt.messages, again.messages)
    if as_json:
        emit(
            {
                "fingerprint": recorded.prompt.fingerprint,
                "now": again.fingerprint if again else None,
                "changes": changes,
                "diff": lines,
                "error": problem or None,
            }
        )
        return
    for change in changes:
        say(f"changed: {change}")
    say(f"it cannot be assembled now: {problem}" if problem else lines or "the prompt would be the same, byte for byte")


def _print(recorded: Any, *, as_json: bool, explain: bool) -> None:
    prompt, request = recorded.prompt, recorded.request
    if as_json:
        details = {
            "recorded_at": recorded.info.created_at,
            "question": request.question,
            "session": request.session,
            "template": recorded.info.template,
            "payload": recorded.payload,
            "model": request.model,
            "hashes": dict(prompt.hashes),
        }
        emit({**prompt_json(prompt), **details})
    elif explain:
        say(prompt.explain())
    else:
        for message in prompt.messages:
            say(f"=== {message['role']}")
            say(str(message["content"]))
        say(f"=== {prompt.token_count:,} of {prompt.budget.available:,} tokens; {recorded.info.template}")


def _difference(older: list[dict[str, Any]], newer: list[dict[str, Any]]) -> str:
    before, after = ([line for message in side for line in _lines(message)] for side in (older, newer))
    return "\n".join(difflib.unified_diff(before, after, "recorded", "now", lineterm=""))


def _lines(message: dict[str, Any]) -> list[str]:
    content = message["content"]
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    calls = [json.dumps(call, ensure_ascii=False) for call in message.get("tool_calls", ())]
    return [f"=== {message['role']}", *text.split("\n"), *calls]


@runs.command("list")
def list_runs(
    session: str | None = typer.Option(None, help="Only those of this session."),
    limit: int = typer.Option(20, help="At most so many, the newest first."),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """List the recorded prompts, the newest first.

    Example: ctxkit runs list --session alice
    """
    with open_engine(store, tenant) as engine:
        rows: list[dict[str, Any]] = [
            {
                "fingerprint": info.fingerprint,
                "recorded_at": info.updated_at,
                "session": info.session,
                "template": info.template,
                "question": info.question,
            }
            for info in engine.store.runs.list(session=session, limit=limit)
        ]
    if as_json:
        emit(rows)
        return
    shown = [
        {
            **row,
            "fingerprint": row["fingerprint"][:16],
            "session": row["session"] or "",
            "question": row["question"][:60],
        }
        for row in rows
    ]
    say(table(shown))


@runs.command()
def prune(
    older_than: str | None = typer.Option(None, "--older-than", help="Days such as 30d, or a time, ISO 8601."),
    session: str | None = typer.Option(None, help="Those of this session."),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Forget recorded prompts, and the pieces that no other prompt needs.

    Example: ctxkit runs prune --older-than 30d
    """
    if older_than is None and session is None:
        raise ConfigError("nothing says what to forget", remedy="Give --older-than, --session or both.")
    with open_engine(store, tenant) as engine:
        count = engine.store.runs.prune(before=_moment(older_than), session=session)
    emit({"pruned": count}) if as_json else say(f"{count:,} recorded prompts forgotten")


def _moment(text: str | None) -> Any:
    from datetime import UTC, datetime, timedelta

    if text is not None and text.endswith("d") and text[:-1].isdecimal():
        if len(text) > 6:
            raise ConfigError("that is too many days", subject=text[:40], remedy="Give at most 99999d.")
        return datetime.now(UTC) - timedelta(days=int(text[:-1]))
    return parse_moment(text)


def add_to(app: typer.Typer) -> None:
    app.command()(replay)
    app.add_typer(runs, name="runs")
