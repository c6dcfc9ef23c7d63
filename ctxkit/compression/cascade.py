"""Coarse, fine, finest: each step leaves less, and the next runs only where that is still too much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ctxkit.checking import check_able, check_number, check_whole
from ctxkit.compression.counting import counting
from ctxkit.compression.relevance import lexical_scores
from ctxkit.documents import Candidate, Query
from ctxkit.errors import ConfigError
from ctxkit.protocols import Stage, TokenCounter
from ctxkit.stage_inputs import check_candidates, run_stage

__all__ = ["Cascade"]


@dataclass(frozen=True, kw_only=True)
class Cascade:
    """Drops candidates, then sentences, then words, until the target is met; the cheapest first.

    Coarse: whole candidates, worst first, until `coarse_to` times the target is left. Fine: the stage of sentences down
    to the target, or to `fine_to` times the target where a finest stage follows. Finest: any stage, such as one that
    prunes words. Each gets its own target as `query.room`; what fits the target already is not touched.

    Args:
        fine: a stage that compresses to `query.room`, such as `SentenceCompressor`; None goes from candidates to words.
        finest: the last stage, the most expensive one; None for none.
        target: the tokens to come down to; with `query.room`, the lesser counts. Without either nothing happens.
        coarse_to: what the coarse step leaves, in targets; at least `fine_to`.
        fine_to: what the fine step leaves for the finest, in targets; at least 1.
        counter: what counts tokens; by default o200k_base.
        overhead: tokens that each candidate costs beside its text.

    Raises:
        ConfigError: a parameter is out of range, or there is neither a fine nor a finest stage.

    Example:
        >>> from ctxkit.compression import SentenceCompressor
        >>> Cascade(fine=SentenceCompressor(), target=500)(Query("What is measured?"), [])
        []
    """

    fine: Stage | None = None
    finest: Stage | None = None
    target: int | None = None
    coarse_to: float = 12.0
    fine_to: float = 1.3
    counter: TokenCounter | None = None
    overhead: int = 0

    def __post_init__(self) -> None:
        for name in ("fine", "finest"):
            stage = getattr(self, name)
            if stage is not None and (not callable(stage) or isinstance(stage, type)):
                raise ConfigError(f"{name} is not a stage", remedy="Give an instance, such as SentenceCompressor().")
        if self.fine is None and self.finest is None:
            raise ConfigError("there is no stage to compress with", remedy="Give fine=SentenceCompressor().")
        if self.target is not None:
            check_whole(self.target, "target", minimum=1, remedy="Give a whole number of tokens, 1 or more.")
        check_number(self.fine_to, "fine_to", minimum=1.0, remedy="Give 1 or more targets.")
        check_number(self.coarse_to, "coarse_to", minimum=self.fine_to, remedy="Give fine_to or more targets.")
        if self.counter is not None:
            check_able(self.counter, "count", "counter", remedy="Give a counter, such as get_counter('o200k_base').")
        check_whole(self.overhead, "overhead", minimum=0)

    def __call__(self, query: Query, candidates: Sequence[Candidate]) -> list[Candidate]:
        check_candidates(query, candidates)
        targets = [target for target in (self.target, query.room) if target is not None]
        left = list(candidates)
        if not targets:
            return left
        target = min(targets)
        counts = self._counts(left)
        if sum(counts) <= target:
            return left
        if sum(counts) > self.coarse_to * target:
            left = self._coarse(query, left, counts, int(self.coarse_to * target))
        if self.fine is not None:
            aim = target if self.finest is None else int(self.fine_to * target)
            left = run_stage(self.fine, replace(query, room=aim), left)
        if self.finest is not None and sum(self._counts(left)) > target:
            left = run_stage(self.finest, replace(query, room=target), left)
        return left

    def _counts(self, candidates: Sequence[Candidate]) -> list[int]:
        counter = counting(self.counter)
        return [counter.count(candidate.text) + self.overhead for candidate in candidates]

    @staticmethod
    def _coarse(query: Query, candidates: Sequence[Candidate], counts: Sequence[int], target: int) -> list[Candidate]:
        """The best candidates while they fit, the best one always; by score, or by words where none has a score."""
        scores = np.array([candidate.score for candidate in candidates])
        if not scores.any():
            scores = lexical_scores(query.text, [candidate.text for candidate in candidates])
        order = sorted(range(len(candidates)), key=lambda at: (-scores[at], candidates[at].chunk.id))
        chosen: set[int] = set()
        room = target
        for at in order:
            if counts[at] <= room or not chosen:
                chosen.add(at)
                room -= counts[at]
        return [candidate for at, candidate in enumerate(candidates) if at in chosen]
