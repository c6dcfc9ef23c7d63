"""Experiments: which units get which arm, what came of it, and whether that says anything.

engine.experiments.start(Experiment(name="brief", arms={"control": "answer@2", "brief": "answer@3"}))
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ctxkit.rollout.experiment import Arm, Assignment, Experiment

if TYPE_CHECKING:
    from ctxkit.rollout.experiments import Experiments, ExperimentState
    from ctxkit.rollout.report import ArmReport, ExperimentReport, MetricReport

__all__ = [
    "Arm",
    "ArmReport",
    "Assignment",
    "Experiment",
    "ExperimentReport",
    "ExperimentState",
    "Experiments",
    "MetricReport",
]

_HOMES = {
    "ArmReport": "report",
    "ExperimentReport": "report",
    "ExperimentState": "experiments",
    "Experiments": "experiments",
    "MetricReport": "report",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"ctxkit.rollout.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
