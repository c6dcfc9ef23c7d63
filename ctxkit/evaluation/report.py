"""What a benchmark returns, and how it is found by name."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import ModuleType
from typing import Any

from ctxkit.errors import ConfigError
from ctxkit.settings import data_dir

__all__ = ["Bar", "Report", "names", "run", "summary"]


@dataclass(frozen=True, slots=True)
class Bar:
    """A target and what was measured. `target` is for people, such as `>= 0.735`."""

    key: str
    value: float
    target: str
    holds: bool

    @classmethod
    def at_least(cls, key: str, value: float, target: float) -> Bar:
        return cls(key, round(value, 4), f">= {target:g}", value >= target)

    @classmethod
    def at_most(cls, key: str, value: float, target: float) -> Bar:
        return cls(key, round(value, 4), f"<= {target:g}", value <= target)


@dataclass(slots=True)
class Report:
    """The rows of a benchmark's table, and its bars. `data` says what was measured, and how much of it."""

    name: str
    data: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return all(bar.holds for bar in self.bars)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "data": self.data,
            "rows": self.rows,
            "bars": [asdict(bar) for bar in self.bars],
        }


def names() -> list[str]:
    """The benchmarks there are: one module each in `ctxkit.evaluation.benchmarks`, `-` in the name for its `_`."""
    from ctxkit.evaluation import benchmarks

    modules = (module.name for module in pkgutil.iter_modules(benchmarks.__path__))
    return sorted(name.replace("_", "-") for name in modules if name[0] != "_")


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"ctxkit.evaluation.benchmarks.{name.replace('-', '_')}")


def summary(name: str) -> str:
    """The first line of the benchmark's docstring."""
    return (_module(name).__doc__ or "").strip().split("\n")[0]


def run(name: str, options: Mapping[str, Any] | None = None, *, full: bool = False) -> Report:
    """Run a benchmark: its module's `run(data, **options)`. Raises `ConfigError` when it or its data is missing.

    Args:
        full: give a benchmark that measures only a part by default the option `full`.
    """
    if name.replace("_", "-") not in names():
        raise ConfigError("there is no benchmark of this name", subject=name, remedy=f"Known: {', '.join(names())}.")
    data = data_dir()
    if data is None:
        raise ConfigError("the evaluation data is not here", remedy="Set CTXKIT_DATA to its folder.")
    measure = _module(name).run
    given = dict(options or {})
    known = inspect.signature(measure).parameters
    if full and "full" in known:
        given["full"] = True
    for option in given:
        if option not in known:
            raise ConfigError(f"this benchmark has no option {option!r}", subject=name, remedy="Leave it away.")
    report: Report = measure(data, **given)
    return report
