"""`ctxkit bench`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer

from ctxkit.cli.output import JsonOption, emit, progress, say, table
from ctxkit.errors import ConfigError

__all__ = ["add_to"]


def bench(
    name: str | None = typer.Argument(None, help="Which benchmark; see --list."),
    list_them: bool = typer.Option(False, "--list", help="List the benchmarks."),
    full: bool = typer.Option(False, "--full", help="All that the published tables hold: up to some hours."),
    part: list[str] = typer.Option(
        [], "--part", help="Only this part, of a benchmark that has parts; may be repeated."
    ),
    as_json: bool = JsonOption,
) -> None:
    """Measure against peers, in one run on the same data. Exit 1 when a bar does not hold.

    Without --full the long benchmarks measure a part, in some minutes.

    Example: ctxkit bench chunking
    """
    from ctxkit.evaluation import report as reports

    if list_them:
        known = [{"name": known, "measures": reports.summary(known)} for known in reports.names()]
        emit(known) if as_json else say(table(known))
        return
    if name is None:
        raise ConfigError("no benchmark is named", remedy=f"Known: {', '.join(reports.names())}.")
    with progress(f"Measuring {name}", quiet=as_json):
        report = reports.run(name, {"parts": part} if part else None, full=full)
    if as_json:
        emit(report.to_json())
    else:
        say(f"{report.name}: {report.data}\n")
        for kind, rows in _tables(report.rows):
            say(f"{kind}\n{table(rows)}\n" if kind else f"{table(rows)}\n")
        if report.bars:
            say(
                table(
                    [
                        {
                            "bar": bar.key,
                            "value": bar.value,
                            "target": bar.target,
                            "holds": "yes" if bar.holds else "NO",
                        }
                        for bar in report.bars
                    ]
                )
            )
    if not report.holds:
        raise typer.Exit(1)


def _tables(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """The rows by what they measure or, where they do not say it, by their columns: a table for each."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        kind = str(row["measure"]) if "measure" in row else tuple(row)
        groups.setdefault(kind, []).append({key: value for key, value in row.items() if key != "measure"})
    return [(kind if isinstance(kind, str) else "", group) for kind, group in groups.items()]


def add_to(app: typer.Typer) -> None:
    app.command()(bench)
