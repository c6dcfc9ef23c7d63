"""What an engine is given, checked and completed: budgets, stages, parts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from ctxkit.checking import check_kind, check_whole
from ctxkit.errors import ConfigError
from ctxkit.prompts import Budget
from ctxkit.protocols import Stage
from ctxkit.registry import create

__all__ = ["budget_for", "instance_of", "paths_of", "stage_of"]

T = TypeVar("T")


def budget_for(budget: Budget | int | None, window: int, *, limited: bool) -> Budget:
    """A whole budget; by default the window with a quarter, at most 1,024 tokens, kept for the answer.

    Raises `ConfigError` where it is larger than the window of the model that it is for (`limited`).
    """
    if budget is None or isinstance(budget, int):
        size = window if budget is None else budget
        check_whole(size, "the budget", minimum=1)
        budget = Budget(size, reserve_output=min(1024, size // 4))
    check_kind(budget, Budget, "the budget", remedy="Give a Budget or a number of tokens.")
    if limited and budget.max_tokens > window:
        raise ConfigError(
            f"the budget of {budget.max_tokens:,} tokens is larger than the model's window of {window:,}",
            remedy=f"Lower max_tokens to {window:,} or less.",
        )
    return budget


def stage_of(stage: Stage | str) -> Stage:
    """A stage, or the registered one of that name."""
    made: Stage = create("stage", stage) if isinstance(stage, str) else stage
    if not callable(made) or isinstance(made, type):
        raise ConfigError(
            "a stage must be an object that can be called",
            subject=repr(stage)[:60],
            remedy="Give an instance, such as TimeDecay(), or a registered name.",
        )
    return made


def instance_of(part: T, kind: str) -> T:
    """The part itself; a class in its place is refused before it is called without an object."""
    if isinstance(part, type):
        raise ConfigError(
            f"the {kind} is a class", subject=part.__name__, remedy=f"Give an instance: {part.__name__}()."
        )
    return part


def paths_of(paths: str | Path | Iterable[str | Path]) -> list[Path]:
    """One path or several, none of them empty: an empty one would be the current folder."""
    check_kind(paths, (str, Path, Iterable), "paths", remedy="Give a path, or several.")
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    for path in given:
        check_kind(path, (str, Path), "a path", remedy="Give a str or a Path.")
        if not str(path):
            raise ConfigError("a path is empty", remedy='Name a file or a folder; "." is the current one.')
    return [Path(path) for path in given]
