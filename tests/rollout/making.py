"""The experiment that the tests of rollout share."""

from __future__ import annotations

from typing import Any

from ctxkit.rollout import Experiment

ARMS = {"control": {"candidates": 20}, "wide": {"candidates": 40}}


def experiment(**changes: Any) -> Experiment:
    return Experiment(**{"name": "wide", "arms": ARMS, "seed": "s1", **changes})
