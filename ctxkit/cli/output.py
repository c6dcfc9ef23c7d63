"""How commands speak: JSON on request, tables on a terminal, progress only where somebody watches."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Protocol

import typer

from ctxkit.errors import ConfigError, StorageError

__all__ = ["Progress", "emit", "error_line", "parse_filters", "parse_moment", "parse_payload", "progress", "table"]

StoreOption = typer.Option(None, "--store", help="The store. [default: $CTXKIT_STORE, else sqlite:///.ctxkit/store.db]")
TenantOption = typer.Option(None, "--tenant", help="The tenant. [default: $CTXKIT_TENANT, else default]")
JsonOption = typer.Option(False, "--json", help="Print JSON.")
EmbedderOption = typer.Option("auto", "--embedder", help="auto, none, or the name of a registered embedder.")
FilterOption = typer.Option([], "--filter", help="KEY=VALUE of the documents' metadata; repeat for more.")
NeighboursOption = typer.Option(
    False, "--neighbours", help="Also what stands beside the best or shares rare names, and who is asked about."
)
RecallOption = typer.Option(
    False, "--recall", help="Quote what the rest of the session says about the question, by words, meaning and date."
)
MessageOption = typer.Option("", "-m", "--message", help="What changed, and why.")
ByOption = typer.Option("", "--by", help="Who changes it.")
NowOption = typer.Option(None, "--now", help="The time that recency counts from, ISO 8601. [default: the clock]")


def emit(value: Any) -> None:
    """Print JSON; a lone surrogate is escaped rather than lost."""
    text = json.dumps(value, ensure_ascii=False, default=_plain)
    if any("\ud800" <= character <= "\udfff" for character in text):
        text = json.dumps(value, ensure_ascii=True, default=_plain)
    write(text + "\n")


def _plain(value: Any) -> str:
    """A time by ISO 8601, anything else as its text."""
    return value.isoformat() if isinstance(value, datetime) else str(value)


def say(text: str = "") -> None:
    """Print text for people."""
    write(text + "\n")


def write(text: str) -> None:
    """Print text as it is, without a line end."""
    sys.stdout.write(text)
    sys.stdout.flush()


def error_line(message: str) -> None:
    """One line on standard error."""
    typer.echo("error: " + " ".join(message.split()), err=True)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as aligned columns; numbers to the right."""
    if not rows:
        return "(nothing)"
    columns = list(dict.fromkeys(column for row in rows for column in row))
    cells = [[_cell(row.get(column, "")) for column in columns] for row in rows]
    widths = [max(len(column), *(len(line[index]) for line in cells)) for index, column in enumerate(columns)]
    right = [
        all(isinstance(row.get(column), int | float) and not isinstance(row.get(column), bool) for row in rows)
        for column in columns
    ]

    def line(values: Sequence[str]) -> str:
        padded = (
            value.rjust(width) if to_right else value.ljust(width)
            for value, width, to_right in zip(values, widths, right, strict=True)
        )
        return "  ".join(padded).rstrip()

    return "\n".join([line(columns), "  ".join("-" * width for width in widths), *map(line, cells)])


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    return " ".join(str(value).split())


class Progress(Protocol):
    def __call__(self, text: str) -> None: ...


@contextmanager
def progress(label: str, *, quiet: bool) -> Iterator[Progress]:
    """A spinner with a text on a terminal; nothing in a pipe or when quiet."""
    if quiet or not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True)
    with console.status(label) as status:
        yield lambda text: status.update(f"{label} {escape(text)}")


def parse_filters(values: Sequence[str]) -> dict[str, Any]:
    """`KEY=VALUE` pairs; a key given more than once means any of its values. A value that is JSON is taken as such."""
    filters: dict[str, Any] = {}
    for value in values:
        key, separator, text = value.partition("=")
        if not separator or not key:
            raise ConfigError("a filter needs a key and a value", subject=value, remedy="Write --filter KEY=VALUE.")
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError):
            parsed = text
        if isinstance(parsed, dict):
            parsed = text
        if key in filters:
            earlier = filters[key] if isinstance(filters[key], list) else [filters[key]]
            parsed = [*earlier, parsed]
        filters[key] = parsed
    return filters


def parse_moment(value: str | None) -> datetime | None:
    """An ISO 8601 time; one without a zone is taken as UTC."""
    from datetime import UTC

    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError as error:
        raise ConfigError("not a time", subject=value, remedy="Write it as 2026-01-31T12:00:00Z.") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def parse_payload(value: str | None) -> dict[str, Any] | str:
    """A payload: a JSON object, `@FILE`, or the reference of a stored one, which stays as it is."""
    if value is None or value.lstrip()[:1] in ("{", "[", "@", ""):
        return parse_json(value, what="payload")
    return value


def parse_json(value: str | None, *, what: str) -> dict[str, Any]:
    """A JSON object, given as text or as `@FILE`; no key stands twice in it, and each number is finite."""
    if value is None:
        return {}
    text = value
    if value.startswith("@"):
        from pathlib import Path

        try:
            text = Path(value[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"the {what} cannot be read ({error})", subject=value[1:], remedy="Give a UTF-8 file."
            ) from error
    from ctxkit.storage import parse_json as strict

    try:
        parsed = strict(text, what=f"the {what}")
    except StorageError as error:
        problem = f"the {what} is not JSON ({error.message})"
        raise ConfigError(problem, subject=value[:60], remedy=error.remedy) from error
    if not isinstance(parsed, dict):
        raise ConfigError(
            f"the {what} is not a JSON object", subject=value[:60], remedy='Write it as {"name": "value"}.'
        )
    return parsed
