"""`ctxkit templates sync`: a folder of files and the registry, kept the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import typer

from ctxkit.cli.output import JsonOption, StoreOption, TenantOption, emit, error_line, say
from ctxkit.errors import ConfigError

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Mount the command."""
    app.command()(sync)


def sync(
    folder: Path = typer.Argument(..., help="The folder of NAME.prompt files, such as one in your Git repository."),
    direction: str = typer.Option("both", help="push changes only the registry, pull only the folder."),
    prefer: list[str] = typer.Option([], "--prefer", help="Settle a conflict: NAME=folder or NAME=registry; repeat."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Show what would change, with the differences."),
    check: bool = typer.Option(False, "--check", help="Like --dry-run; exit code 1 unless both sides are the same."),
    label: str = typer.Option("", help="Move this label to each version that is pushed."),
    message: str = typer.Option("", "-m", "--message", help="Goes on record with each version."),
    by: str = typer.Option("", "--by", help="Who does this, for the record."),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Bring a folder of template files and the registry to the same state, both ways.

    Compared with what both were when they last were the same (kept in the folder, to be committed). Where both sides
    have changed it is a conflict: shown, never overwritten, exit code 1.

    Example: ctxkit templates sync prompts/ --check
    """
    from ctxkit.engine import ContextEngine
    from ctxkit.templates.sync import Direction, TemplateSync

    sides: dict[str, Any] = {}
    for pair in prefer:
        name, equals, side = pair.rpartition("=")
        if not equals or not name:
            raise ConfigError("not NAME=SIDE", subject=pair, remedy="Write NAME=folder or NAME=registry.")
        if sides.setdefault(name, side) != side:
            raise ConfigError("both sides are preferred", subject=name, remedy="Say which one is right, once.")
    with ContextEngine.open(store, tenant=tenant, embedder=None, create=not (dry_run or check)) as engine:
        syncing = TemplateSync(engine.templates, folder, direction=cast(Direction, direction))
        if dry_run or check:
            items = syncing.plan(prefer=sides)
        else:
            items = syncing.run(prefer=sides, message=message, by=by, label=label)
    if as_json:
        emit([item.to_json() for item in items])
    else:
        for item in items:
            if item.action == "error":
                # The reason begins with the name already, unless it is about another template or a line of this one.
                error_line(item.reason if item.reason.startswith(f"{item.name}: ") else f"{item.name}: {item.reason}")
            elif item.action != "same":
                note = "  (not in this direction)" if item.skipped else ""
                say(f"{item.action:8} {item.name}{note}{f'  {item.reason}' if item.reason else ''}")
                if item.diff and (dry_run or check or item.action == "conflict"):
                    say(item.diff.rstrip("\n"))
        counts = {
            action: sum(item.action == action for item in items) for action in dict.fromkeys(i.action for i in items)
        }
        say(", ".join(f"{count} {action}" for action, count in counts.items()) or "nothing to synchronise")
    failed = any(item.action in ("conflict", "error") for item in items)
    if failed or (check and any(item.action != "same" for item in items)):
        raise typer.Exit(1)
