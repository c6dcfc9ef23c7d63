"""`ctxkit payloads put|get|list|search`."""

from __future__ import annotations

from typing import Any

import typer

from ctxkit.cli.opening import open_store
from ctxkit.cli.output import (
    ByOption,
    JsonOption,
    MessageOption,
    StoreOption,
    TenantOption,
    emit,
    parse_json,
    say,
    table,
)

__all__ = ["app"]

app = typer.Typer(
    help="Stored payloads: the values that fill a template, versioned apart from it.", no_args_is_help=True
)


@app.command()
def put(
    key: str = typer.Argument(..., help="The payload's key."),
    payload: str = typer.Argument(..., help="A JSON object, or @FILE."),
    message: str = MessageOption,
    by: str = ByOption,
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Store a payload as the next version of its key; a content that the key has already is the version it was.

    Example: ctxkit payloads put brand '{"tone": "brief"}'
    """
    values = parse_json(payload, what="payload")
    with open_store(store, tenant, create=True) as opened:
        version = opened.payloads.put(key, values, message=message, by=by)
    shown = {"key": version.key, "version": version.version, "hash": version.hash, "new": version.is_new}
    same = "" if version.is_new else "  (this content is stored already)"
    emit(shown) if as_json else say(f"{version.reference}  {version.hash[:16]}{same}")


@app.command()
def get(
    reference: str = typer.Argument(..., help="KEY, KEY@VERSION or sha256:HASH."),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Print a payload; with --json also its version and hash.

    Example: ctxkit payloads get brand@1
    """
    with open_store(store, tenant) as opened:
        version = opened.payloads.resolve(reference)
    if not as_json:
        emit(version.content)
        return
    emit(
        {
            "key": version.key or None,
            "version": version.version or None,
            "hash": version.hash,
            "message": version.message,
            "by": version.by,
            "created_at": version.created_at,
            "payload": version.content,
        }
    )


@app.command("list")
def list_payloads(
    key: str | None = typer.Argument(None, help="The versions of this key. [default: all keys]"),
    containing: str | None = typer.Option(None, "--containing", help="Payloads that contain this JSON object."),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """List the keys, the versions of one, or the payloads that contain something.

    Example: ctxkit payloads list --containing '{"tone": "brief"}'
    """
    with open_store(store, tenant) as opened:
        rows: list[dict[str, Any]]
        if containing is not None:
            part = parse_json(containing, what="part")
            rows = [{"hash": found.hash, "created_at": found.created_at} for found in opened.payloads.search(part)]
        elif key is not None:
            rows = [
                {
                    "version": version.version,
                    "hash": version.hash,
                    "created_at": version.created_at,
                    "by": version.by,
                    "message": version.message,
                }
                for version in opened.payloads.versions(key)
            ]
        else:
            rows = [
                {
                    "key": info.key,
                    "version": info.version,
                    "versions": info.versions,
                    "hash": info.hash,
                    "updated_at": info.updated_at,
                }
                for info in opened.payloads.list()
            ]
    emit(rows) if as_json else say(table([{**row, "hash": row["hash"][:16]} for row in rows]))
