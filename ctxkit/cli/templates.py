"""`ctxkit templates push|list|show|search|diff|render`; labels and archive are in `ctxkit.cli.labels`."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import typer

from ctxkit.cli import labels
from ctxkit.cli.opening import open_engine
from ctxkit.cli.output import (
    ByOption,
    JsonOption,
    MessageOption,
    StoreOption,
    TenantOption,
    emit,
    parse_payload,
    say,
    table,
    write,
)
from ctxkit.errors import ConfigError

__all__ = ["app"]

app = typer.Typer(help="Versioned templates: pushed once, labelled, rendered.", no_args_is_help=True)
labels.add_to(app)

REFERENCE = typer.Argument(..., help="NAME, NAME@VERSION, NAME@LABEL or NAME@sha256:HASH.")


@app.command()
def push(
    name: str = typer.Argument(..., help="The template's name."),
    file: Path = typer.Argument(..., help="Its source; - reads standard input."),
    message: str = MessageOption,
    by: str = ByOption,
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Store a version of a template; identical content makes no new version.

    Example: ctxkit templates push answer answer.prompt -m "Ask for citations"
    """
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        source = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8").read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the template cannot be read ({error})", subject=str(file), remedy="Check the path."
        ) from error
    with open_engine(store, tenant, create=True) as engine:
        version = engine.templates.push(name, source, message=message, by=by)
    values = {"name": version.name, "version": version.version, "hash": version.hash, "new": version.is_new}
    same = "" if version.is_new else "  (this content is stored already)"
    emit(values) if as_json else say(f"{version.name}@{version.version}  {version.hash[:16]}{same}")


@app.command("list")
def list_templates(
    archived: bool = typer.Option(False, "--archived", help="Archived templates too."),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """List the templates with their versions and labels.

    Example: ctxkit templates list
    """
    with open_engine(store, tenant) as engine:
        rows: list[dict[str, Any]] = [
            {
                "name": info.name,
                "versions": info.versions,
                "labels": info.labels,
                "protected": list(info.protected),
                "updated_at": info.updated_at,
                "archived_at": info.archived_at,
            }
            for info in engine.templates.list(archived=archived)
        ]
    if as_json:
        emit(rows)
        return
    for row in rows:
        guarded = row.pop("protected")
        row["labels"] = ", ".join(
            f"{label}={version}{' (protected)' if label in guarded else ''}"
            for label, version in sorted(row["labels"].items())
        )
        if not archived:
            del row["archived_at"]
    say(table(rows))


@app.command()
def show(
    reference: str = REFERENCE,
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Print a version of a template and the variables it needs.

    Example: ctxkit templates show answer@production
    """
    with open_engine(store, tenant) as engine:
        version = engine.templates.version(reference)
        template = engine.templates.get(f"{version.name}@{version.version}")
    values: dict[str, Any] = {
        "name": template.name,
        "version": template.version,
        "hash": template.hash,
        "variables": sorted(template.variables),
        "schema": template.schema,
        "model": template.model,
        "includes": [{"reference": one.reference, "hash": one.hash} for one in template.includes],
        "message": version.message,
        "by": version.by,
        "created_at": version.created_at,
        "archived_at": version.archived_at,
        "source": template.source,
    }
    if as_json:
        emit(values)
        return
    variables = ", ".join(values["variables"]) or "none"
    say(f"{template.name}@{template.version}  {template.hash[:16]}  variables: {variables}")
    said = "  ".join(filter(None, (version.by and f"by {version.by}", version.message)))
    said += "  (archived)" if version.archived_at else ""
    if said:
        say(said)
    say(str(template.source))


@app.command()
def search(
    text: str = typer.Argument(..., help="What is searched for; case does not matter."),
    place: list[str] = typer.Option([], "--in", help="name, label, slot or text; repeat for more. [default: all]"),
    archived: bool = typer.Option(False, "--archived", help="Archived templates and versions too."),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Find templates by a text in their name, a label, a slot's name, their text or message.

    Example: ctxkit templates search citations --in text
    """
    options: dict[str, Any] = {"places": place} if place else {}
    with open_engine(store, tenant) as engine:
        rows: list[dict[str, Any]] = [
            {"name": found.name, "version": found.version, "found_in": list(found.places), "labels": found.labels}
            for found in engine.templates.search(text, archived=archived, **options)
        ]
    if as_json:
        emit(rows)
        return
    for row in rows:
        row["found_in"] = ", ".join(row["found_in"])
        row["labels"] = ", ".join(f"{label}={version}" for label, version in sorted(row["labels"].items()))
    say(table(rows))


@app.command()
def diff(
    older: str = typer.Argument(..., help="NAME@VERSION, NAME@LABEL or NAME@sha256:HASH."),
    newer: str = REFERENCE,
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Print what changed between two versions: as text, and with --json by message, slot, schema and setting.

    Example: ctxkit templates diff answer@production answer
    """
    with open_engine(store, tenant) as engine:
        first, second = (engine.templates.version(reference) for reference in (older, newer))
        names = [f"{version.name}@{version.version}" for version in (first, second)]
        if as_json:
            emit({"older": names[0], "newer": names[1], "changes": engine.templates.differences(*names)})
        else:
            write(engine.templates.diff(*names))


@app.command()
def render(
    reference: str = REFERENCE,
    payload: str | None = typer.Option(
        None, "--payload", help="The variables: a JSON object, @FILE, or a stored one: KEY, KEY@VERSION."
    ),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Fill a template with a payload and print its messages; what assembly fills stays open.

    Example: ctxkit templates render answer@production --payload '{"tone": "brief"}'
    """
    values = parse_payload(payload)
    with open_engine(store, tenant) as engine:
        template = engine.templates.get(reference)
        if isinstance(values, str):
            values = dict(engine.store.payloads.resolve(values).content)
    messages = [
        {
            "role": message.role,
            "content": "".join(piece.text if piece.slot is None else f"«{piece.slot}»" for piece in message.pieces),
        }
        for message in template.render(values)
    ]
    if as_json:
        emit(messages)
        return
    for message in messages:
        say(f"=== {message['role']}")
        say(message["content"])
