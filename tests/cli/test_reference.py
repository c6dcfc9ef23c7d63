"""docs/cli-reference.md is what `--help` prints; CTXKIT_WRITE_DOCS=1 makes this test write it anew."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "cli-reference.md"


def commands() -> list[str]:
    """Every command there is, groups only through their commands."""
    import click
    from typer.main import get_command

    from ctxkit.cli.main import app

    found = [""]

    def walk(group: click.Group, above: str) -> None:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                walk(command, f"{above}{name} ")  # type: ignore[arg-type]
            elif not command.hidden:
                found.append(above + name)

    walk(get_command(app), "")  # type: ignore[arg-type]
    return found


def test_the_reference_is_what_help_prints(ctxkit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERMINAL_WIDTH", "100")
    parts = ["# Command reference\n\nWhat `ctxkit COMMAND --help` prints; a test compares them.\n"]
    for command in commands():
        result = ctxkit(*command.split(), "--help")
        assert result.code == 0
        text = "\n".join(line.rstrip() for line in result.out.strip().splitlines())
        parts.append(f"## `{' '.join(['ctxkit', *command.split()])}`\n\n```\n{text}\n```\n")
    page = "\n".join(parts)
    if os.environ.get("CTXKIT_WRITE_DOCS"):
        PAGE.write_text(page, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page, "run with CTXKIT_WRITE_DOCS=1 and look at the difference"
