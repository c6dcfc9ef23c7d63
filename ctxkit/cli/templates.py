"""`ctxkit templates push|list|show|render|label`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from ctxkit.cli.output import JsonOption, StoreOption, TenantOption, emit, parse_json, say, table
from ctxkit.errors import ConfigError

__all__ = ["app"]

app = typer.Typer(help="Versioned templates: pushed once, labelled, rendered.", no_args_is_help=True)


def _engine(store: str | None, tenant: str | None, *, create: bool = False) -> Any:
    from ctxkit.engine import ContextEngine

    return ContextEngine.open(store, tenant=tenant, embedder=None, create=create)


@app.command()
def push(
    name: str = typer.Argument(..., help="The template's name."),
    file: Path = typer.Argument(..., help="Its source."),
    message: str = typer.Option("", "-m", "--message", help="What changed."),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Store a version of a template; identical content makes no new version.

    Example: ctxkit templates push answer answer.txt -m "Ask for citations"
    """
    try:
        source = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the template cannot be read ({error})", subject=str(file), remedy="Check the path."
        ) from error
    with _engine(store, tenant, create=True) as engine:
        version = engine.templates.push(name, source, message=message)
    values = {"name": version.name, "version": version.version, "hash": version.hash}
    emit(values) if as_json else say(f"{version.name}@{version.version}  {version.hash[:16]}")


@app.command("list")
def list_templates(
    store: str | None = StoreOption, tenant: str | None = TenantOption, as_json: bool = JsonOption
) -> None:
    """List the templates with their versions and labels.

    Example: ctxkit templates list
    """
    with _engine(store, tenant) as engine:
        rows = [
            {"name": info.name, "versions": info.versions, "labels": info.labels, "updated_at": info.updated_at}
            for info in engine.store.templates.list()
        ]
    if as_json:
        emit(rows)
        return
    for row in rows:
        row["labels"] = ", ".join(f"{label}={version}" for label, version in sorted(row["labels"].items()))
    say(table(rows))


@app.command()
def show(
    reference: str = typer.Argument(..., help="NAME, NAME@VERSION, NAME@LABEL or NAME@sha256:HASH."),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Print a version of a template and the variables it needs.

    Example: ctxkit templates show answer@production
    """
    with _engine(store, tenant) as engine:
        template = engine.templates.get(reference)
    values = {
        "name": template.name,
        "version": template.version,
        "hash": template.hash,
        "variables": sorted(template.variables),
        "source": template.source,
    }
    if as_json:
        emit(values)
        return
    variables = ", ".join(values["variables"]) or "none"
    say(f"{template.name}@{template.version}  {template.hash[:16]}  variables: {variables}")
    say(str(template.source))


@app.command()
def render(
    reference: str = typer.Argument(..., help="NAME, NAME@VERSION, NAME@LABEL or NAME@sha256:HASH."),
    payload: str | None = typer.Option(None, "--payload", help="The variables: a JSON object, or @FILE."),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Fill a template with a payload and print its messages; what assembly fills stays open.

    Example: ctxkit templates render answer@production --payload '{"tone": "brief"}'
    """
    with _engine(store, tenant) as engine:
        template = engine.templates.get(reference)
    messages = [
        {
            "role": message.role,
            "content": "".join(piece.text if piece.slot is None else f"«{piece.slot}»" for piece in message.pieces),
        }
        for message in template.render(parse_json(payload, what="payload"))
    ]
    if as_json:
        emit(messages)
        return
    for message in messages:
        say(f"=== {message['role']}")
        say(message["content"])


@app.command()
def label(
    name: str = typer.Argument(..., help="The template's name."),
    label: str = typer.Argument(..., help="Such as production."),
    version: int = typer.Argument(..., help="The version the label moves to."),
    expected: int | None = typer.Option(
        None, help="Move only if the label is on this version now; 0: only if it is new."
    ),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Move a label to a version. A rollback is the same, backwards.

    Example: ctxkit templates label answer production 3 --expected 2
    """
    with _engine(store, tenant) as engine:
        guard: dict[str, Any] = {} if expected is None else {"expected": expected or None}
        engine.templates.label(name, label, version, **guard)
    values = {"name": name, "label": label, "version": version}
    emit(values) if as_json else say(f"{name}@{label} is version {version}")
