"""`ctxkit templates import`: Jinja templates without logic, in ctxkit's language."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import typer

from ctxkit.cli.output import JsonOption, emit, say
from ctxkit.errors import ConfigError, MissingExtraError, TemplateError

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Mount the command."""
    app.command("import")(import_jinja)


def import_jinja(
    files: list[Path] = typer.Argument(..., help="Jinja templates."),
    role: str = typer.Option("user", help="The role of the message that a template becomes: system, user, assistant."),
    rename: list[str] = typer.Option([], "--rename", help="OLD=NEW name of a variable; repeat for more."),
    out: Path | None = typer.Option(None, "--out", help="The folder for NAME.prompt files. [default: printed]"),
    as_json: bool = JsonOption,
) -> None:
    """Convert Jinja templates, exactly or not at all; exit code 1 where one is refused, with the reason.

    Nothing is rendered or executed. `ctxkit templates push` then stores one of them, `sync` the folder.

    Example: ctxkit templates import prompts/*.j2 --rename context=passage --out prompts
    """
    from ctxkit.templates.rendering import TemplateRole

    if role not in get_args(TemplateRole) or role == "history":
        raise ConfigError("not a role", subject=role, remedy="Give system, user or assistant.")
    renamed = dict(_pair(text) for text in rename)
    rows = [_converted(file, role, renamed) for file in files]
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        for row in rows:
            if row["imported"]:
                path = out / f"{Path(row['file']).name.split('.')[0]}.prompt"
                path.write_text(row["source"], encoding="utf-8")
                row["written"] = str(path)
    if as_json:
        emit(rows)
    else:
        for row in rows:
            if not row["imported"]:
                say(f"{row['file']}: refused: {row['reason']}")
            elif "written" in row:
                say(f"{row['file']}: {row['written']}  variables: {', '.join(row['variables']) or 'none'}")
            else:
                say(row["source"] if len(rows) == 1 else f"=== {row['file']}\n{row['source']}")
    if not all(row["imported"] for row in rows):
        raise typer.Exit(1)


def _converted(file: Path, role: Any, rename: dict[str, str]) -> dict[str, Any]:
    from ctxkit.templates import Template

    try:
        source = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the template cannot be read ({error})", subject=str(file), remedy="Check it.") from error
    try:
        template = Template.from_jinja(source, role=role, rename=rename)
    except MissingExtraError:
        raise
    except (TemplateError, ConfigError) as error:
        return {"file": str(file), "imported": False, "reason": f"{error.subject}: {error.message}"}
    return {
        "file": str(file),
        "imported": True,
        "variables": sorted(template.variables),
        "source": template.source,
    }


def _pair(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not old or not equals or not new:
        raise ConfigError("not a renaming", subject=text, remedy="Write OLD=NEW.")
    return old, new
