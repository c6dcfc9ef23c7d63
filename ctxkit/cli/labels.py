"""`ctxkit templates label|rollback|protect|history|archive`."""

from __future__ import annotations

from typing import Any

import typer

from ctxkit.cli.opening import open_engine
from ctxkit.cli.output import ByOption, JsonOption, MessageOption, StoreOption, TenantOption, emit, say, table

__all__ = ["add_to"]

NAME = typer.Argument(..., help="The template's name.")
LABEL = typer.Argument(..., help="Such as production.")
ExpectedOption = typer.Option(None, help="Move only if the label is on this version now; 0: only if it is new.")
ForceOption = typer.Option(False, "--force", help="Move it although it is protected; that is put on record.")
UndoOption = typer.Option(False, "--undo", help="Undo it.")


def _guard(expected: int | None) -> dict[str, Any]:
    return {} if expected is None else {"expected": expected or None}


def _say_move(name: str, move: Any, as_json: bool) -> None:
    if as_json:
        emit({"name": name, "label": move.label, "version": move.version, "previous": move.previous})
    else:
        before = "" if move.previous is None else f", was {move.previous}"
        say(f"{name}@{move.label} is version {move.version}{before}")


def label(
    name: str = NAME,
    label: str = LABEL,
    version: int = typer.Argument(..., help="The version the label moves to."),
    expected: int | None = ExpectedOption,
    force: bool = ForceOption,
    message: str = MessageOption,
    by: str = ByOption,
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Move a label to a version.

    Example: ctxkit templates label answer production 3 --expected 2
    """
    with open_engine(store, tenant) as engine:
        move = engine.templates.label(name, label, version, force=force, message=message, by=by, **_guard(expected))
    _say_move(name, move, as_json)


def rollback(
    name: str = NAME,
    label: str = LABEL,
    expected: int | None = ExpectedOption,
    force: bool = ForceOption,
    message: str = MessageOption,
    by: str = ByOption,
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Move a label to where it was before; again, and it goes one further back.

    Example: ctxkit templates rollback answer production -m "Citations were lost"
    """
    with open_engine(store, tenant) as engine:
        move = engine.templates.rollback(name, label, force=force, message=message, by=by, **_guard(expected))
    _say_move(name, move, as_json)


def protect(
    name: str = NAME,
    label: str = LABEL,
    undo: bool = UndoOption,
    message: str = MessageOption,
    by: str = ByOption,
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Protect a label: it then moves with --force alone.

    Example: ctxkit templates protect answer production
    """
    with open_engine(store, tenant) as engine:
        work = engine.templates.unprotect if undo else engine.templates.protect
        changed = work(name, label, message=message, by=by)
    values = {"name": name, "label": label, "protected": not undo, "changed": changed}
    emit(values) if as_json else say(f"{name}@{label} is {'not ' if undo else ''}protected")


def archive(
    reference: str = typer.Argument(..., help="NAME, or NAME@VERSION for one version."),
    undo: bool = UndoOption,
    message: str = MessageOption,
    by: str = ByOption,
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Archive a template or a version. Nothing is deleted: whoever names it by number, hash or label still finds it.

    Example: ctxkit templates archive answer@2
    """
    with open_engine(store, tenant) as engine:
        work = engine.templates.unarchive if undo else engine.templates.archive
        changed = work(reference, message=message, by=by)
    values = {"reference": reference, "archived": not undo, "changed": changed}
    emit(values) if as_json else say(f"{reference} is {'not ' if undo else ''}archived")


def history(
    name: str = NAME,
    label: str | None = typer.Argument(None, help="The moves of this label. [default: protection and archive]"),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Print the record of a label's moves, or of what else happened to a template.

    Example: ctxkit templates history answer production
    """
    with open_engine(store, tenant) as engine:
        engine.templates.versions(name)  # a name that nobody has pushed is an error, not an empty record
        rows = [
            {
                "at": move.moved_at,
                "action": move.action,
                "from": move.previous,
                "to": move.version,
                "forced": move.forced,
                "by": move.by,
                "message": move.message,
            }
            for move in (engine.templates.history(name, label) if label is not None else ())
        ] or [
            {
                "at": event.happened_at,
                "action": event.action,
                "label": event.label,
                "version": event.version,
                "by": event.by,
                "message": event.message,
            }
            for event in (engine.templates.events(name) if label is None else ())
        ]
    emit(rows) if as_json else say(table([{key: _shown(value) for key, value in row.items()} for row in rows]))


def _shown(value: Any) -> Any:
    return "" if value is None else value


def add_to(app: typer.Typer) -> None:
    for command in (label, rollback, protect, history, archive):
        app.command()(command)
