"""What an experiment is: arms with weights, how many units take part, what decides it."""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ctxkit.checking import check_kind, check_number, check_whole, shown
from ctxkit.errors import ConfigError
from ctxkit.storage.checks import checked_name, decoded, encoded

__all__ = ["Arm", "Assignment", "Experiment", "template_of"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NAME_REMEDY = (
    "Use 1 to 128 of the letters A-Z and a-z, digits, dot, hyphen and underscore; begin with a letter or digit."
)
GOALS = ("higher", "lower")


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm.

    Args:
        setting: a template's reference (text, `answer@3`), or any other setting as JSON: `{"candidates": 40}`,
            `{"template": "answer@3", "model": "openai:gpt-4o"}`.
        weight: its share of the units that take part, in (0, 1]. All arms have one, or none has: then shares are equal.
    """

    setting: Any
    weight: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    """A comparison of arms, fixed from its start but for the coverage.

    Args:
        name: names the experiment for its tenant, for ever.
        arms: an `Arm`, or only its setting, by name. At most 20. The order is part of the assignment.
        control: the arm of everybody who does not take part.
        coverage: the share of units that take part, in (0, 1].
        seed: a new one for each experiment, so that two experiments assign independently.
        metric: the outcome that decides.
        goal: `higher` or `lower` is better.
        minimum: units with an outcome that each arm needs before there is any verdict.
        planned: about how many units in all are expected; intervals are tightest there and hold everywhere.
        alpha: the largest probability of a false winner.

    Raises:
        ConfigError: a value is wrong.

    Example:
        >>> brief = Experiment(name="brief", arms={"control": "answer@2", "brief": "answer@3"}, coverage=0.1, seed="s1")
        >>> brief.weights
        {'control': 0.5, 'brief': 0.5}
    """

    name: str
    arms: Mapping[str, Any]
    control: str = "control"
    coverage: float = 1.0
    seed: str = field(default_factory=lambda: secrets.token_hex(8))
    metric: str = "success"
    goal: str = "higher"
    minimum: int = 100
    planned: int = 10_000
    alpha: float = 0.05

    def __post_init__(self) -> None:
        check_named(self.name, "the experiment's name")
        check_named(self.metric, "the metric")
        check_kind(self.seed, str, "the seed", remedy="Give a text.")
        checked_name(self.seed, "the seed")
        check_kind(self.arms, Mapping, "the arms", remedy='Give them by name: {"control": "answer@2", …}.')
        object.__setattr__(self, "arms", _checked_arms(self.arms))
        if self.control not in self.arms:
            raise ConfigError(
                f"the control arm {shown(self.control)} is none of the arms",
                subject=self.name,
                remedy=f"Name one of them control, or say which it is (control=…): {', '.join(self.arms)}.",
            )
        check_coverage(self.coverage)
        if self.goal not in GOALS:
            raise ConfigError(f"the goal is {shown(self.goal)}", remedy="Say whether higher or lower is better.")
        check_whole(self.minimum, "minimum", minimum=2)
        check_whole(self.planned, "planned", minimum=10)
        check_number(self.alpha, "alpha", minimum=1e-6, maximum=0.5)

    @property
    def weights(self) -> dict[str, float]:
        """The share of each arm among the units that take part."""
        return {name: float(arm.weight) for name, arm in self.arms.items()}

    def with_setting(self, arm: str, setting: Any) -> Experiment:
        """The same with another setting of one arm."""
        return replace(self, arms={**self.arms, arm: replace(self.arms[arm], setting=setting)})

    def to_json(self) -> dict[str, Any]:
        """JSON that `from_json` reads. Arms are a list: their order is part of the assignment."""
        values = {name: getattr(self, name) for name in self.__slots__ if name != "arms"}
        arms = [{"name": name, "weight": arm.weight, "setting": arm.setting} for name, arm in self.arms.items()]
        return {**values, "arms": arms}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Experiment:
        arms = {arm["name"]: Arm(arm["setting"], arm["weight"]) for arm in value["arms"]}
        return cls(**{**value, "arms": arms})


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a unit gets: the arm and its setting, and whether the unit takes part."""

    arm: str
    setting: Any
    exposed: bool

    @property
    def template(self) -> str:
        """The template's reference. Raises `ConfigError` for an arm that sets none."""
        reference = template_of(self.setting)
        if reference is None:
            raise ConfigError(
                "this arm sets no template", subject=self.arm, remedy="Read its `setting`, or give the arm a template."
            )
        return reference


def template_of(setting: Any) -> str | None:
    """The template's reference in a setting: the text itself, or what stands under `template`."""
    found = setting.get("template") if isinstance(setting, Mapping) else setting
    return found if isinstance(found, str) else None


def check_named(name: Any, what: str) -> str:
    """ASCII alone: these names stand in commands and dashboards, where look-alikes and control characters deceive."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(f"{what} is {shown(name)}", remedy=_NAME_REMEDY)
    return name


def check_coverage(coverage: Any) -> float:
    if isinstance(coverage, int | float) and not isinstance(coverage, bool) and 1 < coverage <= 100:
        raise ConfigError(f"coverage is {coverage}", remedy=f"Give a share: {coverage / 100:g} is {coverage:g} %.")
    check_number(coverage, "coverage", minimum=0.0, maximum=1.0)
    if coverage == 0:
        raise ConfigError("coverage is 0", remedy="Give a share above 0; to end the experiment, stop it.")
    return float(coverage)


def _checked_arms(arms: Mapping[str, Any]) -> dict[str, Arm]:
    if not 2 <= len(arms) <= 20:
        raise ConfigError(f"there are {len(arms)} arms", remedy="Give at least a control and one other, at most 20.")
    found: dict[str, Arm] = {}
    for name, arm in arms.items():
        check_named(name, "an arm's name")
        arm = arm if isinstance(arm, Arm) else Arm(arm)
        if arm.setting is None or arm.setting == "":
            raise ConfigError("the arm has no setting", subject=name, remedy="Give a template, such as answer@3.")
        if arm.weight is not None:
            check_number(arm.weight, f"the weight of arm {name}", minimum=0.0, maximum=1.0)
            if arm.weight == 0:
                raise ConfigError("the weight is 0", subject=name, remedy="Leave the arm out.")
        found[name] = Arm(decoded(encoded(arm.setting, f"the setting of arm {name}")), arm.weight)
    given = [arm.weight for arm in found.values() if arm.weight is not None]
    if not given:
        return {name: replace(arm, weight=1 / len(found)) for name, arm in found.items()}
    if len(given) < len(found):
        without = next(name for name, arm in found.items() if arm.weight is None)
        raise ConfigError("the arm has no weight, others have", subject=without, remedy="Give all arms one, or none.")
    if not math.isclose(total := math.fsum(given), 1.0, abs_tol=1e-9):
        # Not scaled to fit: 50 and 5 is a slip of the finger more often than it is ten to one.
        raise ConfigError(
            f"the weights sum to {total * 100:.10g} %, not to 100 %",
            remedy="Change one, or give none for equal shares.",
        )
    return {name: replace(arm, weight=float(arm.weight)) for name, arm in found.items() if arm.weight is not None}
