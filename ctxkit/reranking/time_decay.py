"""Newer counts more: exponential decay with a half-life."""

from __future__ import annotations

import math
import numbers
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from ctxkit.checking import check_kind, check_number, shown
from ctxkit.documents import Candidate, Query
from ctxkit.errors import ConfigError
from ctxkit.reranking.scores import ordered, unit_scores
from ctxkit.stage_inputs import check_candidates
from ctxkit.timestamps import NaivePolicy, parse_timestamp

__all__ = ["HalfLife", "TimeDecay"]

HalfLife = timedelta | float
"""A duration, or seconds; in turns where age is in turns. Infinity never decays."""


@dataclass(frozen=True, kw_only=True)
class TimeDecay:
    """Weighs each candidate by `max(floor, 0.5 ** (age / half_life))`, into `scores["time"]` and `final`.

    A term of the ranking, never a filter: every candidate comes back. Pure: reading changes no stamp, and the clock is
    never asked. Age counts from `query.now`; without it, from the newest stamp among the candidates, so the same
    candidates give the same result on any day (law 6). A stamp in the future has age 0. O(n log n).

    Args:
        half_life: the age at which the weight is one half.
        half_life_turns: age counts in turns of a dialogue instead, from the highest turn among the candidates;
            `half_life` is then not used.
        half_lives: half-lives of single types, by the value of `type_key`; the unit is that of the age.
        floor: the least weight, so that old evidence can still win on relevance.
        mode: `product`: final = relevance * weight; `mix`: final = (1 - weight) * relevance + weight * time.
        weight: the share of time in a mix.
        missing: the weight where there is no stamp: a number, or `median` of those that have one (1 if none has).
            Neither freshest nor oldest: an unknown age says nothing.
        invalid: what a stamp in no known form is: an `error`, or `missing`.
        naive: what a time without a zone means: `utc`, or `reject`, which makes it invalid.
        key: the metadata that holds the stamp (any form `parse_timestamp` knows).
        turn_keys: the metadata that may hold the turn; the first that is there counts.
        type_key: the metadata that holds the type.

    Raises:
        ConfigError: a parameter is out of range, or a stamp is invalid and `invalid="error"`.

    Source: half-life decay, N(t) = N0 * 2 ** (-t / T); often mistaken for e ** (-t / T), whose T is the mean life.

    Example:
        >>> TimeDecay(half_life=3600).decay(3600)
        0.5
    """

    half_life: HalfLife = timedelta(days=30)
    half_life_turns: float | None = None
    half_lives: Mapping[str, HalfLife] = field(default_factory=dict)
    floor: float = 0.0
    mode: Literal["product", "mix"] = "product"
    weight: float = 0.3
    missing: float | Literal["median"] = "median"
    invalid: Literal["error", "missing"] = "error"
    naive: NaivePolicy = "utc"
    key: str = "created_at"
    turn_keys: tuple[str, ...] = ("turn", "sequence")
    type_key: str = "type"

    def __post_init__(self) -> None:
        _choice("mode", self.mode, ("product", "mix"))
        _choice("invalid", self.invalid, ("error", "missing"))
        _choice("naive", self.naive, ("utc", "reject"))
        for name, share in (("floor", self.floor), ("weight", self.weight), ("missing", self.missing)):
            if not (name == "missing" and share == "median"):
                remedy = "Give a share from 0 to 1" + (", or 'median'." if name == "missing" else ".")
                check_number(share, name, minimum=0.0, maximum=1.0, remedy=remedy)
        for name, key in (("key", self.key), ("type_key", self.type_key)):
            check_kind(key, str, name, remedy="Give the name of a metadata field.")
        check_kind(self.turn_keys, (tuple, list), "turn_keys", remedy="Give a tuple of names of metadata fields.")
        for key in self.turn_keys:
            check_kind(key, str, "turn_keys", remedy="Give names of metadata fields.")
        check_kind(self.half_lives, Mapping, "half_lives", remedy="Give a dict of half-lives by type.")
        _seconds("half_life", self.half_life)
        if self.half_life_turns is not None and isinstance(self.half_life_turns, timedelta):
            raise ConfigError(
                "half_life_turns is a number of turns", subject=str(self.half_life_turns), remedy="Give a number."
            )
        if self.half_life_turns is not None:
            _seconds("half_life_turns", self.half_life_turns)
        for name, half_life in self.half_lives.items():
            _seconds(f"half_lives[{name!r}]", half_life)
            if self.half_life_turns is not None and isinstance(half_life, timedelta):
                raise ConfigError(
                    "half-lives are turns where half_life_turns is given",
                    subject=name,
                    remedy="Give a number of turns.",
                )

    def decay(self, age: HalfLife, *, kind: str | None = None) -> float:
        """The weight at an age (a duration or seconds; turns where `half_life_turns` is given) for a type."""
        elapsed = _number(age)
        if math.isnan(elapsed):
            raise ConfigError("an age is no number", subject=shown(age), remedy="Give a timedelta or seconds.")
        default = self.half_life if self.half_life_turns is None else self.half_life_turns
        half_life = _number(self.half_lives.get(kind, default) if kind is not None else default)
        past = max(0.0, elapsed)
        # 0/0 and inf/inf are no numbers: no age is no decay, and what never decays never does.
        exponent = 0.0 if past == 0.0 or math.isinf(half_life) else past / half_life
        return max(self.floor, float(0.5**exponent))

    def __call__(self, query: Query, candidates: Sequence[Candidate]) -> list[Candidate]:
        check_candidates(query, candidates)
        ages = self._ages(query.now, candidates)
        weights = [
            None if age is None else self.decay(age, kind=_text(candidate.chunk.metadata.get(self.type_key)))
            for candidate, age in zip(candidates, ages, strict=True)
        ]
        known = [weight for weight in weights if weight is not None]
        unknown = float(self.missing) if self.missing != "median" else statistics.median(known) if known else 1.0
        return ordered(
            [
                candidate.scored(time=time, final=self._final(relevance, time))
                for candidate, relevance, time in zip(
                    candidates,
                    unit_scores(candidates),
                    (unknown if weight is None else weight for weight in weights),
                    strict=True,
                )
            ]
        )

    def _final(self, relevance: float, time: float) -> float:
        if self.mode == "product":
            return relevance * time
        return min(1.0, (1.0 - self.weight) * relevance + self.weight * time)

    def _ages(self, now: datetime | None, candidates: Sequence[Candidate]) -> list[float | None]:
        if self.half_life_turns is not None:
            turns = [self._turn(candidate) for candidate in candidates]
            newest = max((turn for turn in turns if turn is not None), default=0.0)
            return [None if turn is None else newest - turn for turn in turns]
        stamps = [self._stamp(candidate) for candidate in candidates]
        now = now or max((stamp for stamp in stamps if stamp is not None), default=None)
        return [None if stamp is None or now is None else (now - stamp).total_seconds() for stamp in stamps]

    def _stamp(self, candidate: Candidate) -> datetime | None:
        value = candidate.chunk.metadata.get(self.key)
        try:
            return parse_timestamp(value, naive=self.naive, subject=f"{candidate.chunk.id} ({self.key})")
        except ConfigError as error:
            if self.invalid == "missing":
                return None
            raise ConfigError(
                error.message, subject=error.subject, remedy=f"{error.remedy} Or set TimeDecay(invalid='missing')."
            ) from error

    def _turn(self, candidate: Candidate) -> float | None:
        metadata = candidate.chunk.metadata
        value: Any = next((metadata[key] for key in self.turn_keys if metadata.get(key) is not None), None)
        if value is None:
            return None
        number = _real(value)
        if number is not None and math.isfinite(number):
            return number
        if self.invalid == "missing":
            return None
        raise ConfigError(
            f"not a turn: {shown(value)}",
            subject=candidate.chunk.id,
            remedy="Give a number, or set TimeDecay(invalid='missing').",
        )


def _number(value: object) -> float:
    """A duration in seconds, or the number; NaN for what is neither, which every comparison refuses."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    number = _real(value)
    return math.nan if number is None else number


def _real(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    try:
        return float(value)
    except OverflowError:  # a whole number beyond every float
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _choice(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(f"unknown {name}", subject=str(value), remedy=f"Use one of: {', '.join(known)}.")


def _seconds(name: str, value: object) -> None:
    if not _number(value) > 0.0:
        raise ConfigError(
            f"{name} must be above 0", subject=shown(value), remedy="Give a timedelta or seconds; not NaN."
        )
