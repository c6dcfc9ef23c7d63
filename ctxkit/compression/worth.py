"""Whether compressing pays: what it costs in time, and what the model saves by reading less."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ctxkit.checking import check_able, check_number, check_whole
from ctxkit.compression.counting import counting
from ctxkit.documents import Candidate, Query
from ctxkit.errors import ConfigError
from ctxkit.protocols import Stage, TokenCounter
from ctxkit.stage_inputs import check_candidates, run_stage

__all__ = ["Worth", "WorthIt", "seconds_per_token", "worth_it"]


@dataclass(frozen=True, slots=True)
class Worth:
    """What a compression costs and saves, in seconds.

    Args:
        cost: of compressing.
        saving: of the model, which reads `tokens_in - tokens_out` fewer tokens.
    """

    cost: float
    saving: float
    tokens_in: int
    tokens_out: int

    @property
    def pays(self) -> bool:
        return self.saving > self.cost

    def to_json(self) -> dict[str, Any]:
        return {
            "seconds_cost": self.cost,
            "seconds_saved": self.saving,
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
            "pays": self.pays,
        }


def worth_it(tokens_in: int, tokens_out: int, *, compressing: float, reading: float, fixed: float = 0.0) -> Worth:
    """Compare what compressing costs with what the target model saves.

    Args:
        compressing: seconds of the compressor a token that goes in (`seconds_per_token` measures it).
        reading: seconds of the target model's prefill a token; for a remote model also what a token's price is worth.
        fixed: seconds of the compressor a call, such as loading or a round trip.

    Source: prompt compression gains at most 18 % end to end, and nothing outside a window of lengths:
    "Prompt compression in the wild", 2026 (arXiv 2604.02985).

    Example:
        >>> worth_it(10_000, 2_000, compressing=1e-5, reading=1e-3).pays
        True
        >>> worth_it(10_000, 2_000, compressing=1e-2, reading=1e-3).pays
        False
    """
    for name, tokens in (("tokens_in", tokens_in), ("tokens_out", tokens_out)):
        check_whole(tokens, name, minimum=0, remedy="Give a number of tokens, 0 or more.")
    for name, value in (("compressing", compressing), ("reading", reading), ("fixed", fixed)):
        check_number(value, name, minimum=0.0, remedy="Give seconds, 0 or more.")
    return Worth(fixed + compressing * tokens_in, reading * max(0, tokens_in - tokens_out), tokens_in, tokens_out)


def seconds_per_token(
    stage: Stage, query: Query, candidates: Sequence[Candidate], *, counter: TokenCounter | None = None, runs: int = 3
) -> float:
    """What a stage costs a token that goes in, measured here and now: the fastest of a few runs after a first one.

    Raises `ConfigError` for candidates without a token: they measure nothing.
    """
    check_candidates(query, candidates)
    check_whole(runs, "runs", minimum=1)
    count = counting(counter)
    tokens = sum(count.count(candidate.text) for candidate in candidates)
    if not tokens:
        raise ConfigError("there is nothing to measure with", remedy="Give candidates with text, like those in use.")
    run_stage(stage, query, candidates)
    best = float("inf")
    for _ in range(runs):
        started = time.perf_counter()
        stage(query, candidates)
        best = min(best, time.perf_counter() - started)
    return best / tokens


@dataclass(frozen=True, kw_only=True)
class WorthIt:
    """Runs a compressor where that saves the target model more time than it takes, else gives back what came.

    The two speeds are given, not measured on the way, so that the same in gives the same out; `seconds_per_token`
    measures a compressor. Where the candidates do not fit `query.room`, there is no choice: they are compressed. Its
    notes in the trace report cost and saving either way.

    Args:
        stage: the compressor.
        ratio: how many times smaller it makes its input, for the estimate of what is saved.
        compressing: seconds of the compressor a token that goes in.
        reading: seconds of the target model's prefill a token.
        counter: what counts tokens; by default o200k_base.

    Raises:
        ConfigError: a parameter is out of range.

    Example:
        >>> from ctxkit.compression import SentenceCompressor
        >>> stage = WorthIt(stage=SentenceCompressor(ratio=3), ratio=3, compressing=1e-5, reading=1e-3)
        >>> stage(Query("What is measured?"), [])
        []
    """

    stage: Stage
    compressing: float
    reading: float
    ratio: float = 3.0
    counter: TokenCounter | None = None

    def __post_init__(self) -> None:
        if not callable(self.stage) or isinstance(self.stage, type):
            raise ConfigError("stage is not a stage", remedy="Give an instance, such as SentenceCompressor(ratio=3).")
        check_number(self.compressing, "compressing", minimum=0.0, remedy="Give seconds a token, 0 or more.")
        check_number(self.reading, "reading", minimum=0.0, remedy="Give seconds a token, 0 or more.")
        check_number(self.ratio, "ratio", minimum=1.0, remedy="Give 1 or more: 3 makes it a third as long.")
        if self.counter is not None:
            check_able(self.counter, "count", "counter", remedy="Give a counter, such as get_counter('o200k_base').")

    def __call__(self, query: Query, candidates: Sequence[Candidate]) -> list[Candidate]:
        check_candidates(query, candidates)
        worth = self.estimate(query, candidates)
        forced = query.room is not None and worth.tokens_in > query.room
        return run_stage(self.stage, query, candidates) if forced or worth.pays else list(candidates)

    def estimate(self, query: Query, candidates: Sequence[Candidate]) -> Worth:
        """What compressing these would cost and save; the output is taken to be `ratio` times smaller."""
        tokens = self._count(candidates)
        left = int(tokens / self.ratio)
        if query.room is not None and query.room < tokens:
            left = min(left, query.room)
        return worth_it(tokens, left, compressing=self.compressing, reading=self.reading)

    def notes(self, query: Query, before: Sequence[Candidate], after: Sequence[Candidate]) -> dict[str, Any]:
        """For the trace: the two sides of the decision, and what came out."""
        worth = self.estimate(query, before)
        forced = query.room is not None and worth.tokens_in > query.room
        done = "compressed" if worth.pays else "compressed to fit" if forced else "not worth it"
        return {**worth.to_json(), "tokens_out": self._count(after), "decision": done}

    def _count(self, candidates: Sequence[Candidate]) -> int:
        counter = counting(self.counter)
        return sum(counter.count(candidate.text) for candidate in candidates)
