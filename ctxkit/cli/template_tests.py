"""`ctxkit templates test`: what templates give, checked against files of cases."""

from __future__ import annotations

from pathlib import Path

import typer

from ctxkit.cli.output import JsonOption, StoreOption, TenantOption, emit, say, table

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Mount the command."""
    app.command("test")(run_tests)


def run_tests(
    files: list[Path] = typer.Argument(..., help="YAML files of cases, or folders of them."),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Render the cases of YAML files and compare with what they expect; exit code 1 where one does not hold.

    A case has a template or the reference of a stored one, a payload, and the messages or the error that they give.

    Example: ctxkit templates test tests/prompts.yaml
    """
    from ctxkit.templates.conformance import load_cases, run_case

    cases = [case for file in files for case in load_cases(file)]
    if any(case.reference for case in cases):
        from ctxkit.engine import ContextEngine

        with ContextEngine.open(store, tenant=tenant, embedder=None, create=False) as engine:
            outcomes = [run_case(case, resolve=engine.templates.get) for case in cases]
    else:
        outcomes = [run_case(case) for case in cases]
    failed = [outcome for outcome in outcomes if not outcome.passed]
    rows = [
        {"file": outcome.case.file, "case": outcome.case.name, "problem": outcome.problem}
        for outcome in (outcomes if as_json else failed)
    ]
    if as_json:
        emit({"cases": len(cases), "failed": len(failed), "outcomes": rows})
    else:
        if rows:
            say(table(rows))
        say(f"{len(cases) - len(failed)} of {len(cases)} cases hold")
    if failed:
        raise typer.Exit(1)
