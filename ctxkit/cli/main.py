"""The entry point: wires the commands, and turns every error of ours into one line and an exit code."""

from __future__ import annotations

import io
import os
import sys

import typer

import ctxkit
from ctxkit.cli import (
    assembling,
    benching,
    chat,
    chunking,
    compressing,
    experiments,
    graph,
    ingesting,
    kv,
    models,
    payloads,
    replay,
    sessions,
    template_import,
    template_serve,
    template_sync,
    template_tests,
    templates,
)
from ctxkit.cli import doctor as doctor_module
from ctxkit.cli.output import error_line
from ctxkit.errors import ConfigError, CtxkitError

__all__ = ["app", "main"]

app = typer.Typer(
    name="ctxkit",
    help="Assembles the context of a language model: one prompt that provably fits its token budget.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"ctxkit {ctxkit.__version__}")
        raise typer.Exit


@app.callback()
def root(
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Assembles the context of a language model: one prompt that provably fits its token budget."""


ingesting.add_to(app)
chunking.add_to(app)
compressing.add_to(app)
assembling.add_to(app)
chat.add_to(app)
replay.add_to(app)
benching.add_to(app)
doctor_module.add_to(app)
template_tests.add_to(templates.app)
template_import.add_to(templates.app)
template_sync.add_to(templates.app)
template_serve.add_to(templates.app)
app.add_typer(models.app, name="models")
app.add_typer(templates.app, name="templates")
app.add_typer(payloads.app, name="payloads")
app.add_typer(sessions.app, name="sessions")
app.add_typer(graph.app, name="graph")
app.add_typer(kv.app, name="kv")
app.add_typer(experiments.app, name="experiments")


def main() -> None:
    """Run the command. Exit codes: 0 done, 1 the work failed, 2 wrong usage, 130 interrupted."""
    # A stream that the shell has closed is None; what is printed then goes nowhere.
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, nowhere)
    # Output is UTF-8 whatever the locale says; what UTF-8 cannot carry is shown as ?.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    try:
        app(prog_name="ctxkit")  # the same however it was started
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        if isinstance(error, CtxkitError):
            error_line(str(error))
        elif isinstance(error, OSError):
            error_line(f"{error.filename or 'output'}: {error.strerror or error}")
        else:
            error_line(f"unexpected {type(error).__name__}: {error}. Please report it with what --debug shows.")
        sys.exit(2 if isinstance(error, ConfigError) else 1)
