"""Stages by name. Built-in ones and third parties' register alike, through entry points `ctxkit.<kind>`.

`time_decay` and `time-decay` are one name.

[project.entry-points."ctxkit.chunker"]
mine = "my_package.chunking:MyChunker"
"""

from __future__ import annotations

import inspect
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from ctxkit.errors import ConfigError

__all__ = ["KINDS", "check_name", "create", "load", "names", "register"]

KINDS = ("chunker", "codec", "embedder", "extractor", "model", "reader", "retriever", "stage", "window")
"""The kinds of stages that can be registered."""

_registered: dict[tuple[str, str], Any] = {}


def register(kind: str, name: str, factory: Any) -> None:
    """Register a stage of this process under a name; it wins over an entry point of the same name."""
    _check(kind)
    _registered[kind, name] = factory


def names(kind: str) -> list[str]:
    """The names that are registered for a kind, sorted."""
    _check(kind)
    return sorted({*_entry_points(kind), *(name for known, name in _registered if known == kind)})


def load(kind: str, name: str) -> Any:
    """The class or factory of that name; `-` and `_` are one. Raises `ConfigError` when there is none."""
    written = check_name(kind, name)
    return _registered[kind, written] if (kind, written) in _registered else _entry_points(kind)[written].load()


def check_name(kind: str, name: str) -> str:
    """The name as it was registered; imports nothing. Raises `ConfigError` when there is none."""
    _check(kind)
    written = _spelling(kind, name)
    if (kind, written) not in _registered and written not in _entry_points(kind):
        raise ConfigError(
            f"there is no {kind} of this name",
            subject=name,
            remedy=f"Known: {', '.join(names(kind)) or 'none'}.",
        )
    return written


def create(kind: str, name: str, **parameters: Any) -> Any:
    """A stage of that name with these parameters. Raises `ConfigError` for a parameter that it does not have."""
    factory = load(kind, name)
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # some built-in callables do not tell theirs
        return factory(**parameters)
    try:
        signature.bind(**parameters)
    except TypeError as error:
        known = ", ".join(signature.parameters)
        raise ConfigError(str(error), subject=f"{kind} {name}", remedy=f"Its parameters: {known}.") from error
    return factory(**parameters)


def _spelling(kind: str, name: str) -> str:
    """The name as it was registered: itself where it is known, else the one that differs in `-` and `_` alone."""
    if (kind, name) in _registered or name in _entry_points(kind):
        return name
    plain = str(name).replace("_", "-")
    return next((known for known in names(kind) if known.replace("_", "-") == plain), name)


@cache
def _entry_points(kind: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=f"ctxkit.{kind}")}


def _check(kind: str) -> None:
    if kind not in KINDS:
        raise ConfigError(f"unknown kind {kind!r}", remedy=f"Kinds: {', '.join(KINDS)}.")
